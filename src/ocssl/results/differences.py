"""Differences between experiments, paired over seeds, with Student's t-interval."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

LEVEL = 0.95
LEAST_SEEDS = 3
"""Common seeds from which on two rows of a table are compared."""


@dataclass(frozen=True)
class Difference:
    """A mean difference over n common seeds, and the ends of its t-interval, which are infinite for a single seed."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval lies above or below 0."""
        return self.low > 0 or self.high < 0


def paired_difference(first: Mapping[K, float], second: Mapping[K, float], level: float = LEVEL) -> Difference | None:
    """The mean of ``first - second`` over common seeds, and its t-interval of that level; None without a common seed.

    Values over several rows are paired by row and seed.

    >>> paired_difference({0: 2.0, 1: 3.0, 2: 5.0}, {0: 1.0, 1: 1.0, 2: 2.0, 7: 0.0}).mean
    2.0
    """
    differences = [first[key] - second[key] for key in first if key in second]
    n = len(differences)
    if n == 0:
        return None
    mean = fmean(differences)
    reach = t_quantile((1 + level) / 2, n - 1) * stdev(differences) / math.sqrt(n) if n > 1 else math.inf
    return Difference(mean, mean - reach, mean + reach, n)


def best_rows(values: Mapping[str, Mapping[int, float]]) -> set[str]:
    """The row with the highest mean, and every row that cannot be told from it, given values by row and seed.

    A row can be told from the best if the 95 % t-interval of their difference, paired over at least three common seeds,
    excludes 0. Rows with fewer common seeds are not compared and never among the best. There is no best row where the
    highest mean has fewer than three seeds, or where nothing can be compared with it.

    >>> sorted(best_rows({"a": {0: 5.0, 1: 7.0, 2: 6.0}, "b": {0: 6.0, 1: 5.0, 2: 6.0}, "c": {0: 1.0, 1: 2.0, 2: 1.5}}))
    ['a', 'b']
    >>> best_rows({"a": {0: 5.0}, "b": {0: 4.0, 1: 4.0, 2: 4.0}})
    set()
    """
    best = max((row for row in values if values[row]), key=lambda row: seed_mean(values[row]), default=None)
    if best is None:
        return set()
    differences = {row: paired_difference(values[best], values[row]) for row in values if row != best}
    compared = {row: found for row, found in differences.items() if found is not None and found.n >= LEAST_SEEDS}
    return {best, *(row for row, found in compared.items() if not found.excludes_zero)} if compared else set()


def seed_mean(values: Mapping[int, float]) -> float:
    """The mean of values by seed."""
    return fmean(values.values())


@cache
def t_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t distribution for a probability of at least 0.5, by bisection.

    >>> round(t_quantile(0.975, 2), 4)
    4.3027
    """
    low, high = 0.0, 1.0
    while _t_distribution(high, freedom) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_distribution(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def _t_distribution(t: float, freedom: int) -> float:
    """P(T <= t) for t >= 0: the finite sums for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    square, odd = math.cos(angle) ** 2, freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= square * (k - 1) / k
        total += term
    within = 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
    return 0.5 + within / 2
