"""The arithmetic of docs/scaling.md is that of the script it names."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_page_says_what_the_script_computes() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "grid_cost.py"))
    tuning = {budget: len(script["runs"](budget)[0]) for budget in ("high", "low")}
    assert tuning == {"high": 12 * 7 + 4 * 28, "low": 20 * 7 + 6 * 28}  # rows without and with ω
    assert "\n".join(script["lines"]((1, 8, 64))) in (ROOT / "docs" / "scaling.md").read_text()


@pytest.mark.parametrize(("gpus", "expected"), [(1, 12.0), (2, 7.0), (3, 5.0), (99, 3.0)])
def test_runs_are_dealt_to_gpus_longest_first(gpus: int, expected: float) -> None:
    makespan = runpy.run_path(str(ROOT / "benchmarks" / "grid_cost.py"))["makespan"]
    assert makespan([3.0, 3.0, 2.0, 2.0, 2.0], gpus) == expected
