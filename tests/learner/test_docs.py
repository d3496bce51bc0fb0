"""What docs/extending.md prints is what works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ocssl
from ocssl.checks import check_strategy, small_learner, small_stream

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
TINY = (
    " --set image_size=8 --set samples_per_class=10 --set experiences=2 --set backbone=convnet-w4 --set hidden_dim=8"
    " --set output_dim=8 --set stream_batch=4 --set batch=8 --set passes=1 --set memory_size=12"
    " --set probe.max_epochs=1 --set device=cpu"
)


@pytest.fixture(scope="module")
def blocks():
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)


@pytest.fixture
def folder(blocks, tmp_path, monkeypatch):
    """A working folder with recall.py as printed."""
    (tmp_path / "recall.py").write_text(blocks[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("recall", None)


@pytest.mark.usefixtures("folder")
def test_the_printed_strategy_has_at_most_thirty_lines_and_passes_its_check(blocks) -> None:
    assert len(blocks[0].splitlines()) <= 30
    assert "check_strategy" in blocks[1]
    exec(compile(blocks[1], str(PAGE), "exec"), {})
    assert "recall" in ocssl.strategies.names()
    assert "recall" in small_learner("recall", method="simclr", memory="fifo").partial_fit(small_stream(40)).losses


def test_the_printed_commands_know_the_strategy(folder) -> None:
    listing, run = re.findall(r"^PYTHONPATH=.*", PAGE.read_text(), flags=re.M)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": programs, "OCSSL_CACHE": str(folder), "OMP_NUM_THREADS": "1"}
    for command, expected in ((listing, "recall"), (run + TINY, "Final")):
        done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
    assert [place.name.split("-")[2] for place in (folder / "runs").iterdir()] == ["recall"]


def test_the_printed_alignment_strategy_passes_its_check(blocks) -> None:
    source = next(block for block in blocks if "cla-slow" in block)
    exec(compile(source, str(PAGE), "exec"), {})
    check_strategy("cla-slow")
