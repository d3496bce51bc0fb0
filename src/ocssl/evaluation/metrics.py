"""What a series of probes along a stream says: final and average accuracy, the accuracy matrix, forgetting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ocssl.errors import InputError
from ocssl.evaluation.accuracy import Accuracy


@dataclass(frozen=True)
class StreamMetrics:
    """Accuracies in percent, after each of E experiences.

    Args:
        curve: after experience i, over all classes, seen or not.
        matrix: ``matrix[i][j]``: after experience i, on the classes of experience j.

    >>> probes = [Accuracy(correct=(9, 2), total=(10, 10)), Accuracy(correct=(6, 8), total=(10, 10))]
    >>> metrics = StreamMetrics.of(probes, experiences=[[0], [1]])
    >>> metrics.final, metrics.avg, metrics.matrix, metrics.forgetting
    (70.0, 62.5, ((90.0, 20.0), (60.0, 80.0)), 30.0)
    """

    curve: tuple[float, ...]
    matrix: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, probes: Sequence[Accuracy], experiences: Sequence[Sequence[int]]) -> StreamMetrics:
        """From the probe after each experience, and each experience's classes."""
        if not probes or len(probes) != len(experiences):
            raise InputError(f"metrics need one probe per experience, not {len(probes)} for {len(experiences)}")
        return cls(
            curve=tuple(probe.percent for probe in probes),
            matrix=tuple(tuple(probe.over(classes) for classes in experiences) for probe in probes),
        )

    @property
    def final(self) -> float:
        """After the last experience, over all classes."""
        return self.curve[-1]

    @property
    def avg(self) -> float:
        """Mean over the stream of the accuracy over all classes."""
        return sum(self.curve) / len(self.curve)

    @property
    def forgetting(self) -> float:
        """How far each experience's accuracy fell from its best since that experience, on average; 0 for a single one.

        The last experience has had no time to be forgotten and does not count. Nor do probes from before an experience:
        they read classes that the encoder had not met, and losing that is no forgetting. Negative when later
        experiences helped earlier ones.
        """
        last = len(self.matrix) - 1
        if last == 0:
            return 0.0
        best = [max(self.matrix[i][j] for i in range(j, last)) for j in range(last)]
        return sum(best[j] - self.matrix[last][j] for j in range(last)) / last
