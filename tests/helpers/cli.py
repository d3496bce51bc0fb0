"""The real command in this process, working in a folder of the test's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ocssl.cli import main

Ocssl = Callable[..., tuple[int, str]]
"""The command line: exit code and everything it printed."""


@pytest.fixture
def ocssl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ocssl:
    """``ocssl`` with arguments: exit code and everything it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def call(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["ocssl", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr()
        return int(left.value.code or 0), printed.out + printed.err

    return call
