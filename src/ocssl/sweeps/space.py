"""What a sweep may vary: each setting over a list of values or over a range of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np

from ocssl.errors import ConfigError
from ocssl.registry import unknown

Scalar = bool | int | float | str


@dataclass(frozen=True)
class Values:
    """One of these."""

    options: tuple[Scalar, ...]

    def draw(self, chance: np.random.Generator) -> Scalar:
        """Any of them, with equal chance."""
        return self.options[int(chance.integers(len(self.options)))]

    def plain(self) -> list[Scalar]:
        """As a file has it."""
        return list(self.options)

    def __contains__(self, value: object) -> bool:
        return value in self.options


@dataclass(frozen=True)
class Range:
    """A number from ``low`` to ``high``, both included.

    Attributes:
        scale: ``log``: every factor is as likely as every other; ``linear``: every difference.
        whole: only whole numbers.
    """

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    whole: bool = False

    def draw(self, chance: np.random.Generator) -> float | int:
        """Any number of the range.

        >>> 0.01 <= Range(0.01, 1, "log").draw(np.random.default_rng(0)) <= 1
        True
        """
        # Whole numbers get the same share of the range each, the outermost included.
        margin = 0.5 if self.whole else 0.0
        low, high = self.low - margin, self.high + margin
        share = chance.random()
        value = low * (high / low) ** share if self.scale == "log" else low + (high - low) * share
        return min(max(round(value), int(self.low)), int(self.high)) if self.whole else float(value)

    def plain(self) -> dict[str, Any]:
        """As a file has it."""
        return {"low": self.low, "high": self.high, "scale": self.scale, "whole": self.whole}

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high


Space = Mapping[str, Values | Range]


def parse_space(given: Mapping[str, Any]) -> dict[str, Values | Range]:
    """A space from what a file says: lists, or ``{low, high, scale, whole}``.

    >>> parse_space({"lr": [0.1, 0.3]})
    {'lr': Values(options=(0.1, 0.3))}
    """
    return {name: _parse(name, value) for name, value in given.items()}


def nested(values: Mapping[str, Scalar]) -> dict[str, Any]:
    """Values as settings have them: a dot in a name reaches into a group.

    >>> nested({"lr": 0.1, "options.strength": 0.5})
    {'lr': 0.1, 'options': {'strength': 0.5}}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        group, _, inner = name.partition(".")
        if inner:
            found.setdefault(group, {})[inner] = value
        else:
            found[name] = value
    return found


def grid(space: Space) -> Iterator[dict[str, Scalar]]:
    """Every combination, the last setting fastest.

    >>> list(grid(parse_space({"lr": [0.1, 0.3], "omega": [1.0]})))
    [{'lr': 0.1, 'omega': 1.0}, {'lr': 0.3, 'omega': 1.0}]
    """
    ranges = [name for name, entry in space.items() if isinstance(entry, Range)]
    if ranges:
        raise ConfigError(f"grid search needs a list of values for space.{ranges[0]}, not a range")
    options = (entry.options for entry in space.values() if isinstance(entry, Values))
    return (dict(zip(space, values, strict=True)) for values in product(*options))


def draws(space: Space, count: int, seed: int) -> list[dict[str, Scalar]]:
    """So many different combinations, at random."""
    if not any(isinstance(entry, Range) for entry in space.values()):
        possible = math.prod(len(entry.options) for entry in space.values() if isinstance(entry, Values))
        if count > possible:
            raise ConfigError(f"the space has {possible} combinations, so trials cannot be {count}; search: grid")
    chance, found = np.random.default_rng(seed), list[dict[str, Scalar]]()
    while len(found) < count:
        values = {name: entry.draw(chance) for name, entry in space.items()}
        if values not in found:
            found.append(values)
    return found


def _parse(name: str, value: object) -> Values | Range:
    if isinstance(value, list):
        return _values(name, value)
    if isinstance(value, dict):
        return _range(name, value)
    raise ConfigError(f"space.{name} must be a list of values or {{low, high, scale, whole}}, not {value!r}")


def _values(name: str, options: list[object]) -> Values:
    if not options:
        raise ConfigError(f"space.{name} is empty; list at least one value")
    scalars = tuple(option for option in options if isinstance(option, Scalar))
    if len(scalars) != len(options):
        raise ConfigError(f"space.{name} must list plain values, not {options!r}")
    if len(set(scalars)) != len(scalars):
        raise ConfigError(f"space.{name} lists a value twice: {options!r}")
    return Values(scalars)


def _range(name: str, given: dict[str, object]) -> Range:
    known = tuple(Range.__dataclass_fields__)
    for key in given:
        if key not in known:
            raise unknown("key", f"space.{name}.{key}", [f"space.{name}.{entry}" for entry in known])
    low, high, scale, whole = (given.get(key) for key in known)
    for key, number in (("low", low), ("high", high)):
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise ConfigError(f"space.{name}.{key} must be a number, not {number!r}")
    found = Range(low, high, scale or "linear", whole or False)  # type: ignore[arg-type]
    if found.scale not in ("linear", "log"):
        raise unknown("scale", found.scale, ("linear", "log"))
    if not isinstance(found.whole, bool):
        raise ConfigError(f"space.{name}.whole must be true or false, not {whole!r}")
    if found.whole and not (float(found.low).is_integer() and float(found.high).is_integer()):
        raise ConfigError(f"space.{name} is of whole numbers, so low and high must be whole, too")
    if not found.low < found.high or (found.scale == "log" and found.low <= 0):
        bound = "0 < low < high" if found.scale == "log" else "low < high"
        raise ConfigError(f"space.{name} needs {bound}, not low {found.low:g} and high {found.high:g}")
    return found
