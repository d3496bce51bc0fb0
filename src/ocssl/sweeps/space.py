"""Search spaces: each setting varies over a list of values or over a range of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Literal

import numpy as np

from ocssl.common.console import shown
from ocssl.errors import ConfigError
from ocssl.options import Options, setting, validate

Scalar = bool | int | float | str


class Range(Options):
    """Numbers from ``low`` to ``high``, both included."""

    low: float = setting(..., "Smallest value.")
    high: float = setting(..., "Largest value.")
    scale: Literal["linear", "log"] = setting("linear", "Draws are uniform on this scale.")
    whole: bool = setting(False, "Whole numbers only; always so where the setting takes no others.")

    @property
    def ends(self) -> tuple[Scalar, Scalar]:
        """The smallest and the largest value."""
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def draw(self, rng: np.random.Generator) -> float | int:
        """A random number, uniform on the scale.

        >>> 0.01 <= Range(low=0.01, high=1, scale="log").draw(np.random.default_rng(0)) <= 1
        True
        """
        margin = 0.5 if self.whole else 0.0  # so that the two ends are as likely as the numbers between
        low, high, share = self.low - margin, self.high + margin, rng.random()
        value = low * (high / low) ** share if self.scale == "log" else low + (high - low) * share
        return min(max(round(value), int(self.low)), int(self.high)) if self.whole else float(value)

    @property
    def count(self) -> float:
        """How many values there are; infinity where they are not whole.

        >>> Range(low=1, high=8, whole=True).count
        8.0
        """
        return self.high - self.low + 1 if self.whole else math.inf

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


Space = Mapping[str, tuple[Scalar, ...] | Range]


def parse_space(given: Mapping[str, Any]) -> Space:
    """A space from lists or ``{low, high, scale}``.

    >>> parse_space({"lr": [0.1, 0.3]})
    {'lr': (0.1, 0.3)}
    """
    return {name: _parse(name, entry) for name, entry in given.items()}


def _parse(name: str, entry: object) -> tuple[Scalar, ...] | Range:
    if isinstance(entry, Mapping):
        return _range(name, entry)
    if not isinstance(entry, list | tuple):
        raise ConfigError(f"space.{name} must be a list of values or {{low, high, scale}}, not {shown(entry)}")
    if not entry:
        raise ConfigError(f"space.{name} is empty; list at least one value")
    if not all(isinstance(value, Scalar) for value in entry):
        raise ConfigError(f"space.{name} must list plain values, not {shown(entry)}")
    if any(isinstance(value, float) and not math.isfinite(value) for value in entry):
        raise ConfigError(f"space.{name} must list finite numbers, not {shown(entry)}")
    if len(set(entry)) != len(entry):
        raise ConfigError(f"space.{name} lists a value twice: {shown(entry)}")
    return tuple(entry)


def _range(name: str, given: Mapping[str, Any]) -> Range:
    found = validate(Range, given, f"space.{name}.")
    if not found.low < found.high or (found.scale == "log" and found.low <= 0):
        bound = "0 < low < high" if found.scale == "log" else "low < high"
        raise ConfigError(f"space.{name} needs {bound}, not low {found.low:g} and high {found.high:g}")
    return found


def combinations(lists: Mapping[str, Sequence[Scalar]]) -> Iterator[dict[str, Scalar]]:
    """Every combination, the last setting fastest.

    >>> list(combinations({"lr": (0.1, 0.3), "omega": (1.0,)}))
    [{'lr': 0.1, 'omega': 1.0}, {'lr': 0.3, 'omega': 1.0}]
    """
    return (dict(zip(lists, values, strict=True)) for values in product(*lists.values()))


def random_values(space: Space, seed: int) -> Iterator[dict[str, Scalar]]:
    """Random combinations without end; lists are drawn with equal chance."""
    rng = np.random.default_rng(seed)
    while True:
        yield {
            name: entry.draw(rng) if isinstance(entry, Range) else entry[int(rng.integers(len(entry)))]
            for name, entry in space.items()
        }
