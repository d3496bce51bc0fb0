"""``ocssl show`` of finished runs."""

from __future__ import annotations

from pathlib import Path

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
