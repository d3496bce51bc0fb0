"""Diagnostics of a learner's last step that need no labels."""

from __future__ import annotations

from collections.abc import Mapping

from ocssl.evaluation import collapsed, diagnose_features
from ocssl.learner import Learner
from ocssl.strategies import Aligned


def diagnose(learner: Learner) -> dict[str, float]:
    """Diagnostics of the last batch: ``feature_std``, ``effective_rank`` and, for aligning strategies, ``alignment``.

    Spread and rank are those of the backbone features, see :func:`ocssl.evaluation.diagnose_features`. The values are
    read back from the device, which waits for it: call this now and then, not at every step.
    """
    output = learner.output
    if output is None:
        return {}
    found = diagnose_features(output.features.backbone[0])
    strategy = learner.train_state.strategy
    if isinstance(strategy, Aligned) and strategy.cosine and strategy.omega > 0 and "alignment" in output.losses:
        found["alignment"] = -float(output.losses["alignment"]) / strategy.omega  # the loss is −ω times the similarity
    return found


def collapse(found: Mapping[str, float]) -> str | None:
    """A sentence on the collapse that these diagnostics show; None where they show none or are too few."""
    return collapsed(found.get("feature_std"), found.get("effective_rank"))
