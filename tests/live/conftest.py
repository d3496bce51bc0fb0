"""Folders of small frames, and the real command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
sys.path.insert(0, str(EXPERIMENTS))  # the real command is started there as here

from command import Command  # noqa: E402


@pytest.fixture(scope="module")
def ocssl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """The command line, working in a folder that the tests of a module share."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    helper = subprocess.Popen(
        [sys.executable, str(EXPERIMENTS / "forking.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    yield Command(helper, tmp_path_factory.mktemp("commands"))
    assert helper.stdin
    helper.stdin.close()
    helper.wait(timeout=30)
