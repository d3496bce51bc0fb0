"""How often a classifier was right: over everything, and class by class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ocssl.errors import InputError


@dataclass(frozen=True)
class Accuracy:
    """Counts of right answers per class; every share is in percent.

    Args:
        correct: right answers per class.
        total: samples per class.

    >>> accuracy = Accuracy.of(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 1, 1, 1]), classes=3)
    >>> accuracy.percent, accuracy.over([1]), accuracy.per_class
    (75.0, 66.66666666666667, (100.0, 66.66666666666667, None))
    """

    correct: tuple[int, ...]
    total: tuple[int, ...]

    @classmethod
    def of(cls, predictions: Tensor, labels: Tensor, classes: int) -> Accuracy:
        """Count predictions ``(N,)`` against labels ``(N,)``."""
        right = labels[predictions == labels].bincount(minlength=classes)
        return cls(tuple(right.tolist()), tuple(labels.bincount(minlength=classes).tolist()))

    @property
    def percent(self) -> float:
        """Over all samples."""
        return 100 * sum(self.correct) / sum(self.total)

    @property
    def per_class(self) -> tuple[float | None, ...]:
        """By class; None where a class has no samples."""
        return tuple(
            100 * right / count if count else None for right, count in zip(self.correct, self.total, strict=True)
        )

    def over(self, classes: Iterable[int]) -> float:
        """Over the samples of some classes, each sample counting once."""
        chosen = list(classes)
        count = sum(self.total[c] for c in chosen)
        if count == 0:
            raise InputError(f"there is no sample of the classes {chosen} to measure accuracy on")
        return 100 * sum(self.correct[c] for c in chosen) / count


def predict(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The class with the highest linear score: features ``(..., N, D)``, weight ``(..., D, C)`` give ``(..., N)``."""
    return torch.matmul(features.float(), weight).add_(bias).argmax(-1)
