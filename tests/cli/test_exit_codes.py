"""Exit codes of commands whose output nobody reads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from helpers.results import CLA_E


@pytest.mark.parametrize("words", [("--version",), ("compare", str(CLA_E))], ids=["echoed", "table"])
def test_a_closed_pipe_has_an_exit_code_of_its_own(words: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([sys.executable, "-m", "ocssl", *words], stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
