"""Reads a folder of results. A file that cannot be used becomes a :class:`Problem` and enters no number."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Literal

from ocssl.common.console import number_of, percent
from ocssl.errors import ConfigError, DataError
from ocssl.results.result import Curve, Protocol, Result, read_result
from ocssl.results.tables import Kind, PaperRow, Settings
from ocssl.results.tuned import FOLDER, TunedFor, TunedValues, read_tuned

Experiment = tuple[str, str]
"""The key of what was trained, and the data set that was measured on."""


@dataclass(frozen=True)
class ResultFile:
    """A result and its file."""

    path: Path
    result: Result

    @property
    def experiment(self) -> Experiment:
        """What it is a run of."""
        return self.result.key, self.result.dataset

    @property
    def runs_at_once(self) -> object:
        """The number of runs that shared the device."""
        return self.result.hardware.get("runs_at_once", 1)

    @property
    def device(self) -> str:
        """What a training time depends on: the hardware, threads of a CPU and, unless usual there, the execution."""
        hardware, config = self.result.hardware, self.result.config
        usual = ("auto", "graph", "bf16") if hardware.get("gpu") else ("auto", "eager", "fp32")
        words = [str(hardware.get("gpu") or hardware.get("cpu") or "unknown device")]
        if not hardware.get("gpu") and (threads := hardware.get("threads")):
            words.append(number_of(threads, "thread"))
        words += [str(config[name]) for name in ("execution", "precision") if config.get(name, "auto") not in usual]
        words += [f"{many} processes"] if (many := hardware.get("processes", 1)) != 1 else []
        return ", ".join(words)


@dataclass(frozen=True)
class Problem:
    """Files that need attention, and why."""

    paths: tuple[Path, ...]
    sentence: str


@dataclass(frozen=True)
class Group:
    """The results of one experiment.

    Attributes:
        files: all of them, in the order of their paths.
        conflicts: why the results of a seed do not count.
        floor: the floor whose numbers these are, like ``pixels``; empty for those of the runs.
    """

    files: tuple[ResultFile, ...] = ()
    conflicts: Mapping[int, Problem] = field(default_factory=dict)
    floor: str = ""

    @cached_property
    def runs(self) -> dict[int, ResultFile]:
        """The results that count, by seed; of several copies the first."""
        found = {file.result.seed: file for file in reversed(self.files) if file.result.seed not in self.conflicts}
        return dict(sorted(found.items()))

    @property
    def paths(self) -> tuple[Path, ...]:
        """Files of the results that count."""
        kept = [file for file in self.files if file.result.seed not in self.conflicts]
        return tuple(file.path for file in (kept if self.floor else self.runs.values()))

    @property
    def experiment(self) -> Experiment | None:
        """What its results are runs of; None without results and for a floor."""
        return self.files[0].experiment if self.files and not self.floor else None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why some results do not count."""
        return tuple(dict.fromkeys(self.conflicts.values()))

    @property
    def final(self) -> dict[int, float]:
        """Final by seed, in percent."""
        return self._of_floor("references") if self.floor else self._by_seed(lambda result: result.final)

    @property
    def avg(self) -> dict[int, float]:
        """Avg by seed, in percent."""
        return self._by_seed(lambda result: result.avg)

    @property
    def knn_final(self) -> dict[int, float]:
        """Final by k-NN, by seed, in percent."""
        if self.floor:
            return self._of_floor("knn_references")
        return self._by_seed(lambda result: result.knn.final if result.knn else None)

    @property
    def knn_avg(self) -> dict[int, float]:
        """Avg by k-NN, by seed, in percent."""
        return self._by_seed(lambda result: result.knn.avg if result.knn else None)

    @property
    def forgetting(self) -> dict[int, float]:
        """Forgetting by seed, in points."""
        return self._by_seed(lambda result: result.forgetting)

    @property
    def _trained(self) -> dict[int, ResultFile]:
        return {} if self.floor else self.runs

    def _by_seed(self, number: Callable[[Result], float | None]) -> dict[int, float]:
        """A number of the runs that have it; empty for a floor."""
        found = {seed: number(run.result) for seed, run in self._trained.items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def _of_floor(self, probe: Literal["references", "knn_references"]) -> dict[int, float]:
        """The floor by seed, from the first file of the seed that holds it."""
        held = [file.result for file in reversed(self.files) if self.floor in getattr(file.result, probe)]
        values = {result.seed: getattr(result, probe)[self.floor] for result in held}
        return {seed: values[seed] for seed in self.runs if seed in values}

    @property
    def timed(self) -> dict[int, ResultFile]:
        """The runs that took time, with their device to themselves."""
        alone = {seed: run for seed, run in self._trained.items() if run.runs_at_once == 1}
        return {seed: run for seed, run in alone.items() if run.result.train_seconds > 0}

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices of the timed runs."""
        return tuple(sorted({run.device for run in self.timed.values()}))

    @property
    def seconds(self) -> dict[int, float]:
        """Training time by seed; empty where the devices differ."""
        return {seed: run.result.train_seconds for seed, run in self.timed.items() if len(self.devices) == 1}

    @property
    def cbp(self) -> float | None:
        """Mean CBP of a run; None without runs, and for a floor."""
        spent = [run.result.cbp_spent for run in self._trained.values()]
        return fmean(spent) if spent else None

    @property
    def matrix(self) -> list[list[float]] | None:
        """Mean over seeds of the accuracy after each experience on the classes of each; None where shapes differ."""
        runs = [run.result.matrix for run in self._trained.values() if run.result.matrix]
        if len({tuple(map(len, matrix)) for matrix in runs}) != 1:
            return None
        return [[round(fmean(cell), 1) for cell in zip(*row, strict=True)] for row in zip(*runs, strict=True)]

    @property
    def curve(self) -> dict[str, list[float]] | None:
        """Mean, lowest and highest accuracy over seeds along the stream; None where the borders differ."""
        runs = [run.result for run in self._trained.values() if run.result.curve]
        if len({(tuple(run.borders), len(run.curve)) for run in runs}) != 1:
            return None
        along = list(zip(*(run.curve for run in runs), strict=True))
        x = [float(border) for border in runs[0].borders[-len(along) :]]
        return {"x": x, "mean": [*map(fmean, along)], "low": [*map(min, along)], "high": [*map(max, along)]}


@dataclass(frozen=True)
class Store:
    """The content of a folder of results.

    Attributes:
        problems: files that are none, and results that conflict.
        tuned: learning rates and ω that we tuned, by table, data set and protocol.
        groups: the results of each experiment.
    """

    problems: tuple[Problem, ...] = ()
    tuned: Mapping[TunedFor, TunedValues] = field(default_factory=dict)
    groups: Mapping[Experiment, Group] = field(default_factory=dict)

    @cached_property
    def files(self) -> tuple[ResultFile, ...]:
        """Every complete result, in the order of their paths."""
        every = (file for group in self.groups.values() for file in group.files)
        return tuple(sorted(every, key=lambda file: file.path))

    @cached_property
    def _by_kind(self) -> dict[tuple[str, str, Kind], list[Group]]:
        found: dict[tuple[str, str, Kind], list[Group]] = {}
        for group in self.groups.values():
            one = group.files[0].result
            kind = one.strategy, one.method, one.memory, one.block
            found.setdefault((one.dataset, one.protocol, kind), []).append(group)
        return found

    def find(self, row: PaperRow, dataset: str, protocol: Protocol, tuned: Settings | None = None) -> Group:
        """The results of a row of a table, with tuned lr and ω or the paper's; empty where there are none."""
        groups = self._by_kind.get((dataset, protocol, row.kind), [])
        matching = [group for group in groups if row.matches(group.files[0].result, tuned or {})]
        return max(matching, key=lambda group: len(group.runs), default=Group())

    @cached_property
    def floors(self) -> tuple[ResultFile, ...]:
        """Results that hold floors and nothing else."""
        return tuple(file for group in self.groups.values() for file in group.files if file.result.only_floors)

    def has(self, key: str, dataset: str, seed: int) -> bool:
        """Whether there is a result of this run, in conflict or not."""
        return any(file.result.seed == seed for file in self.groups.get((key, dataset), Group()).files)


def read_results(folder: str | Path) -> Store:
    """Read every ``*.json`` below a folder as a result; in a run's own folder only ``result.json``.

    >>> read_results("no such folder")
    Traceback (most recent call last):
    ...
    ocssl.errors.DataError: 'no such folder' is not a folder of results
    """
    place = Path(folder)
    if not place.is_dir():
        raise DataError(f"'{place}' is not a folder of results")
    problems: list[Problem] = []
    together: dict[Experiment, list[ResultFile]] = {}
    tuned: dict[TunedFor, TunedValues] = {}
    for path in sorted(_result_paths(place)):
        try:
            file = ResultFile(path, read_result(path))
            together.setdefault(file.experiment, []).append(file)
        except DataError as error:
            problems.append(Problem((path,), str(error)))
    for path in sorted((place / FOLDER).glob("*.yaml")):
        try:
            which, values = read_tuned(path)
            tuned[which] = values
        except ConfigError as error:
            problems.append(Problem((path,), str(error)))
    groups = {experiment: Group(tuple(files), _conflicts(files)) for experiment, files in together.items()}
    conflicts = dict.fromkeys(problem for group in groups.values() for problem in group.problems)
    return Store((*problems, *conflicts), tuned, groups)


def _result_paths(place: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(place):
        if "config.yaml" in names:  # a run's own folder
            folders.clear()
            names = [name for name in names if name == "result.json"]
        yield from (Path(folder, name) for name in names if name.endswith(".json"))


def _conflicts(files: Sequence[ResultFile]) -> dict[int, Problem]:
    """Seeds of an experiment that do not count: there is no mean over different streams or over contradictions."""
    streams: list[ResultFile] = []  # one file of each
    for file in files:
        if not any(file.result.same_stream(other.result) for other in streams):
            streams.append(file)
    if len(streams) > 1:
        named = " and ".join(f"'{file.path}'" for file in streams)
        sentence = f"runs of one experiment saw different streams: {named}; none counts until one stream is left"
        problem = Problem(tuple(file.path for file in files), sentence)
        return {file.result.seed: problem for file in files}
    found = {}
    for seed in {file.result.seed for file in files}:
        copies = [file for file in files if file.result.seed == seed]
        linear = {file.path: file.result for file in copies}
        near = {file.path: file.result.knn for file in copies if file.result.knn is not None}
        if sentence := _disagreement("Final", linear) or _disagreement("k-NN Final", near):
            found[seed] = Problem(tuple(linear), sentence)
    return found


def _disagreement(name: str, measured: Mapping[Path, Result | Curve]) -> str:
    """A sentence on results of one run with different numbers by a probe; empty where these are equal."""
    if len({(one.final, one.avg, *one.curve) for one in measured.values()}) < 2:
        return ""
    finals = " and ".join(f"{percent(one.final)} in '{path}'" for path, one in measured.items())
    return f"one run has results that disagree: {name} {finals}; neither counts until one is removed"
