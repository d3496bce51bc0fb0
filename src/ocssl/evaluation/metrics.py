"""Accuracies: of one classifier, class by class, and of a series of probes along a stream (Final, Avg, forgetting)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from ocssl.errors import InputError


@dataclass(frozen=True)
class Accuracy:
    """Counts of right answers per class; every share is in percent.

    Args:
        correct: right answers per class.
        total: samples per class.

    >>> import torch
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
        count = sum(samples for c, samples in enumerate(self.total) if c in chosen)
        if count == 0:
            raise InputError(f"there is no sample of the classes {chosen} to measure accuracy on")
        return 100 * sum(right for c, right in enumerate(self.correct) if c in chosen) / count


@dataclass(frozen=True)
class StreamMetrics:
    """Accuracies in percent along a stream of E experiences, probed after each of them or after the last alone.

    Args:
        curve: one per probe, over all classes, seen or not.
        matrix: ``matrix[i][j]``: probe i on the classes of experience j; one row per probe, E columns.

    >>> probes = [Accuracy(correct=(9, 2), total=(10, 10)), Accuracy(correct=(6, 8), total=(10, 10))]
    >>> metrics = StreamMetrics.of(probes, experiences=[[0], [1]])
    >>> metrics.final, metrics.avg, metrics.matrix, metrics.forgetting
    (70.0, 62.5, ((90.0, 20.0), (60.0, 80.0)), 30.0)
    >>> end = StreamMetrics.of(probes[1:], experiences=[[0], [1]])
    >>> end.final, end.avg, end.matrix, end.forgetting
    (70.0, None, ((60.0, 80.0),), None)
    """

    curve: tuple[float, ...]
    matrix: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, probes: Sequence[Accuracy], experiences: Sequence[Sequence[int]]) -> StreamMetrics:
        """From the probe after each experience, or the one after the last, and each experience's classes."""
        if not experiences or len(probes) not in (1, len(experiences)):
            raise InputError(
                "stream metrics need a probe after each experience or one after the last, "
                f"not {len(probes)} for {len(experiences)}"
            )
        return cls(
            curve=tuple(probe.percent for probe in probes),
            matrix=tuple(tuple(probe.over(classes) for classes in experiences) for probe in probes),
        )

    @property
    def complete(self) -> bool:
        """Whether there is a probe after each experience."""
        return len(self.matrix) == len(self.matrix[0])

    @property
    def final(self) -> float:
        """After the last experience, over all classes."""
        return self.curve[-1]

    @property
    def avg(self) -> float | None:
        """Mean over the stream of the accuracy over all classes; None without a probe after each experience."""
        return sum(self.curve) / len(self.curve) if self.complete else None

    @property
    def forgetting(self) -> float | None:
        """How far each experience's accuracy fell at the end from its best since that experience, on average.

        The last experience cannot be forgotten yet and does not count, so a stream of one experience has 0. Probes from
        before an experience do not count for it: the encoder had not met its classes. The end is not among those that
        the best is taken of, so forgetting is negative when the last experience helped earlier ones. None without a
        probe after each experience.
        """
        if not self.complete:
            return None
        last = len(self.matrix) - 1
        best = [max(self.matrix[i][j] for i in range(j, last)) for j in range(last)]
        return sum(best[j] - self.matrix[last][j] for j in range(last)) / max(last, 1)
