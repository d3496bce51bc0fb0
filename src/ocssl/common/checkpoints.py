"""Numbered checkpoints and a metrics file that stay whole through a kill at any moment and a full disk."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ocssl.common.files import TOKEN, append, atomic_write, read_file, seal, sync, token, unseal, writing
from ocssl.errors import CheckpointError

MAX_METRICS_BYTES = 2**30  # of a file of metrics


class CheckpointFolder:
    """A folder of numbered checkpoints, each complete or absent: one is written as a draft and renamed.

    Only checkpoints with a ``state.json`` and drafts with a name of ours are ever removed, and no link is followed.

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
        try:
            entries = [*self.path.iterdir()] if self.path.is_dir() else []
        except PermissionError as error:  # they are there, and nothing may begin anew
            raise CheckpointError(f"the checkpoints in '{self.path}' cannot be read: {error.strerror}") from error
        numbered = (path for path in entries if path.name.isdecimal() and path.is_dir())
        return sorted(numbered, key=lambda path: int(path.name))

    @property
    def last(self) -> Path | None:
        """The newest checkpoint; None where there is none."""
        return next(reversed(self.complete()), None)

    def foreign(self) -> list[Path]:
        """Entries that are neither checkpoints nor drafts of ours; the folder itself if it is a link or a file."""
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_dir()):
            return [self.path]
        entries = self.path.iterdir() if self.path.exists() else ()
        return [entry for entry in entries if not (_is_ours(entry) or _is_draft(entry))]

    def save(self, write: Callable[[Path], object], state: Mapping[str, Any], keep: int) -> Path:
        """Add a checkpoint and remove all but the newest ``keep``.

        Args:
            write: writes everything else into the folder that it is given.
            state: written as ``state.json``, with a checksum.
        """
        last = self.last
        place = self.path / f"{int(last.name) + 1 if last else 1:06d}"
        draft = self.path / f"draft-{token()}"
        try:
            with writing(place):
                draft.mkdir(parents=True)
                write(draft)
                atomic_write(draft / "state.json", json.dumps(seal(state), indent=1))
                draft.rename(place)
                sync(self.path)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        for old in filter(_is_ours, self.complete()[:-keep]):
            # Renamed first: a numbered folder must be complete, even if the deletion is interrupted.
            with contextlib.suppress(OSError):
                shutil.rmtree(old.rename(self.path / f"draft-{token()}"), ignore_errors=True)
        return place

    def read_state(self, checkpoint: Path) -> dict[str, Any]:
        """The state that was saved with a checkpoint."""
        try:
            state = json.loads(read_file(checkpoint / "state.json"))
            if not isinstance(state, dict):
                raise ValueError("its state.json holds no settings by name")
            return unseal(state)
        except (OSError, ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else error
            raise CheckpointError(f"'{checkpoint}' cannot be read as a checkpoint: {reason}") from error

    def remove_drafts(self) -> None:
        """Remove what a killed process left incomplete."""
        for draft in [] if self.path.is_symlink() else filter(_is_draft, self.path.glob("draft-*")):
            shutil.rmtree(draft, ignore_errors=True)


def _is_ours(entry: Path) -> bool:
    """Whether an entry of the folder is a checkpoint that was saved here."""
    return entry.name.isdecimal() and not entry.is_symlink() and (entry / "state.json").is_file()


def _is_draft(entry: Path) -> bool:
    return bool(re.fullmatch(f"draft-{TOKEN}", entry.name)) and entry.is_dir() and not entry.is_symlink()


class MetricsFile:
    """A file with one JSON object per line."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def size(self) -> int:
        """Bytes; 0 where there is no file. What is not a regular file, or a link to one, is refused."""
        try:
            facts = self.path.lstat()
        except FileNotFoundError:
            return 0
        if not stat.S_ISREG(facts.st_mode):
            raise CheckpointError(f"'{self.path}' is not a regular file; move it away")
        return facts.st_size

    def read(self) -> list[dict[str, Any]]:
        """Every complete line so far; a file that holds anything else is refused."""
        size, lines = self.size, []
        try:
            text = read_file(self.path, MAX_METRICS_BYTES) if size else b""
            for number, line in enumerate(text.splitlines(keepends=True), 1):
                if line.endswith(b"\n"):
                    entry = json.loads(line)
                    if not isinstance(entry, dict):
                        raise ValueError(f"line {number} holds no numbers by name")
                    lines.append(entry)
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"'{self.path}' is not a file of metrics: {error}") from error
        return lines

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line; where a full disk takes only a part of it, nothing of it stays."""
        size = self.size
        try:
            with writing(self.path):
                append(self.path, json.dumps(line) + "\n")
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
