"""How learning goes: speed, cost and drift of a live learner, and the lines that say so."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ocssl.common.console import duration, number_of, short_count
from ocssl.diagnosis import diagnose
from ocssl.evaluation import alignment, collapsed
from ocssl.learner import Learner

COMPARED = 64  # images whose features are compared over time
HOUR = 3600.0


class Monitor:
    """Samples a learner's speed, cost and features; drift is that of the newest images of up to an hour ago."""

    def __init__(self, seen: int) -> None:
        self._seen, self._sampled_at = seen, time.monotonic()
        self._images: Tensor | None = None
        self._before: Tensor | None = None
        self._since = 0.0

    def add(self, learner: Learner, images: Tensor) -> None:
        """Images that the learner learns from, ``(n, 3, s, s)`` uint8."""
        if self._before is not None and time.monotonic() - self._since > HOUR:
            self._images = self._before = None
        if self._before is None:
            held = images if self._images is None else torch.cat([self._images, images])
            self._images = held[-COMPARED:]
            if len(self._images) == COMPARED:
                self._before, self._since = learner.encode(self._images).cpu(), time.monotonic()

    def sample(self, learner: Learner, refused: int) -> tuple[dict[str, Any], str | None]:
        """A line of metrics, and why the features count as collapsed, if they do.

        ``rate`` is in images per second since the sample before; ``rank`` is None where the last batch is too small;
        ``drift`` is 1 − cosine between features now and ``drift_seconds`` ago, None before there are any.
        """
        now, found = time.monotonic(), diagnose(learner)
        numbers = {
            "seen": learner.seen,
            "rate": (learner.seen - self._seen) / max(now - self._sampled_at, 1e-9),
            "cbp": learner.budget.spent,
            "rank": found.get("effective_rank"),
            "losses": learner.losses,
            "drift": None,
            "drift_seconds": now - self._since,
            "refused": refused,
        }
        if self._before is not None and self._images is not None:
            numbers["drift"] = 1 - alignment(learner.encode(self._images).cpu(), self._before)
        self._seen, self._sampled_at = learner.seen, now
        return numbers, collapsed(found.get("feature_std"), found.get("effective_rank"))


def resumed_line(taken: int, remaining: int | None) -> str:
    """What a learner says first that goes on with a saved state.

    >>> resumed_line(1200, 300), resumed_line(1200, 0)
    ('going on after 1,200 images; 300 are left', 'there is no new image; 1,200 were learned from before')
    >>> resumed_line(1, 1), resumed_line(1, 0)
    ('going on after 1 image; 1 is left', 'there is no new image; 1 was learned from before')
    """
    if remaining == 0:
        return f"there is no new image; {taken:,} {'was' if taken == 1 else 'were'} learned from before"
    left = "" if remaining is None else f"; {remaining:,} {'is' if remaining == 1 else 'are'} left"
    return f"going on after {number_of(taken, 'image')}{left}"


def progress_line(numbers: Mapping[str, Any], *, rate: bool = True) -> str:
    """A sample of the monitor in one line.

    Args:
        rate: with the images per second since the sample before, which mean nothing when learning is over.

    >>> drift = {"drift": 0.01, "drift_seconds": 90}
    >>> progress_line({"seen": 1200, "rate": 31.7, "cbp": 9600, "refused": 0, **drift})
    '1,200 images  31.7 img/s  CBP 9600  drift 0.010 in 1:30'
    """
    parts = [number_of(numbers["seen"], "image")]
    if rate:
        parts.append(f"{numbers['rate']:.1f} img/s")
    parts.append(f"CBP {short_count(numbers['cbp'])}")
    if numbers["drift"] is not None:
        parts.append(f"drift {numbers['drift']:.3f} in {duration(numbers['drift_seconds'])}")
    if numbers["refused"]:
        parts.append(f"{numbers['refused']:,} refused")
    return "  ".join(parts)
