"""What a learner's last step tells of its health, without labels."""

from __future__ import annotations

from ocssl.evaluation import collapsed, effective_rank, feature_std
from ocssl.learner import Learner
from ocssl.strategies import Aligned


def diagnose(learner: Learner) -> dict[str, float]:
    """Spread and effective rank of the last batch's backbone features, and how well aligned features agree.

    Reads values back from the device, which waits for it: once in a while, not at every step.
    """
    outcome = learner.outcome
    if outcome is None:
        return {}
    features = outcome.features.backbone[0].float().cpu()
    signs = {"feature_std": feature_std(features), "effective_rank": effective_rank(features)}
    strategy = learner.machine.strategy
    if isinstance(strategy, Aligned) and strategy.distance == "cosine" and "alignment" in outcome.losses:
        weight = strategy.omega
        if weight > 0:  # the loss is the negative similarity times ω
            signs["alignment"] = -float(outcome.losses["alignment"]) / weight
    return signs


def collapse(signs: dict[str, float]) -> str | None:
    """Why these signs mean collapse, as a sentence; None when they do not."""
    return collapsed(std=signs["feature_std"], rank=signs["effective_rank"]) if signs else None
