"""Checks of the features and labels that measures are given."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ocssl.errors import ConfigError, InputError
from ocssl.losses import full

FeatureMatrix = Tensor | NDArray[np.floating]
LabelVector = Tensor | NDArray[np.integer]
MAX_CLASSES = 2**20
"""A probe has weights for every class, so labels that are numbers of something else would take all memory."""


def as_features(values: FeatureMatrix, name: str) -> Tensor:
    """Floating-point features ``(N, D)``, refused when empty, misshapen or not finite.

    >>> as_features(np.zeros((2, 3), dtype=np.float32), "features").shape
    torch.Size([2, 3])
    >>> as_features(torch.zeros(3), "features")
    Traceback (most recent call last):
    ...
    ocssl.errors.InputError: features must be a matrix of one feature vector per row, not of shape (3,)
    """
    features = _as_tensor(values).detach()
    if features.ndim != 2 or 0 in features.shape:
        raise InputError(f"{name} must be a matrix of one feature vector per row, not of shape {tuple(features.shape)}")
    if not features.is_floating_point():
        raise InputError(f"{name} must be floating point, not {features.dtype}; convert them with .float()")
    if not bool(features.isfinite().all()):
        row = int((~features.isfinite()).any(1).nonzero()[0])
        raise InputError(f"{name} hold NaN or infinity, first in row {row}; the encoder has probably diverged")
    return features


def as_labels(values: LabelVector, count: int, name: str) -> Tensor:
    """Class indices ``(count,)`` as int64.

    >>> as_labels(np.array([0, 2], dtype=np.int32), 2, "labels")
    tensor([0, 2])
    """
    labels = _as_tensor(values)
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise InputError(f"{name} must be integer class indices, not {labels.dtype}")
    if labels.shape != (count,):
        raise InputError(f"{name} must be {count} indices, one per feature row, not of shape {tuple(labels.shape)}")
    labels = labels.long()
    if count and int(labels.min()) < 0:
        raise InputError(f"{name} must not be negative; the smallest is {int(labels.min())}")
    return labels


def scaled(features: Tensor, dim: int | None = None) -> Tensor:
    """Features as float32, divided by the power of two below their largest magnitude; zeros stay zeros.

    No bit is lost, and squares of the result neither overflow nor vanish.

    Args:
        dim: along which the largest magnitude is taken; None: that of all.

    >>> scaled(torch.tensor([[3 * 2.0**90, 2.0**90]])).tolist()
    [[1.5, 0.5]]
    """
    features = full(features)
    largest = features.abs().amax(() if dim is None else dim, keepdim=True)
    power = torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent - 1)
    return (features / power).float()


def normalised(features: Tensor) -> Tensor:
    """Rows of length one, float32, whatever their length was; a row of zeros stays zero."""
    return functional.normalize(scaled(features, dim=-1), dim=-1)


def count_classes(given: int | None, *labels: Tensor) -> int:
    """The number of classes: as given, or one more than the largest label.

    >>> count_classes(None, torch.tensor([0, 2]), torch.tensor([1])), count_classes(5, torch.tensor([0, 2]))
    (3, 5)
    """
    needed = max(int(group.max()) for group in labels) + 1
    if needed > MAX_CLASSES:
        raise InputError(
            f"the largest label is {needed - 1}; number the classes from 0, at most {MAX_CLASSES:,} of them"
        )
    if given is not None and given < needed:
        raise ConfigError(f"classes must be at least {needed}, one more than the largest label, not {given}")
    return given or needed


def _as_tensor(values: FeatureMatrix | LabelVector) -> Tensor:
    if isinstance(values, np.ndarray):
        # torch takes neither reversed nor read-only memory as it is: copy that.
        values = np.require(values, requirements=["C", "W"])
    return torch.as_tensor(values)
