"""Results as a folder of small files: read whole, and never trusted further than they can be checked.

A file that cannot be read as a result, one that does not say its protocol, one that contradicts itself, two that
contradict each other, and runs of one experiment on different streams are problems, told with the paths concerned; they
never enter a number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ocssl.common.files import atomic_write, writing
from ocssl.errors import ConfigError, DataError, unreadable
from ocssl.paper.identity import key
from ocssl.paper.tables import trained_on
from ocssl.paper.tuned import FOLDER, Tuned, TunedValues, read_tuned
from ocssl.runs.config import RunConfig, parse
from ocssl.runs.result import Result, read_result

Experiment = tuple[str, str]
"""What was trained, without its seed, and what it was measured on."""


@dataclass(frozen=True)
class Stored:
    """A result and its file."""

    path: Path
    result: Result

    @cached_property
    def config(self) -> RunConfig:
        """The run's settings; what a result of an older version does not name is at its default."""
        return parse(self.result.config)

    @cached_property
    def experiment(self) -> Experiment:
        """What it is a run of."""
        return key(self.config), self.result.dataset

    @property
    def at_once(self) -> object:
        """How many runs were on its device at once, by what it says itself."""
        return self.result.hardware.get("runs_at_once", 1)

    @property
    def numbers(self) -> tuple[object, ...]:
        """What two results of the same run have in common."""
        return self.result.final, self.result.avg, tuple(self.result.curve)


@dataclass(frozen=True)
class Problem:
    """Something about some files that a person has to look at."""

    paths: tuple[Path, ...]
    sentence: str


@dataclass(frozen=True)
class Store:
    """Everything that was found in a folder.

    Attributes:
        results: every file that is a whole result, in the order of their paths.
        problems: what is wrong with other files, and which results contradict each other.
        tuned: learning rates and ω tuned by us, by table, data set and protocol.
    """

    results: tuple[Stored, ...] = ()
    problems: tuple[Problem, ...] = ()
    tuned: Mapping[Tuned, TunedValues] = field(default_factory=dict)
    disputes: Mapping[tuple[Experiment, int], Problem] = field(default_factory=dict)

    @cached_property
    def _runs(self) -> dict[Experiment, dict[int, Stored]]:
        found: dict[Experiment, dict[int, Stored]] = {}
        for stored in self.results:
            found.setdefault(stored.experiment, {}).setdefault(stored.result.seed, stored)
        return found

    def runs(self, config: RunConfig, dataset: str) -> dict[int, Stored]:
        """Results of an experiment by seed, contradictory ones left out.

        Args:
            config: of the run; its seed does not matter.
            dataset: what was measured on, ``a->b`` for encoders trained on one set and probed on another.
        """
        experiment = key(config), dataset
        runs = sorted(self._runs.get(experiment, {}).items())
        return {seed: stored for seed, stored in runs if (experiment, seed) not in self.disputes}

    def disputed(self, config: RunConfig, dataset: str) -> dict[int, Problem]:
        """Seeds of an experiment for which there are results that contradict each other, or another seed's stream."""
        experiment = key(config), dataset
        return {seed: problem for (what, seed), problem in self.disputes.items() if what == experiment}

    def has(self, config: RunConfig, dataset: str) -> bool:
        """Whether this very run, its seed included, has a result, contradicted or not."""
        return config["seed"] in self._runs.get((key(config), dataset), {})


def read_store(folder: str | Path) -> Store:
    """Read every ``*.json`` below a folder as a result; of a run's own folder, its ``result.json``.

    >>> read_store("no such folder")
    Traceback (most recent call last):
    ...
    ocssl.errors.DataError: 'no such folder' is not a folder of results
    """
    place = Path(folder)
    if not place.is_dir():
        raise DataError(f"'{place}' is not a folder of results")
    results: list[Stored] = []
    problems: list[Problem] = []
    inside_runs = [config.parent for config in place.rglob("config.yaml")]
    for path in sorted(place.rglob("*.json")):
        if path.name != "result.json" and any(path.is_relative_to(run) for run in inside_runs):
            continue
        try:
            results.append(_read(path))
        except DataError as error:
            problems.append(Problem((path,), str(error)))
    tuned: dict[Tuned, TunedValues] = {}
    for path in sorted((place / FOLDER).glob("*.yaml")):
        try:
            tuned |= read_tuned(path)
        except ConfigError as error:
            problems.append(Problem((path,), str(error)))
    disputes = [*_disputes(results), *_other_streams(results)]
    problems += dict.fromkeys(problem for _, problem in disputes)
    return Store(tuple(results), tuple(problems), tuned, dict(disputes))


def publish(result: Result, folder: Path, name: str) -> Path:
    """Put a result into the store; it appears whole or not at all, and never in the place of another run's."""
    path = folder / f"{name}.json"
    try:
        other = _read(path) if path.exists() else None
    except DataError:
        other = None  # a broken file is worth nothing
    if other and (other.experiment, other.result.seed) != (Stored(path, result).experiment, result.seed):
        raise DataError(f"'{path}' holds the result of another run; rename it")
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(path, result.to_json())
    return path


def _read(path: Path) -> Stored:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(unreadable(path, error)) from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"'{path}' is not whole JSON ({error}); was it cut short? Copy it again or remove it"
        ) from error
    if isinstance(content, dict) and "final" in content and content.get("protocol") is None:
        raise DataError(f"'{path}' does not say its protocol, so its numbers compare with nothing; make it again")
    stored = Stored(path, read_result(path))
    try:
        result, config = stored.result, stored.config
    except ConfigError as error:
        raise DataError(f"'{path}' has a configuration that this version does not know: {error}") from error
    for wrong in _impossible(result, config):
        raise DataError(f"'{path}' {wrong}; make it again")
    return stored


def _impossible(result: Result, config: RunConfig) -> Iterator[str]:
    """Where a result contradicts itself."""
    for name, said, meant in _said_twice(result, config):
        if said != meant:
            yield f"says {name} {said}, but its configuration says {meant}"
    ends = result.curve[-1] if result.curve else None
    if result.final != ends:
        yield f"says final {result.final}, but its curve ends with {ends}"
    if len(result.borders) < len(result.curve):
        yield f"has a curve of {len(result.curve)} points, but says where {len(result.borders)} of them were measured"
    if result.samples < 1:
        yield f"says that its stream had {result.samples} images"


def _said_twice(result: Result, config: RunConfig) -> Iterator[tuple[str, object, object]]:
    """What a result says beside its configuration: a name, the result's value and the configuration's."""
    yield "dataset", trained_on(result.dataset), config.dataset
    yield "protocol", result.protocol, config.protocol
    yield "strategy", result.strategy, "iid" if config.iid else config["strategy"]
    yield "method", result.method, config["method"]
    yield "memory", result.memory, config["memory"]
    yield "seed", result.seed, config["seed"]


def _disputes(results: Iterable[Stored]) -> Iterator[tuple[tuple[Experiment, int], Problem]]:
    together: dict[tuple[Experiment, int], list[Stored]] = {}
    for stored in results:
        together.setdefault((stored.experiment, stored.result.seed), []).append(stored)
    for which, runs in together.items():
        if len({run.numbers for run in runs}) > 1:
            said = " and ".join(f"{_percent(run.result.final)} in '{run.path}'" for run in runs)
            sentence = f"one run has results that disagree: Final {said}; neither counts until one is removed"
            yield which, Problem(tuple(run.path for run in runs), sentence)


def _other_streams(results: Iterable[Stored]) -> Iterator[tuple[tuple[Experiment, int], Problem]]:
    """Runs of one experiment whose images or their order were not the same: there is no mean over such seeds."""
    together: dict[Experiment, list[Stored]] = {}
    for stored in results:
        together.setdefault(stored.experiment, []).append(stored)
    for experiment, runs in together.items():
        streams = {run.result.fingerprint: run for run in reversed(runs)}
        if len(streams) > 1:
            said = " and ".join(f"'{run.path}'" for run in reversed(streams.values()))
            sentence = f"runs of one experiment saw different streams: {said}; none counts until one stream is left"
            problem = Problem(tuple(run.path for run in runs), sentence)
            yield from (((experiment, run.result.seed), problem) for run in runs)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
