"""The whole way from runs to a report, as ``make paper-smoke`` goes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ocssl.paper import cells, find_table, read_store

ROOT = Path(__file__).parents[2]
VENV = Path(sys.prefix)


def test_make_paper_smoke_goes_from_runs_to_a_report(tmp_path: Path) -> None:
    installed = ["--assume-old", f"{VENV}/.installed-plot"]
    made = subprocess.run(
        ["make", "paper-smoke", f"VENV={VENV}", f"SMOKE={tmp_path}", *installed],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    store = read_store(tmp_path / "results")
    assert store.problems == ()
    found = [cell for cell in cells(store, find_table("smoke")) if cell.protocol == "clean"]
    assert {cell.label: cell.seeds for cell in found} == {
        "finetuning": (0, 1),
        "ER w/ FIFO": (0, 1),
        "CLA-E": (0, 1),
        "random encoder": (0, 1),
    }
    page = (tmp_path / "report" / "report.html").read_text()
    assert all(cell.label in page and f"{cell.final.mean:.2f}" in page for cell in found)
