"""The whole way from runs to a report, as ``make paper-smoke`` goes it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from helpers.cli import Ocssl
from ocssl.results import Value, find_table, read_results, sections_of

ROOT = Path(__file__).parents[2]
VENV = Path(sys.prefix)


def test_make_paper_smoke_goes_from_runs_to_a_report(tmp_path: Path, ocssl: Ocssl) -> None:
    installed = ["--assume-old", f"{VENV}/.installed-plot"]
    planned = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "paper-smoke", f"VENV={VENV}", f"SMOKE={tmp_path}", *installed],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert planned.returncode == 0, planned.stdout + planned.stderr
    removing, *commands = map(shlex.split, planned.stdout.splitlines())
    assert removing == ["rm", "-rf", str(tmp_path)]
    for program, *words in commands:
        assert program == f"{VENV}/bin/ocssl"
        code, said = ocssl(*words)
        assert code == 0, said
    store = read_results(tmp_path / "results")
    assert store.problems == ()
    (section,) = [section for section in sections_of(store, find_table("smoke")) if section.protocol == "clean"]
    assert {row.label: tuple(row.ours.runs) for row in section.rows} == {
        "finetuning": (0, 1),
        "ER w/ FIFO": (0, 1),
        "CLA-E": (0, 1),
        "random encoder": (0, 1),
    }
    page = (tmp_path / "report" / "report.html").read_text()
    assert all(row.label in page and Value.over(row.ours.final).plain() in page for row in section.rows)
