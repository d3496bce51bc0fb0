"""Folders of small frames, the real command, and the warnings of a test."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

RUNS = Path(__file__).parents[1] / "runs"
sys.path.insert(0, str(RUNS))  # the real command is started there as here

from command import Command  # noqa: E402


@pytest.fixture(scope="module")
def ocssl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """The command line, working in a folder that the tests of a module share."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    helper = subprocess.Popen(
        [sys.executable, str(RUNS / "forking.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    yield Command(helper, tmp_path_factory.mktemp("commands"))
    assert helper.stdin
    helper.stdin.close()
    helper.wait(timeout=30)


class _Collect(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """Warnings that were given since the test began."""
    handler, log = _Collect(), logging.getLogger("ocssl")
    log.addHandler(handler)
    yield handler.messages
    log.removeHandler(handler)
