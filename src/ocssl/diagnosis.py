"""Diagnostics of a learner's last step that need no labels."""

from __future__ import annotations

import threading

from ocssl.device import threads
from ocssl.evaluation import collapsed, effective_rank, feature_std
from ocssl.learner import Learner
from ocssl.strategies import Aligned

MIN_ROWS = 8
"""Features needed for a meaningful spread: the last minibatch of a stream may have one or two."""

_lock = threading.Lock()  # the number of threads is a setting of the whole process


def diagnose(learner: Learner) -> dict[str, float]:
    """Diagnostics of the last batch: ``feature_std``, ``effective_rank`` and, for aligning strategies, ``alignment``.

    Spread and rank are those of the backbone features; they are left out below :data:`MIN_ROWS` features. The values
    are read back from the device, which waits for it: call this now and then, not at every step.
    """
    output = learner.output
    if output is None:
        return {}
    found: dict[str, float] = {}
    features = output.features.backbone[0]
    if len(features) >= MIN_ROWS:
        rows = features.float().cpu()
        # One thread: 138 rows took 4.6 ms on one core and 15.9 ms on two (benchmarks/diagnosis.py).
        with _lock, threads(1):
            found |= {"feature_std": feature_std(rows), "effective_rank": effective_rank(rows)}
    strategy = learner.train_state.strategy
    if isinstance(strategy, Aligned) and strategy.cosine and "alignment" in output.losses:
        weight = strategy.omega
        if weight > 0:  # the loss is the negative similarity times ω
            found["alignment"] = -float(output.losses["alignment"]) / weight
    return found


def collapse(found: dict[str, float]) -> str | None:
    """Why these diagnostics mean collapse, as a sentence; None where they do not, or are too few."""
    if "feature_std" not in found:
        return None
    return collapsed(std=found["feature_std"], rank=found["effective_rank"])
