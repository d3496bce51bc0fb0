"""Learning from images as they come: one pass, bounded memory, restartable at the exact sample.

``sources`` says where images come from, ``arrivals`` hands them out one after another, ``ledger`` remembers which were
handed out, ``pace`` finds settings that this machine can keep up with, and ``learning`` is the loop over all of them.
"""

from __future__ import annotations

from ocssl.live.learning import Intervals, learn

__all__ = ["Intervals", "learn"]
