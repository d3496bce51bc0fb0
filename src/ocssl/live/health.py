"""What a learner's owner wants to know while it runs: speed, cost, and whether the features live."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from ocssl.common.console import duration as clock
from ocssl.common.console import short_count as short
from ocssl.diagnosis import diagnose
from ocssl.evaluation import alignment
from ocssl.learner import Learner

WATCHED = 64  # images whose features are compared over time
HOUR = 3600.0


@dataclass(frozen=True)
class Health:
    """One look at a learner.

    Attributes:
        seen: images learned from, in all.
        rate: images per second since the look before.
        cbp: spent, in all.
        rank: effective rank of the last batch's features; None before the first, or where it is too small to tell.
        drift: 1 − cosine between the features of some images now and ``drift_seconds`` ago, at most an hour; None
            before there are any.
        refused: images that could not be used since the start.
    """

    seen: int
    rate: float
    cbp: int
    rank: float | None
    drift: float | None
    drift_seconds: float
    refused: int

    def __str__(self) -> str:
        parts = [f"{self.seen:,} images", f"{self.rate:.1f} img/s", f"CBP {short(self.cbp)}"]
        parts += [f"rank {self.rank:.1f}"] if self.rank is not None else []
        parts += [f"drift {self.drift:.3f} in {clock(self.drift_seconds)}"] if self.drift is not None else []
        parts += [f"{self.refused:,} refused"] if self.refused else []
        return "  ".join(parts)


class Watch:
    """Looks at a learner now and then; the features it compares are of the newest images an hour ago."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._seen, self._looked = learner.seen, time.monotonic()
        size = learner.image_size
        self._images = torch.empty(0, 3, size, size, dtype=torch.uint8)
        self._before: Tensor | None = None
        self._since = 0.0

    def arrived(self, images: Tensor) -> None:
        """Some images were learned from: ``(n, 3, s, s)`` uint8."""
        if self._before is not None and time.monotonic() - self._since > HOUR:
            self._images, self._before = images[:0], None
        if self._before is None:
            self._images = torch.cat([self._images, images])[-WATCHED:]
            if len(self._images) == WATCHED:
                self._before, self._since = self._learner.encode(self._images).cpu(), time.monotonic()

    def look(self, refused: int) -> Health:
        """How things are."""
        learner, now = self._learner, time.monotonic()
        drift = None
        if self._before is not None:
            drift = 1 - alignment(learner.encode(self._images).cpu(), self._before)
        rate = (learner.seen - self._seen) / max(now - self._looked, 1e-9)
        self._seen, self._looked = learner.seen, now
        rank = diagnose(learner).get("effective_rank")
        return Health(learner.seen, rate, learner.budget.spent, rank, drift, now - self._since, refused)
