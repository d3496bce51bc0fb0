"""The documentation site builds without a warning, with every link and every reference resolved."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_has_every_command(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    commands = (tmp_path / "commands" / "index.html").read_text()
    for name in ("run", "learn", "embed", "export", "probe", "data prepare"):
        assert f"ocssl {name}" in commands
    assert "--omega" in commands
    assert "partial_fit" in (tmp_path / "api" / "learner" / "index.html").read_text()
    assert "Start in five minutes" in (tmp_path / "index.html").read_text()
    assert "memory_size" in (tmp_path / "settings" / "index.html").read_text()
    for page in (tmp_path / "api").rglob("*.html"):
        assert not re.search(r":(class|func|meth|mod|attr):", page.read_text()), page


def test_links_of_the_files_outside_the_site_lead_somewhere() -> None:
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        links = re.findall(r"\]\(([^)#]+)", (ROOT / name).read_text())
        assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_the_makefile_does_not_silence_warnings() -> None:
    """With --quiet, mkdocs neither prints nor counts them."""
    (recipe,) = (line for line in (ROOT / "Makefile").read_text().splitlines() if "mkdocs build" in line)
    assert "--strict" in recipe
    assert "--quiet" not in recipe
