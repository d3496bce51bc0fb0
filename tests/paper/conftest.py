"""The real command, working in a folder of the test's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from made_up import Ocssl

from ocssl.cli import main


@pytest.fixture
def ocssl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ocssl:
    """``ocssl`` with arguments, in this process: exit code and everything it printed."""
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
