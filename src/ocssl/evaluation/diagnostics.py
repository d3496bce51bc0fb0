"""Signs of health that need no labels: are the features spread out, over how many directions, and do they agree.

A self-supervised encoder fails by *collapse*: it maps every image to one point, or onto one line. The loss may look
excellent then; these numbers do not.
"""

from __future__ import annotations

import math

import torch

from ocssl.errors import InputError
from ocssl.evaluation._inputs import Features, as_features, normalised

LOWEST_STD = 0.05
"""Below this :func:`feature_std`, the samples of a batch are one point for every practical purpose."""

LOWEST_RANK = 1.5
"""Below this :func:`effective_rank`, the samples of a batch lie on one line."""


def feature_std(features: Features) -> float:
    """Spread of L2-normalised features ``(N, D)``: standard deviation per dimension, averaged, times √D.

    1 for features spread evenly over the sphere, 0 when all are the same.

    >>> feature_std(torch.ones(8, 4))
    0.0
    >>> round(feature_std(torch.cat([torch.eye(4), -torch.eye(4)])), 2)
    1.0
    """
    rows = normalised(as_features(features, "features").float())
    return float(rows.std(dim=0, correction=0).mean()) * math.sqrt(rows.shape[1])


def effective_rank(features: Features) -> float:
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


def alignment(features: Features, targets: Features) -> float:
    """Mean cosine similarity between features ``(N, D)`` and the targets they are aligned to, row by row.

    >>> alignment(torch.eye(2), torch.tensor([[2.0, 0.0], [3.0, 0.0]]))
    0.5
    """
    rows, aims = as_features(features, "features").float(), as_features(targets, "targets").float()
    if rows.shape != aims.shape:
        raise InputError(f"targets must have the features' shape {tuple(rows.shape)}, not {tuple(aims.shape)}")
    return float(torch.cosine_similarity(rows, aims.to(rows.device)).mean())


def collapsed(std: float, rank: float) -> str | None:
    """Why features with this spread and effective rank count as collapsed, in a sentence; None when they do not.

    >>> collapsed(std=0.9, rank=60.0)
    >>> collapsed(std=0.001, rank=3.0)
    'the features have collapsed to a point: their standard deviation is 0.001 of a healthy 1'
    """
    if math.isnan(std) or math.isnan(rank):
        return "the features are not numbers: training has diverged"
    if std < LOWEST_STD:
        return f"the features have collapsed to a point: their standard deviation is {std:.3f} of a healthy 1"
    if rank < LOWEST_RANK:
        return f"the features have collapsed to a line: their effective rank is {rank:.2f}"
    return None
