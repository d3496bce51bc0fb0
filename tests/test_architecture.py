"""The rooms of docs/architecture.md, held by import contracts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_rooms_import_only_what_they_may() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_room_is_on_the_map() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rooms = {path.stem for path in (ROOT / "src" / "ocssl").iterdir() if path.suffix == ".py" or path.is_dir()}
    rooms -= {"__init__", "__main__", "__pycache__", "py"}
    assert {room for room in rooms if f"`{room}" not in page} == set()
