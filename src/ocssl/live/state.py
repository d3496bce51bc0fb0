"""The folder of a live learner.

=================  ===============================================================================
``checkpoints/``   the learner and its position in every source, complete or absent
``ledger.sqlite``  the names of the images that were learned from or refused
``encoder/``       the encoder at the last save, replaced in one step
``metrics.jsonl``  one line per report
=================  ===============================================================================
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from ocssl.common.checkpoints import CheckpointFolder, MetricsFile
from ocssl.common.files import locked
from ocssl.errors import CheckpointError, ConfigError
from ocssl.export.encoder import publish
from ocssl.learner import Learner
from ocssl.live.seen import SeenIndex

FILES = {"checkpoints", "ledger.sqlite", "ledger.sqlite-journal", "encoder", "metrics.jsonl"}


@dataclass
class Cursor:
    """A learner's position in its sources.

    Attributes:
        noted: entries of the index of seen images.
        positions: images taken, by source.
        identities: of sources with a fixed order, as their readers give them.
    """

    noted: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)


class StateFolder:
    """Locks, saves and restores a learner, its cursor and its index of seen images."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.metrics = MetricsFile(self.path / "metrics.jsonl")
        self._checkpoints = CheckpointFolder(self.path / "checkpoints")
        self._index = self.path / "ledger.sqlite"

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Make the folder if needed and lock it against other learners.

        Foreign files in a learner's folder stay; a folder with foreign files does not become a learner's. A folder that
        was made here and holds no checkpoint in the end, e.g. because there was no image, is removed.
        """
        is_new = not self.path.exists()
        if not (is_new or self._is_state()):
            raise ConfigError(f"'{self.path}' exists and is not the state of a learner; choose another --state")
        with locked(self.path):
            self._checkpoints.remove_drafts()
            try:
                yield
            finally:
                if is_new and not self._checkpoints.complete() and self._is_state():
                    shutil.rmtree(self.path, ignore_errors=True)

    def restore(self, *, backbone: nn.Module | None = None, **overrides: Any) -> tuple[Learner, Cursor] | None:
        """The learner of the last checkpoint and its cursor; None where there is no checkpoint.

        Args:
            backbone: the module that the learner was built on, if it was the user's own.
            overrides: settings that may differ now.
        """
        saved = self._checkpoints.complete()
        if not saved:
            self.metrics.truncate(0)
            return None
        state = self._checkpoints.read_state(saved[-1])
        try:
            cursor, size = Cursor(**state["place"]), int(state["metrics_bytes"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"'{saved[-1]}' is not the state of a learner: {error!r}") from error
        self.metrics.truncate(size)
        return Learner.load(saved[-1] / "learner", backbone=backbone, **overrides), cursor

    def index(self, cursor: Cursor) -> SeenIndex:
        """The index of seen images as of a cursor; without its file every image would be learned from again."""
        if cursor.noted and not (self._index.is_file() and self._index.stat().st_size):
            raise CheckpointError(
                f"'{self._index}' is missing, and with it the names of {cursor.noted:,} images that were seen; "
                "put it back or choose another --state"
            )
        return SeenIndex(self._index, cursor.noted)

    def save(self, learner: Learner, cursor: Cursor, index: SeenIndex) -> None:
        """Save everything, then publish the encoder, so that a restart never falls behind a published encoder."""
        index.commit()
        cursor.noted = index.size
        state = {"place": asdict(cursor), "metrics_bytes": self.metrics.sync()}
        self._checkpoints.save(lambda draft: learner.save(draft / "learner"), state, keep=1)
        sources = {_without_folders(key): count for key, count in cursor.positions.items()}
        publish(learner, self.path / "encoder", sources=sources)

    def _is_state(self) -> bool:
        """Whether the folder has checkpoints and is no run, or holds nothing but files of a learner and hidden ones."""
        if not self.path.is_dir() or (self.path / "config.yaml").exists():
            return False
        names = {path.name for path in self.path.iterdir() if not path.name.startswith(".")}
        return bool(self._checkpoints.complete()) or names <= FILES


def _without_folders(source: str) -> str:
    """A source as others may see it: its kind and the last part of its path."""
    kind, colon, place = source.partition(":")
    return f"{kind}{colon}{place if kind == 'hf' else Path(place).name}"
