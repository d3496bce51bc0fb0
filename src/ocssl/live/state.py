"""A learner's folder: its last saved state, the ledger of its images, and the encoder for others to load.

=================  ===============================================================================
``checkpoints/``   the learner and its place in every source, complete or absent
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

from ocssl.common.files import writing
from ocssl.errors import CheckpointError, ConfigError
from ocssl.export.encoder import publish
from ocssl.learner import Learner
from ocssl.live.ledger import Ledger
from ocssl.runs.folder import RunFolder


@dataclass
class Place:
    """Where a learner is in its sources.

    Attributes:
        noted: lines of the ledger.
        positions: images handed out, by source.
        identities: what sources with a fixed order looked like.
    """

    noted: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)


class StateFolder:
    """Opens, saves and guards the folder."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.encoder = self.path / "encoder"
        self._ledger = self.path / "ledger.sqlite"
        self._folder = RunFolder(path)

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Make the folder if need be, and keep every other learner out of it.

        What others put into a learner's folder stays there; a folder of theirs does not become a learner's. One that
        was made here for a learner that never began, because there was no image for instance, is taken away again.
        """
        made = not self.path.exists()
        if self._folder.config.exists():
            raise ConfigError(f"'{self.path}' holds a run of an experiment; choose another --state")
        if self.path.exists() and not (self.path.is_dir() and (self._folder.list_checkpoints() or self._free())):
            raise ConfigError(f"'{self.path}' exists and is not the state of a learner; choose another --state")
        with writing(self.path):
            self._folder.checkpoints.mkdir(parents=True, exist_ok=True)
        with self._folder.lock():
            self._folder.remove_drafts()
            try:
                yield
            finally:
                if made and not self._folder.list_checkpoints() and self._free():
                    shutil.rmtree(self.path, ignore_errors=True)

    def restore(self, *, backbone: nn.Module | None = None, **overrides: Any) -> tuple[Learner, Place] | None:
        """The learner that was saved here last, and its place; None when there is none.

        Args:
            backbone: of the user's own, if it was built on one.
            overrides: settings that may differ now.
        """
        saved = self._folder.list_checkpoints()
        if not saved:
            self._folder.cut_metrics(0)
            return None
        state = self._folder.read_state(saved[-1])
        try:
            place, metrics = Place(**state["place"]), int(state["metrics_bytes"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"'{saved[-1]}' is not the state of a learner: {error!r}") from error
        if self._metrics_bytes() > metrics:  # fewer: somebody took the file away, and nothing depends on it
            self._folder.cut_metrics(metrics)
        return Learner.load(saved[-1] / "learner", backbone=backbone, **overrides), place

    def ledger(self, place: Place) -> Ledger:
        """The ledger, as it was at that place; refused when it is lost, and every image would be learned from again."""
        if place.noted and not (self._ledger.is_file() and self._ledger.stat().st_size):
            raise CheckpointError(
                f"'{self._ledger}' is gone, and with it the names of the {place.noted:,} images that were done with; "
                "put it back or choose another --state"
            )
        return Ledger(self._ledger, place.noted)

    def save(self, learner: Learner, place: Place, ledger: Ledger) -> None:
        """Save everything, then publish the encoder: whoever loads it has one that will never be taken back."""
        ledger.commit()
        place.noted = ledger.count
        self._folder.save(learner, {"place": asdict(place)}, keep=1)
        publish(learner, self.encoder, sources={_short(key): count for key, count in place.positions.items()})

    def _free(self) -> bool:
        """Whether the folder holds nothing but what a learner leaves before its first save, and hidden files."""
        ours = {"checkpoints", "ledger.sqlite", "ledger.sqlite-journal", "encoder", "metrics.jsonl"}
        return all(place.name in ours or place.name.startswith(".") for place in self.path.iterdir())

    def _metrics_bytes(self) -> int:
        try:
            return self._folder.metrics.stat().st_size
        except FileNotFoundError:
            return 0

    def note(self, numbers: dict[str, Any]) -> None:
        """Add a line of metrics; where a full disk takes only a part of it, none of it stays."""
        size = self._metrics_bytes()
        try:
            self._folder.append(numbers)
        except CheckpointError:
            with contextlib.suppress(CheckpointError):
                self._folder.cut_metrics(size)
            raise


def _short(source: str) -> str:
    """A source without the path to it, which is nobody else's business."""
    kind, colon, place = source.partition(":")
    return f"{kind}{colon}{place if kind == 'hf' else Path(place).name}"
