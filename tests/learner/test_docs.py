"""What docs/extending.md prints is what works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ocssl
from ocssl.checks import check_strategy, small_learner, small_stream

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture(scope="module")
def blocks():
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)


def test_the_printed_strategy_has_at_most_thirty_lines_and_passes_its_check(blocks) -> None:
    assert len(blocks[0].splitlines()) <= 30
    exec(compile(blocks[0], str(PAGE), "exec"), {})
    assert "recall" in ocssl.strategies.names()
    assert "recall" in small_learner("recall", method="simclr", memory="fifo").partial_fit(small_stream(40)).losses


def test_the_printed_alignment_strategy_passes_its_check(blocks) -> None:
    source = next(block for block in blocks if "cla-slow" in block)
    exec(compile(source, str(PAGE), "exec"), {})
    check_strategy("cla-slow")
