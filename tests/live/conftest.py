"""Folders of small frames, the real command, and the warnings of a test."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from subprocess import Popen

import pytest

from helpers.command import Command


@pytest.fixture(scope="module")
def ocssl(server: Popen[str], tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command line, working in a folder that the tests of a module share."""
    return Command(server, tmp_path_factory.mktemp("commands"))


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
