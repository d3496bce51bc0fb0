"""The documentation site builds, with every link and every reference resolved."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_site_builds_strictly_and_tells_every_command(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    commands = (tmp_path / "commands" / "index.html").read_text()
    for name in ("run", "learn", "embed", "export", "probe", "data prepare"):
        assert f"ocssl {name}" in commands
    assert "partial_fit" in (tmp_path / "api" / "learner" / "index.html").read_text()
    assert "Start in five minutes" in (tmp_path / "index.html").read_text()
