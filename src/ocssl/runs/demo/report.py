"""What remains of a demo: accuracies in percent, and every setting that led to them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from ocssl.errors import DataError


@dataclass(frozen=True)
class Entry:
    """One strategy's way through the stream.

    Args:
        curve: probe accuracy over all classes, seen or not, at each measuring point.
        cbp: cumulative backward passes really spent.
        seconds: from the first image to the last probe, the other strategies running beside it.
        settings: the learner's arguments, complete.
    """

    name: str
    curve: tuple[float, ...]
    cbp: int
    seconds: float
    settings: dict[str, Any]


@dataclass(frozen=True)
class SeedResult:
    """All strategies on the stream of one seed.

    Args:
        references: accuracies to compare with: raw pixels, and the encoder before the first image.
        class_order: the classes by name, as they arrive.
    """

    seed: int
    references: dict[str, float]
    entries: tuple[Entry, ...]
    class_order: tuple[str, ...]


@dataclass(frozen=True)
class DemoReport:
    """The demo over one or more seeds.

    Args:
        points: images seen at each measuring point.
        plan: the numbers of the demo.
        versions: of Python and the packages that decide numbers.
        hardware: what it ran on.
    """

    results: tuple[SeedResult, ...]
    points: tuple[int, ...]
    plan: dict[str, Any]
    versions: dict[str, str]
    hardware: dict[str, Any]

    def mean_curves(self) -> dict[str, tuple[float, ...]]:
        """Each strategy's curve, averaged over the seeds."""
        names = [entry.name for entry in self.results[0].entries]
        return {name: _columnwise_mean([_entry(result, name).curve for result in self.results]) for name in names}

    def mean_references(self) -> dict[str, float]:
        """Each reference, averaged over the seeds."""
        return {name: mean(result.references[name] for result in self.results) for name in self.results[0].references}

    def lead(self, of: str, over: str) -> tuple[float, ...]:
        """By how many points a strategy ends above another, or above a reference; seed by seed."""

        def end(result: SeedResult, name: str) -> float:
            return result.references[name] if name in result.references else _entry(result, name).curve[-1]

        return tuple(end(result, of) - end(result, over) for result in self.results)

    def save(self, path: Path) -> None:
        """Write everything as JSON."""
        try:
            path.write_text(json.dumps(asdict(self), indent=2) + "\n")
        except OSError as error:
            raise DataError(f"the demo's numbers could not be written to '{path}': {error.strerror}") from error


def _entry(result: SeedResult, name: str) -> Entry:
    return next(entry for entry in result.entries if entry.name == name)


def _columnwise_mean(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(mean(column) for column in zip(*curves, strict=True))
