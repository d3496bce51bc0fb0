"""What a store says about a table: a cell for every row, data set, protocol and tuning, and never two in one number."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ocssl.data.catalog import names
from ocssl.data.loading import is_address
from ocssl.paper.identity import departures, key
from ocssl.paper.store import Experiment, Problem, Store, Stored
from ocssl.paper.tables import PROTOCOLS, Protocol, Row, Settings, Table, configure, probed_on, trained_on
from ocssl.runs.config import RunConfig
from ocssl.runs.paper import table as printed

Tuning = Literal["paper", "own"]
PROBE_NOISE = 0.5  # points by which probes of the same untrained encoder may differ between machines


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation as the paper prints them."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class Score:
    """One number of a cell.

    Attributes:
        by_seed: ours, in percent or seconds.
        published: the paper's.

    >>> score = Score({0: 50.0, 1: 52.0}, Spread(43.0, 0.3))
    >>> score.mean, round(score.std, 3), score.difference
    (51.0, 1.414, 8.0)
    """

    by_seed: Mapping[int, float]
    published: Spread | None = None

    @property
    def mean(self) -> float | None:
        """Over seeds; None without any."""
        return statistics.fmean(self.by_seed.values()) if self.by_seed else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation over seeds; None with fewer than two."""
        return statistics.stdev(self.by_seed.values()) if len(self.by_seed) > 1 else None

    @property
    def difference(self) -> float | None:
        """Our mean less the paper's."""
        return None if self.mean is None or self.published is None else self.mean - self.published.mean


@dataclass(frozen=True)
class Cell:
    """One row of a table for one data set, protocol and tuning.

    Attributes:
        dataset: ``a->b`` for encoders trained on one set and probed on another.
        tuning: whether lr and ω are the paper's or those that we tuned for the protocol.
        config: of the cell's runs, for seed 0; None for the untrained encoder.
        final, avg: accuracies in percent.
        runs: the results that count, by seed.
        problems: about results that would count, but cannot.
    """

    table: Table
    row: Row
    dataset: str
    protocol: Protocol
    tuning: Tuning
    config: RunConfig | None
    final: Score
    avg: Score
    runs: Mapping[int, Stored]
    problems: tuple[Problem, ...] = ()

    @property
    def experiment(self) -> Experiment | None:
        """What its runs are runs of; None for the untrained encoder."""
        return (key(self.config), self.dataset) if self.config else None

    @property
    def label(self) -> str:
        """The row as the paper prints it."""
        return self.row.label

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds with a result that counts."""
        return tuple(self.runs)

    @property
    def timed(self) -> dict[int, Stored]:
        """Runs whose time says what training costs: those that had their device to themselves."""
        return {seed: run for seed, run in self.runs.items() if run.at_once == 1}

    @property
    def devices(self) -> set[str]:
        """What the timed runs were made on, and how where that is not the usual way."""
        return {_device(run) for run in self.timed.values()}

    @property
    def seconds(self) -> Score:
        """Training time; empty where runs come from different devices or were not run in the same way."""
        alike = len(self.devices) == 1 and not self.row.untrained
        return Score({seed: run.result.train_seconds for seed, run in self.timed.items()} if alike else {})

    @property
    def strategy(self) -> str | None:
        """As results have it: ``iid`` for the upper bound, None for the untrained encoder."""
        if self.config is None:
            return None
        return "iid" if self.config.iid else str(self.config["strategy"])

    @property
    def method(self) -> str | None:
        """The objective; None where the strategy brings its own."""
        return self.config["method"] if self.config else None

    @property
    def memory(self) -> str | None:
        """The replay memory; None without replay."""
        return self.config["memory"] if self.config else None

    @property
    def block(self) -> tuple[int, int, int] | None:
        """b_s, b and n_p."""
        config = self.config
        return (config["stream_batch"], config["batch"], config["passes"]) if config else None


def _device(run: Stored) -> str:
    """As much of where and how a run was made as its time depends on."""
    hardware, config = run.result.hardware, run.config
    usual = ("auto", "graph", "bf16") if hardware.get("gpu") else ("auto", "eager", "fp32")
    words = [str(hardware.get("gpu") or hardware.get("cpu") or "unknown device")]
    words += [config[name] for name in ("execution", "precision") if config[name] not in usual]
    many = hardware.get("processes", 1)
    return ", ".join(words if many == 1 else [*words, f"{many} processes"])


def cells(store: Store, table: Table) -> list[Cell]:
    """Every cell of a table, filled or not: the paper's data sets first, then others that there are results for."""
    found: list[Cell] = []
    for dataset in (*table.datasets, *_others(store, table)):
        for protocol in PROTOCOLS:
            block = list(_block(store, table, dataset, protocol))
            if dataset in table.datasets or any(cell.runs or cell.problems for cell in block):
                found += block
    return found


def _others(store: Store, table: Table) -> list[str]:
    present = {stored.result.dataset for stored in store.results} - {*table.datasets}
    onward = any(probed_on(dataset) for dataset in table.datasets)
    return sorted(name for name in present if bool(probed_on(name)) == onward and _is_known(trained_on(name)))


def _is_known(dataset: str) -> bool:
    """Whether runs on it can be configured here; a plugin's set may be known elsewhere."""
    return is_address(dataset) or dataset in names()


def _block(store: Store, table: Table, dataset: str, protocol: Protocol) -> Iterator[Cell]:
    tuned = store.tuned.get((table.id, dataset, protocol), {})
    trained = [row for row in table.rows if not row.untrained]
    papers = {row.name: _cell(store, table, row, dataset, protocol, "paper", {}) for row in trained}
    own = [_cell(store, table, row, dataset, protocol, "own", tuned[row.name]) for row in trained if row.name in tuned]
    for row in table.rows:
        yield _untrained(table, row, dataset, protocol, [*papers.values(), *own]) if row.untrained else papers[row.name]
    yield from own


def _cell(
    store: Store, table: Table, row: Row, dataset: str, protocol: Protocol, tuning: Tuning, tuned: Settings
) -> Cell:
    preset = configure(table, row, dataset, protocol)
    config = configure(table, row, dataset, protocol, tuned=tuned)
    runs = store.runs(config, dataset)
    final, avg = _published(table, row, preset, dataset)
    return Cell(
        table,
        row,
        dataset,
        protocol,
        tuning,
        config,
        Score({seed: run.result.final for seed, run in runs.items() if run.result.final is not None}, final),
        Score({seed: run.result.avg for seed, run in runs.items() if run.result.avg is not None}, avg),
        runs,
        tuple(dict.fromkeys(store.disputed(config, dataset).values())),
    )


def _untrained(table: Table, row: Row, dataset: str, protocol: Protocol, others: list[Cell]) -> Cell:
    """The encoder before the first image, which every run of the table measured."""
    measured: dict[int, list[Stored]] = {}
    for cell in others:
        for seed, run in cell.runs.items():
            if "untrained" in run.result.references:
                measured.setdefault(seed, []).append(run)
    runs, problems = {}, []
    for seed, found in sorted(measured.items()):
        values = [run.result.references["untrained"] for run in found]
        if max(values) - min(values) <= PROBE_NOISE:
            runs[seed] = found[0]
        else:
            sentence = (
                f"runs of seed {seed} say {min(values):.2f} and {max(values):.2f} of the same untrained encoder; "
                "its row lacks that seed, but their own numbers count"
            )
            problems.append(Problem(tuple(run.path for run in found), sentence))
    by_seed = {seed: run.result.references["untrained"] for seed, run in runs.items()}
    published = _look_up(table.source, row, "-", None, dataset)[0]
    final, avg = Score(by_seed, published), Score({})
    return Cell(table, row, dataset, protocol, "paper", None, final, avg, runs, tuple(problems))


def _published(table: Table, row: Row, config: RunConfig, dataset: str) -> tuple[Spread | None, Spread | None]:
    """Final and Avg where the paper prints them: for its own settings, and it passes each view alone."""
    if departures(config) not in ({}, {"joint_views": False}):
        return None, None
    return _look_up(table.source, row, config["method"] or "-", (config["batch"], config["passes"]), dataset)


def _look_up(
    source: str, row: Row, ssl: str, block: tuple[int, int] | None, dataset: str
) -> tuple[Spread | None, Spread | None]:
    b, n_p = map(str, block) if block else ("", "")
    wanted = {"table": source, "ssl": ssl, "b": b, "n_p": n_p, "method": row.published or row.name}
    wanted["dataset"] = dataset.replace(":authors", "")
    for line in printed("results"):
        if all(line[column] == value for column, value in wanted.items()):
            return _spread(line["final"], line["final_std"]), _spread(line["avg"], line["avg_std"])
    return None, None


def _spread(mean: str, std: str) -> Spread | None:
    return Spread(float(mean), float(std) if std else None) if mean else None
