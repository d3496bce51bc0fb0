"""The folder of a live learner.

=================  ===============================================================================
``checkpoints/``   the learner, its gate and its position in every source, complete or absent
``ledger.sqlite``  the names of the images that were learned from or refused
``encoder/``       the encoder that the gate chose, replaced in one step
``metrics.jsonl``  one line per report
=================  ===============================================================================
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from torch import nn

from ocssl.checkpoint import check_place, remove_leftovers
from ocssl.common.checkpoints import CheckpointFolder, MetricsFile
from ocssl.common.files import locked, not_a_path, regular
from ocssl.data.layout import as_path
from ocssl.errors import CheckpointError, ConfigError, OcsslError, first_misfit
from ocssl.export.encoder import KIND, FrozenEncoder, is_published, publish
from ocssl.learner import Learner
from ocssl.live.gate import Gate
from ocssl.live.seen import SeenIndex, count_images

INDEX_FILES = ("ledger.sqlite", "ledger.sqlite-journal")
SQLITE = b"SQLite format 3\0"
FULL = ("no space left", "disk is full", "quota exceeded")  # what the system, libraries and SQLite say, in lower case
Position = Annotated[int, Field(strict=True, ge=0, lt=2**63)]


@dataclass
class Cursor:
    """A learner's position in its sources.

    Attributes:
        noted: entries of the index of seen images.
        positions: images used or refused, by source.
        identities: of sources with a fixed order, as their readers give them.
    """

    noted: Position
    positions: dict[str, Position]
    identities: dict[str, str]


@dataclass
class SavedState:
    """What a checkpoint holds besides the learner and its gate."""

    place: Cursor
    metrics_bytes: Position


class StateFolder:
    """Locks, saves and restores a learner, its cursor and its index of seen images."""

    def __init__(self, path: str | Path) -> None:
        self.path = as_path(os.fspath(path))
        self.metrics = MetricsFile(self.path / "metrics.jsonl")
        self._checkpoints = CheckpointFolder(self.path / "checkpoints")
        self._index = self.path / "ledger.sqlite"
        self._published: FrozenEncoder | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Make the folder if needed and lock it against other learners.

        Foreign files in a learner's folder stay; a folder with foreign files does not become a learner's. A folder that
        was made here and holds no checkpoint in the end, e.g. because there was no image, is removed.
        """
        try:
            is_new = not self.path.exists()
            if not (is_new or self._is_state()):
                raise ConfigError(f"'{self.path}' exists and is not the state of a learner; choose another --state")
            check_place(self.path / "encoder", "encoder", "move it away, and the same command writes it again")
            if (self._index.exists() or self._index.is_symlink()) and not self._index.is_file():
                raise ConfigError(f"'{self._index}' is not a regular file; move it away")
            # Otherwise the last save would be the first to fail.
            for folder in (self.path, self._checkpoints.path, self.path / "encoder"):
                if folder.exists() and not os.access(folder, os.W_OK):
                    raise ConfigError(f"'{folder}' cannot be written; make it writable, or choose another --state")
        except OcsslError:
            raise
        except (OSError, ValueError) as error:
            raise ConfigError(not_a_path(self.path, error)) from error
        with locked(self.path):
            self._checkpoints.remove_drafts()
            try:
                yield
            finally:
                if is_new and self._checkpoints.last is None and self._is_state():
                    self._remove()

    def restore(self, *, backbone: nn.Module | None = None, **overrides: Any) -> tuple[Learner, Cursor] | None:
        """The learner of the last checkpoint, loaded in this way, and its cursor; None where there is no checkpoint."""
        saved = self._checkpoints.last
        if saved is None:
            self.metrics.truncate(0)
            return None
        try:
            state = TypeAdapter(SavedState).validate_python(self._checkpoints.read_state(saved))
        except ValidationError as error:
            raise CheckpointError(f"'{saved}' is not the state of a learner: {first_misfit(error)}") from error
        self.metrics.truncate(state.metrics_bytes)
        return Learner.load(saved / "learner", backbone=backbone, **overrides), state.place

    def index(self, cursor: Cursor, learned: int) -> SeenIndex:
        """The index of seen images as of a cursor; what it does not name would be learned from again.

        Args:
            learned: images that the learner has learned from, those that wait included.
        """
        if cursor.noted:
            wanted = "put back the one of the last save or choose another --state"
            if not (self._index.is_file() and self._index.stat().st_size):
                lost = f"and with it the names of {cursor.noted:,} images that were seen"
                raise CheckpointError(f"'{self._index}' is missing, {lost}; {wanted}")
            if (known := sum(self._learned_from(cursor).values())) < learned:
                raise CheckpointError(
                    f"'{self._index}' knows {known:,} of {learned:,} images that were learned from; {wanted}"
                )
        return SeenIndex(self._index, cursor.noted)

    def _learned_from(self, cursor: Cursor) -> dict[str, int]:
        """Images that were learned from, by source."""
        positions = cursor.positions.items()
        return {key: count_images(self._index, cursor.noted, key, taken)[0] for key, taken in positions}

    def restore_gate(self, gate: Gate, learner: Learner) -> None:
        """Let a gate go on as the saved one; a state of an earlier version has none, and its gate begins now."""
        saved = self._checkpoints.last
        if saved is not None and (saved / "gate").exists():
            gate.restore(saved / "gate", learner)

    def save(self, learner: Learner, cursor: Cursor, index: SeenIndex, gate: Gate) -> None:
        """Save everything, then publish the encoder, so that a restart never falls behind a published encoder."""
        try:
            self._save(learner, cursor, index, gate)
        except CheckpointError as error:
            if any(full in str(error).lower() for full in FULL):
                known = self._last_size()
                needed = f"{'about' if known else 'at least'} {math.ceil((known or _size(learner)) / 1e6):,} MB"
                raise CheckpointError(f"{error}; {needed} are needed") from error
            raise

    def _last_size(self) -> int:
        """Bytes of the last checkpoint and of the published encoder, which stay until the next ones are complete."""
        places = (*self._checkpoints.complete()[-1:], self.path / "encoder")
        return sum(path.stat().st_size for place in places for path in place.rglob("*") if path.is_file())

    def _save(self, learner: Learner, cursor: Cursor, index: SeenIndex, gate: Gate) -> None:
        index.commit()
        cursor.noted = index.size
        state = asdict(SavedState(cursor, self.metrics.sync()))

        def write(draft: Path) -> None:
            learner.save(draft / "learner")
            gate.save(draft / "gate")

        self._checkpoints.save(write, state, keep=1)
        if gate.active and self._published is None and is_published(gate.published, self.path / "encoder"):
            self._published = gate.published  # by an earlier process, which may have been killed in its last step
            remove_leftovers(self.path / "encoder", KIND)
        if gate.active and self._published is gate.published:
            return
        sources: Counter[str] = Counter()
        for key, learned in self._learned_from(cursor).items():
            sources[_public_name(key)] += learned  # folders of one name count together
        publish(gate.published if gate.active else learner, self.path / "encoder", sources=sources)
        self._published = gate.published

    def _is_state(self) -> bool:
        """Whether the folder has checkpoints of ours and is no run, or holds what a learner has before its first one.

        Hidden files, such as those of git, stay what they are; a lock with content is not ours.
        """
        if not self.path.is_dir() or (self.path / "config.yaml").exists() or self._checkpoints.foreign():
            return False
        if self._checkpoints.last is not None:
            return True
        lock = self.path / ".lock"
        if lock.exists() and lock.stat().st_size:
            return False
        names = {path.name for path in self.path.iterdir() if not path.name.startswith(".")}
        return names <= {"checkpoints", *INDEX_FILES} and self._is_index()

    def _is_index(self) -> bool:
        """Whether the index of seen images, if there is one, is ours."""
        if not self._index.is_file():
            return not self._index.exists()
        with regular(self._index) as handle:
            head = os.read(handle, 4096)
        return not head or (head.startswith(SQLITE) and b"CREATE TABLE arrivals" in head)

    def _remove(self) -> None:
        """Remove the files of a learner that never began, and the folder if nothing else is in it."""
        self._checkpoints.remove_drafts()
        for name in (".lock", *INDEX_FILES):
            (self.path / name).unlink(missing_ok=True)
        for folder in (self._checkpoints.path, self.path):
            with contextlib.suppress(OSError):
                folder.rmdir()


def _size(learner: Learner) -> int:
    """The least bytes of a first save: the learner, and its network for the gate and as published encoder."""
    states = (learner.train_state, *2 * (learner.network,))
    return sum(tensor.nbytes for state in states for tensor in state.state_dict().values())


def _public_name(source: str) -> str:
    """A source as others may see it: its kind and the last part of its path."""
    kind, colon, place = source.partition(":")
    return f"{kind}{colon}{place if kind == 'hf' else Path(place).name}"
