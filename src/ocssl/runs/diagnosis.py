"""What a learner's last step tells of its health, without labels."""

from __future__ import annotations

from ocssl.evaluation import collapsed, diagnose_features
from ocssl.learner import Learner
from ocssl.strategies import Aligned


def diagnose(learner: Learner) -> dict[str, float]:
    """Spread and effective rank of the last batch's backbone features, and how well aligned features agree.

    Spread and rank are left out where the batch is too small to tell. Reads values back from the device, which waits
    for it: once in a while, not at every step.
    """
    outcome = learner.output
    if outcome is None:
        return {}
    signs = diagnose_features(outcome.features.backbone[0])
    strategy = learner.train_state.strategy
    if isinstance(strategy, Aligned) and strategy.distance == "cosine" and "alignment" in outcome.losses:
        weight = strategy.omega
        if weight > 0:  # the loss is the negative similarity times ω
            signs["alignment"] = -float(outcome.losses["alignment"]) / weight
    return signs


def collapse(signs: dict[str, float]) -> str | None:
    """Why these signs mean collapse, as a sentence; None when they do not, or do not say."""
    return collapsed(signs.get("feature_std"), signs.get("effective_rank"))
