"""Numbered checkpoints and a metrics file that stay whole through a kill at any moment and a full disk."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ocssl.common.files import atomic_write, sync, writing
from ocssl.errors import CheckpointError


class CheckpointFolder:
    """A folder of numbered checkpoints, each complete or absent: one is written as a draft and renamed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoints = CheckpointFolder(folder)
    ...     for step in (10, 20):
    ...         saved = checkpoints.save(lambda draft: (draft / "weights").touch(), {"step": step}, keep=1)
    ...     [path.name for path in checkpoints.complete()], checkpoints.read_state(saved)
    (['000002'], {'step': 20})
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def complete(self) -> list[Path]:
        """The checkpoints, oldest first."""
        numbered = (path for path in self.path.glob("[0-9]*") if path.name.isdecimal() and path.is_dir())
        return sorted(numbered, key=lambda path: int(path.name))

    def save(self, write: Callable[[Path], object], state: Mapping[str, Any], keep: int) -> Path:
        """Add a checkpoint and remove all but the newest ``keep``.

        Args:
            write: writes everything else into the folder that it is given.
            state: written as ``state.json``.
        """
        done = self.complete()
        place = self.path / f"{int(done[-1].name) + 1 if done else 1:06d}"
        draft = self.path / f"draft-{uuid.uuid4().hex[:12]}"
        try:
            with writing(place):
                draft.mkdir(parents=True)
                write(draft)
                atomic_write(draft / "state.json", json.dumps(state, indent=1))
                draft.rename(place)
                sync(self.path)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        for old in self.complete()[:-keep]:
            # Renamed first: a numbered folder must be complete, even if the deletion is interrupted.
            with contextlib.suppress(OSError):
                shutil.rmtree(old.rename(self.path / f"draft-{old.name}"), ignore_errors=True)
        return place

    def read_state(self, checkpoint: Path) -> dict[str, Any]:
        """The state that was saved with a checkpoint."""
        try:
            state = json.loads((checkpoint / "state.json").read_text())
            if not isinstance(state, dict):
                raise ValueError("its state.json holds no settings by name")
            return state
        except (OSError, ValueError) as error:
            raise CheckpointError(f"'{checkpoint}' cannot be read as a checkpoint: {error}") from error

    def remove_drafts(self) -> None:
        """Remove what a killed process left incomplete."""
        for draft in self.path.glob("draft-*"):
            shutil.rmtree(draft, ignore_errors=True)


class MetricsFile:
    """A file with one JSON object per line."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def size(self) -> int:
        """Bytes; 0 where there is no file."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line; where a full disk takes only a part of it, nothing of it stays."""
        size = self.size
        try:
            with writing(self.path), self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")
        except CheckpointError:
            with contextlib.suppress(CheckpointError):
                self.truncate(size)
            raise

    def truncate(self, size: int) -> None:
        """Remove what was written after the first ``size`` bytes, e.g. after the last checkpoint."""
        if self.size > size:
            with writing(self.path):
                os.truncate(self.path, size)

    def sync(self) -> int:
        """Wait until the file is on disk, which may find that the disk is full; its size."""
        if size := self.size:
            with writing(self.path):
                sync(self.path)
        return size
