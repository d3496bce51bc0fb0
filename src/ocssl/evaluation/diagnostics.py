"""Label-free diagnostics of features: spread, effective rank, alignment, collapse.

A self-supervised encoder fails by *collapse*: it maps every image to one point, or onto one line. The loss may still be
low then; these numbers show the collapse.
"""

from __future__ import annotations

import math
import threading

import torch

from ocssl.device import threads
from ocssl.errors import InputError
from ocssl.evaluation._inputs import FeatureMatrix, as_features, normalised

LOWEST_STD = 0.05
"""Below this :func:`feature_std`, the samples of a batch are one point for every practical purpose."""

LOWEST_RANK = 1.5
"""Below this :func:`effective_rank`, the samples of a batch lie on one line."""

MIN_ROWS = 8
"""Fewer features than these have no meaningful spread: the last minibatch of a stream may have one or two."""

_one_at_a_time = threading.Lock()  # the number of threads is a setting of the whole program


def feature_std(features: FeatureMatrix) -> float:
    """Spread of L2-normalised features ``(N, D)``: standard deviation per dimension, averaged, times √D.

    1 for features spread evenly over the sphere, 0 when all are the same.

    >>> feature_std(torch.ones(8, 4))
    0.0
    >>> round(feature_std(torch.cat([torch.eye(4), -torch.eye(4)])), 2)
    1.0
    """
    rows = normalised(as_features(features, "features"))
    return float(rows.std(dim=0, correction=0).mean()) * math.sqrt(rows.shape[1])


def effective_rank(features: FeatureMatrix) -> float:
    """Over how many directions features ``(N, D)`` spread: exp of the entropy of their normalised singular values.

    Features are centred first, so that a common offset is no direction. 1 for points on a line, D for a round cloud,
    0 when all points are the same.

    >>> round(effective_rank(torch.cat([torch.eye(4), -torch.eye(4)])), 3)
    4.0
    >>> effective_rank(torch.ones(8, 4))
    0.0
    """
    rows = as_features(features, "features").double()
    rows = rows - rows.mean(dim=0)
    # The smaller Gram matrix has the same singular values, squared; double precision keeps the small ones honest.
    gram = rows @ rows.T if len(rows) < rows.shape[1] else rows.T @ rows
    singular = torch.linalg.eigvalsh(gram).clamp(min=0).sqrt()
    total = singular.sum()
    if float(total) == 0:
        return 0.0
    return float(torch.special.entr(singular / total).sum().exp())


def alignment(features: FeatureMatrix, targets: FeatureMatrix) -> float:
    """Mean cosine similarity between features ``(N, D)`` and the targets they are aligned to, row by row.

    >>> alignment(torch.eye(2), torch.tensor([[2.0, 0.0], [3.0, 0.0]]))
    0.5
    """
    rows, aims = as_features(features, "features"), as_features(targets, "targets")
    if rows.shape != aims.shape:
        raise InputError(f"targets must have the features' shape {tuple(rows.shape)}, not {tuple(aims.shape)}")
    return float((normalised(rows) * normalised(aims.to(rows.device))).sum(1).mean())


def diagnose_features(features: FeatureMatrix) -> dict[str, float]:
    """``feature_std`` and ``effective_rank`` of features ``(N, D)`` by name; empty for fewer than 8 rows.

    Reads the values back from the device and waits for it: call it once in a while, not at every step.

    >>> diagnose_features(torch.ones(8, 4))
    {'feature_std': 0.0, 'effective_rank': 0.0}
    >>> diagnose_features(torch.ones(7, 4))
    {}
    """
    if len(features) < MIN_ROWS:
        return {}
    rows = as_features(features, "features").float().cpu()
    # Such small work takes several times longer when it is spread over cores.
    with _one_at_a_time, threads(1):
        return {"feature_std": feature_std(rows), "effective_rank": effective_rank(rows)}


def collapsed(std: float | None, rank: float | None) -> str | None:
    """A sentence on the collapse that this spread and effective rank show; None where they show none or are unknown.

    >>> collapsed(std=0.9, rank=60.0)
    >>> collapsed(std=0.001, rank=3.0)
    'the features have collapsed to a point: their standard deviation is 0.001 of a healthy 1'
    """
    if std is None or rank is None:
        return None
    if math.isnan(std) or math.isnan(rank):
        return "the features are not numbers: training has diverged"
    if std < LOWEST_STD:
        return f"the features have collapsed to a point: their standard deviation is {std:.3f} of a healthy 1"
    if rank < LOWEST_RANK:
        return f"the features have collapsed to a line: their effective rank is {rank:.2f}"
    return None
