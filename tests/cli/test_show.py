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


@pytest.mark.parametrize("measured", ["nothing", "floors"])
def test_a_run_that_was_not_measured_is_said_so_in_words(ocssl: Ocssl, tmp_path: Path, measured: str) -> None:
    result = read_result(CLA_E)
    floors = {} if measured == "floors" else {"references": {}, "knn_references": {}}
    none = {"final": None, "avg": None, "curve": [], "knn": None, "matrix": [], "forgetting": None} | floors
    (tmp_path / "result.json").write_text(result.model_copy(update=none).to_json())
    _, shown = ocssl("show", str(tmp_path))
    assert "–" not in shown
    assert "Final       not measured" in shown.splitlines()
    assert ("pixels" in shown) == (measured == "floors")


def test_a_run_that_was_measured_at_its_end_has_neither_avg_nor_curve(ocssl: Ocssl, tmp_path: Path) -> None:
    result = read_result(CLA_E)
    assert result.knn is not None
    knn = result.knn.model_copy(update={"avg": None, "curve": result.knn.curve[-1:]})
    end = {"avg": None, "curve": result.curve[-1:], "forgetting": None, "knn": knn}
    (tmp_path / "result.json").write_text(result.model_copy(update=end).to_json())
    lines = ocssl("show", str(tmp_path))[1].splitlines()
    assert f"Final       {result.final:.2f} %" in lines
    assert f"k-NN        Final {knn.final:.2f} %" in lines
    assert not {"Avg", "along"} & {line.split()[0] for line in lines}


def test_a_result_file_is_shown_as_its_run(ocssl: Ocssl, tmp_path: Path) -> None:
    shutil.copy(CLA_E, tmp_path / "result.json")
    assert ocssl("show", str(CLA_E)) == ocssl("show", str(tmp_path))
