"""``ocssl show`` of finished runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.cli import Ocssl, ocssl
from helpers.results import CLA_E
from ocssl.results import read_result

__all__ = ["ocssl"]


def test_a_run_that_was_measured_at_its_end_has_the_last_row_of_the_matrix(ocssl: Ocssl, tmp_path: Path) -> None:
    result = read_result(CLA_E)
    end = {"avg": None, "curve": result.curve[-1:], "matrix": result.matrix[-1:]}
    for number, run in enumerate((result, result.model_copy(update=end))):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "result.json").write_text(run.to_json())
    every, last = (ocssl("show", str(tmp_path / name), "--matrix")[1].splitlines() for name in "01")
    assert [line.split()[0] for line in every[-20:]] == [f"e{number + 1}" for number in range(20)]
    assert last[-1].split() == every[-1].split()
    assert last[-2].startswith("after")


@pytest.mark.parametrize("words", [("show", "run"), ("compare", "run"), ("paper", "show", "high-simsiam")])
def test_finished_runs_are_shown_without_importing_torch(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "run").mkdir()
    shutil.copy(CLA_E, tmp_path / "run" / "result.json")
    program = "import sys; sys.modules['torch'] = None; from ocssl.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "CLA-E" in done.stdout
