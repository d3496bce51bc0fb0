"""Diagnostics of a learner's last step that need no labels."""

from __future__ import annotations

from ocssl.evaluation import diagnose_features
from ocssl.learner import Learner
from ocssl.strategies import Aligned


def diagnose(learner: Learner) -> dict[str, float]:
    """Diagnostics of the last batch: ``feature_std``, ``effective_rank`` and, for aligning strategies, ``alignment``.

    Spread and rank are those of the backbone features of the first view; they are left out for very few rows. The
    values are read back from the device, which waits for it: call this now and then, not at every step.
    """
    output = learner.output
    if output is None:
        return {}
    found = diagnose_features(output.features.backbone[0])
    strategy = learner.train_state.strategy
    if isinstance(strategy, Aligned) and strategy.cosine and "alignment" in output.losses and strategy.omega > 0:
        found["alignment"] = -float(output.losses["alignment"]) / strategy.omega  # the loss is ω times −cosine
    return found
