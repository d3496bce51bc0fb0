"""What a learner's last step tells of its health, without labels."""

from __future__ import annotations

import threading

from ocssl.device import threads
from ocssl.evaluation import collapsed, effective_rank, feature_std
from ocssl.learner import Learner
from ocssl.strategies import Aligned

FEWEST = 8
"""Features that say something of their spread: the last minibatch of a stream may have one or two."""

_one_at_a_time = threading.Lock()  # the number of cores is the whole program's


def diagnose(learner: Learner) -> dict[str, float]:
    """Spread and effective rank of the last batch's backbone features, and how well aligned features agree.

    Spread and rank are left out where the batch is too small to tell. Reads values back from the device, which waits
    for it: once in a while, not at every step.
    """
    outcome = learner.output
    if outcome is None:
        return {}
    signs: dict[str, float] = {}
    features = outcome.features.backbone[0]
    if len(features) >= FEWEST:
        rows = features.float().cpu()
        # Spread over cores, work this small only waits for them: 138 rows took 4.6 ms on one and 15.9 ms on two, with
        # nothing else to do (benchmarks/diagnosis.py).
        with _one_at_a_time, threads(1):
            signs |= {"feature_std": feature_std(rows), "effective_rank": effective_rank(rows)}
    strategy = learner.train_state.strategy
    if isinstance(strategy, Aligned) and strategy.distance == "cosine" and "alignment" in outcome.losses:
        weight = strategy.omega
        if weight > 0:  # the loss is the negative similarity times ω
            signs["alignment"] = -float(outcome.losses["alignment"]) / weight
    return signs


def collapse(signs: dict[str, float]) -> str | None:
    """Why these signs mean collapse, as a sentence; None when they do not, or do not say."""
    if "feature_std" not in signs:
        return None
    return collapsed(std=signs["feature_std"], rank=signs["effective_rank"])
