"""Python code on the pages runs as printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.pages import DOCS, printed_blocks

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the published results."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OCSSL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "results").symlink_to(ROOT / "results")
    return tmp_path


def run(page: str, *numbers: int) -> dict[str, Any]:
    blocks = printed_blocks(DOCS / page)
    names: dict[str, Any] = {}
    for number in numbers:
        exec(compile(blocks[number], page, "exec"), names)
    return names


def test_a_run_from_python(here: Path) -> None:
    names = run("runs.md", 0)
    assert names["result"].final == names["read_result"](here / "runs" / "shapes-er").curve[-1]


def test_a_report_from_python(here: Path) -> None:
    run("report.md", 0)
    assert (here / "report" / "report.html").exists()


def test_an_evaluation_from_python(here: Path) -> None:
    assert 0 < run("evaluation.md", 0)["result"].accuracy <= 100


def test_learning_from_a_queue(here: Path) -> None:
    run("frames.md", 2)
    assert (here / "camera" / "encoder" / "encoder.json").exists()


def test_many_views_from_python(here: Path) -> None:
    assert run("multiview.md", 0)["learner"].seen == 20


def test_adapting_from_python(here: Path) -> None:
    names = run("adapting.md", 0, 1)
    assert (names["learner"].seen, names["strategy"].share) == (80, 0)
