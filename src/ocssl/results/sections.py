"""Joins the paper's tables with results: one section for each table, data set and protocol.

Results of two protocols, of two data sets or of test and validation images never share a section, a row or a mean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ocssl.common.console import short_value
from ocssl.errors import DataError
from ocssl.results.names import file_part, heading, row_label, row_name
from ocssl.results.published import read_csv
from ocssl.results.read import Experiment, Group, Problem, ResultFile, Store, read_results
from ocssl.results.result import PROTOCOLS, Protocol, Result, probed_on
from ocssl.results.styles import style_name
from ocssl.results.table import Value
from ocssl.results.tables import TABLES, PaperRow, PaperTable

BOUNDS = frozenset({"iid", "cassle", "cassle-r"})
"""Strategies that the paper prints in italics: they use more than the stream, so they are not ranked."""

PAPER_VALUES = {"tau": 0.999, "joint_views": False}
"""The paper's values of settings that some tables vary; its ω are in ``hyperparameters.csv``."""

SAME_BUDGET = 1.05  # factor between CBP that count as equal
PROBE_NOISE = 0.5  # points by which probes of one untrained encoder may differ between machines
UNLISTED = "other"
FEW_SETTINGS = 3  # in the label of an unlisted experiment, unless more are needed
SYMBOLS = {"batch": "b", "passes": "n_p", "omega": "ω", "tau": "τ", "stream_batch": "b_s"}


@dataclass(frozen=True)
class Row:
    """A row of a section.

    Attributes:
        style: its key in :data:`ocssl.results.styles.STYLES`.
        ours: results with the paper's lr and ω.
        block: b_s, b and n_p; None for the untrained encoder.
        method: the objective; None where the strategy has its own.
        ranked: whether it takes part in the ranking.
        published: the paper's numbers: ``final``, ``avg``.
        tuned: results with lr and ω that we tuned; None where we did not.
        tuned_values: these lr and ω.
    """

    name: str
    label: str
    style: str
    ours: Group
    block: tuple[int, int, int] | None = None
    method: str | None = None
    ranked: bool = True
    published: Mapping[str, Value] = field(default_factory=dict)
    tuned: Group | None = None
    tuned_values: Mapping[str, float] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Ours, and the tuned where there are any."""
        return (self.ours,) if self.tuned is None else (self.ours, self.tuned)

    @property
    def tuned_as_paper(self) -> bool:
        """Whether tuning found the paper's own values, so that both groups are the same runs."""
        return self.tuned is self.ours

    @property
    def distinct(self) -> tuple[Group, ...]:
        """The groups, each once."""
        return (self.ours,) if self.tuned_as_paper else self.groups

    def difference(self, number: str) -> float | None:
        """Our mean less the paper's."""
        ours, paper = Value.over(getattr(self.ours, number)).mean, self.published.get(number)
        return None if ours is None or paper is None or paper.mean is None else ours - paper.mean


@dataclass(frozen=True)
class Section:
    """One table for one data set and one protocol."""

    table: PaperTable
    dataset: str
    protocol: Protocol
    rows: tuple[Row, ...]

    @property
    def id(self) -> str:
        """Unique in a report, and fit for a file name."""
        return f"{file_part(self.table.id)}-{file_part(self.dataset)}-{self.protocol}"

    @property
    def method(self) -> str:
        """The objective of the rows without one of their own; empty where there are none."""
        return next((row.method for row in self.rows if row.method), "")

    @property
    def budget(self) -> str:
        """``high`` or ``low``; empty where the rows have their own."""
        return str(self.table.settings.get("budget", ""))

    @property
    def title(self) -> str:
        """Data set and table."""
        return f"{heading(self.dataset)}, {self.table.title}"

    @property
    def family(self) -> str:
        """Sections of one family share a figure against CBP; those of unlisted runs have their own."""
        return self.title if self.is_unlisted else ", ".join(map(heading, filter(None, (self.dataset, self.method))))

    @property
    def block(self) -> tuple[int, int, int] | None:
        """b_s, b and n_p where all rows share them."""
        found = {row.block for row in self.rows if row.block}
        return found.pop() if len(found) == 1 else None

    def label(self, row: Row) -> str:
        """The label of a row; with b where two rows have the same (i.i.d. training at the low budget)."""
        duplicates = [other for other in self.rows if other.label == row.label]
        return row.label if len(duplicates) == 1 or not row.block else f"{row.label}, b = {row.block[1]}"

    @property
    def is_unlisted(self) -> bool:
        """Whether the paper has no such table."""
        return self.table.id.startswith(UNLISTED)

    @property
    def is_ablation(self) -> bool:
        """Whether rows are variants of a few strategies, which colours cannot tell apart."""
        styles = [row.style for row in self.rows]
        return not self.is_unlisted and len(set(styles)) < len(styles) - 1

    @property
    def compares_budgets(self) -> bool:
        """Whether its rows belong in a figure against CBP: strategies as they are, at any budget."""
        return not self.is_ablation or self.table.id.startswith("passes")

    @property
    def filled(self) -> bool:
        """Whether there is a result or a problem."""
        return any(group.files or group.conflicts for row in self.rows for group in row.groups)

    def files(self) -> set[Path]:
        """Files of the results that count."""
        return {run.path for row in self.rows for group in row.groups for run in group.runs.values()}

    def problems(self) -> set[Problem]:
        """Why other results do not count."""
        return {problem for row in self.rows for group in row.groups for problem in group.problems}

    def ranks(self, number: str, *, tuned: bool = False) -> dict[str, int]:
        """The rows with the best (1) and second best (2) ``final`` or ``avg``; equal numbers as printed share a rank.

        Rows are ranked only if all of them had the same budget and saw the same stream.

        Args:
            tuned: among the tuned results.
        """
        ranked = [(row.name, row.tuned if tuned else row.ours) for row in self.rows if row.ranked]
        groups = {name: group for name, group in ranked if group and getattr(group, number)}
        results = [run.result for group in groups.values() for run in group.runs.values()]
        budgets = {result.cbp_planned for result in results}
        if len(groups) < 2 or max(budgets) > SAME_BUDGET * min(budgets) or len({r.fingerprint for r in results}) > 1:
            return {}
        scores = {name: round(Value.over(getattr(group, number)).mean or 0, 2) for name, group in groups.items()}
        best = sorted(set(scores.values()), reverse=True)[:2]
        return {name: best.index(score) + 1 for name, score in scores.items() if score in best}


def sections_of(store: Store, table: PaperTable) -> list[Section]:
    """A section for each of the table's data sets and each other one with results, filled or not."""
    transfer = any(probed_on(dataset) for dataset in table.datasets)
    present = {file.result.dataset for file in store.files if bool(probed_on(file.result.dataset)) == transfer}
    found = []
    for dataset in (*table.datasets, *sorted(present - {*table.datasets})):
        for protocol in PROTOCOLS:
            section = Section(table, dataset, protocol, tuple(_rows(store, table, dataset, protocol)))
            if dataset in table.datasets or section.filled:
                found.append(section)
    return found


def _rows(store: Store, table: PaperTable, dataset: str, protocol: Protocol) -> Iterator[Row]:
    tuned = store.tuned.get((table.id, dataset, protocol), {})
    rows = {
        row.name: _row(store, table, row, dataset, protocol, tuned.get(row.name))
        for row in table.rows
        if not row.untrained
    }
    for paper in table.rows:
        if not paper.untrained:
            yield rows[paper.name]
        else:
            group = _untrained(group for row in rows.values() for group in row.groups)
            published = _published(table, paper, dataset)
            yield Row(paper.name, paper.label, "random", group, ranked=False, published=published)


def _row(
    store: Store,
    table: PaperTable,
    row: PaperRow,
    dataset: str,
    protocol: Protocol,
    tuned: Mapping[str, float] | None,
) -> Row:
    strategy, method, memory, block = table.kind(row)
    group = None if tuned is None else store.find(table, row, dataset, protocol, tuned)
    return Row(
        row.name,
        row.label,
        style_name(row_name(strategy, memory)),
        store.find(table, row, dataset, protocol),
        block,
        method,
        ranked=row.after is not None or strategy not in BOUNDS,
        published=_published(table, row, dataset),
        tuned=group,
        tuned_values=_lr_and_omega(table, row, dataset, tuned or {}, group),
    )


def _lr_and_omega(
    table: PaperTable, row: PaperRow, dataset: str, tuned: Mapping[str, float], group: Group | None
) -> dict[str, float]:
    """lr and ω of tuned results: those of the runs, else as tuned, else the paper's."""
    paper = table.hyperparameters(row, dataset) or {}
    found: dict[str, Any] = {name: float(paper[name]) for name in ("lr", "omega") if paper.get(name)} | dict(tuned)
    if group and group.files:
        found = {name: group.files[0].result.config.get(name) for name in ("lr", "omega")}
    return {name: value for name, value in found.items() if value is not None}


def _published(table: PaperTable, row: PaperRow, dataset: str) -> dict[str, Value]:
    """Final and Avg of the paper; none for settings that it did not run."""
    wanted = {"table": table.source, "method": row.published or row.name, "dataset": dataset.replace(":authors", "")}
    if row.untrained:
        wanted |= {"ssl": "-", "b": "", "n_p": ""}
    else:
        omega = (table.hyperparameters(row, dataset) or {}).get("omega")
        paper = PAPER_VALUES | ({"omega": float(omega)} if omega else {})
        if any(paper.get(name) != value for name, value in table.declared(row).items()):
            return {}
        _, method, _, (_, batch, passes) = table.kind(row)
        wanted |= {"ssl": method or "-", "b": str(batch), "n_p": str(passes)}
    for line in read_csv("results"):
        if all(line[column] == text for column, text in wanted.items()):
            return {
                number: Value(float(line[number]), float(std) if (std := line[f"{number}_std"]) else None, digits=1)
                for number in ("final", "avg")
                if line[number]
            }
    return {}


def _untrained(groups: Iterable[Group]) -> Group:
    """The encoder before the first image, which every run of a table has measured."""
    measured: dict[int, list[ResultFile]] = {}
    for group in groups:
        for seed, run in group.runs.items():
            if "untrained" in run.result.references:
                measured.setdefault(seed, []).append(run)
    conflicts = {}
    for seed, runs in measured.items():
        values = [run.result.references["untrained"] for run in runs]
        if max(values) - min(values) > PROBE_NOISE:
            sentence = (
                f"runs of seed {seed} have {min(values):.2f} and {max(values):.2f} for the same untrained encoder; "
                "its row lacks that seed, but their own numbers count"
            )
            conflicts[seed] = Problem(tuple(run.path for run in runs), sentence)
    return Group(tuple(runs[0] for _, runs in sorted(measured.items())), conflicts, untrained=True)


def experiments(found: Iterable[Section]) -> set[Experiment | None]:
    """The experiments in some sections."""
    return {group.experiment for section in found for row in section.rows for group in row.groups}


def unlisted(store: Store, listed: Collection[Experiment | None]) -> Iterator[Section]:
    """Sections of the experiments that no table has: one for each kind of images, method, data set and protocol."""
    left = [group for experiment, group in store.groups.items() if experiment not in listed]
    for (images, method, dataset, protocol), together in groupby(sorted(left, key=_kind), key=_kind):
        groups = sorted(together, key=_place)
        title = "other runs" + (f", {heading(method)}" if method else "")
        title += "" if images == "test" else f", measured on {images} images"
        table = PaperTable("-".join(filter(None, (UNLISTED, method, images))), title, (), {})
        rows = [_unlisted_row(group, label) for group, label in zip(groups, _labels(groups), strict=True)]
        yield Section(table, dataset, "clean" if protocol == "clean" else "authors", tuple(rows))


def _unlisted_row(group: Group, label: str) -> Row:
    result = group.files[0].result
    name = row_name(result.strategy, result.memory)
    ranked = result.strategy not in BOUNDS
    return Row(f"{name}-{result.key[:8]}", label, style_name(name), group, result.block, result.method, ranked)


def _kind(group: Group) -> tuple[str, ...]:
    result = group.files[0].result
    return result.measured_on, result.method or "", result.dataset, result.protocol


def _place(group: Group) -> tuple[Any, ...]:
    """Rows of one strategy stand together, in the order of what is usually varied."""
    result = group.files[0].result
    name = row_name(result.strategy, result.memory)
    return name, *result.block[1:], result.config.get("lr") or 0.0, result.config.get("omega") or 0.0


def _labels(groups: list[Group]) -> list[str]:
    """The strategy, and settings that differ from the paper's or between the experiments of one strategy.

    A few settings, and more where these leave two experiments with the same label.
    """
    results = [group.files[0].result for group in groups]
    names = [row_label(row_name(result.strategy, result.memory)) for result in results]
    return [
        ", ".join([name, *_marks(result, [other for same, other in zip(names, results, strict=True) if same == name])])
        for name, result in zip(names, results, strict=True)
    ]


def _marks(result: Result, alike: list[Result]) -> list[str]:
    said = ("measure_on", "evaluate")  # by the section's title and columns
    names = dict.fromkeys(name for name in result.overrides if name not in said)
    others = ["stream_batch", "batch", "passes", "memory", *(name for other in alike for name in other.overrides)]
    own, settings = _settings(result), [_settings(other) for other in alike]
    names |= dict.fromkeys(name for name in others if any(other.get(name) != own.get(name) for other in settings))
    order, few = list(names), FEW_SETTINGS
    while few < len(order) and sum(all(s.get(n) == own.get(n) for n in order[:few]) for s in settings) > 1:
        few += 1
    shown = sorted(order[:few], key=list(own).index)
    return [f"{SYMBOLS.get(name, name)} {short_value(own.get(name))}" for name in shown]


def _settings(result: Result) -> dict[str, Any]:
    return result.config | dict(zip(("stream_batch", "batch", "passes"), result.block, strict=True)) | result.overrides


@dataclass(frozen=True)
class Report:
    """The content of a report.

    Attributes:
        sections: the paper's tables in its order, then the unlisted experiments.
        files: every complete result, those in conflict included.
        problems: files that need attention; what they hold entered no number.
        conflicting: files of results that conflict.
    """

    title: str
    sections: tuple[Section, ...]
    files: tuple[ResultFile, ...]
    problems: tuple[Problem, ...]
    conflicting: frozenset[Path] = frozenset()

    @property
    def latest(self) -> str:
        """The day on which the newest result was finished."""
        return max((file.result.finished for file in self.files), default="")[:10]


def read_report(folder: str | Path, title: str = "Online continual self-supervised learning") -> Report:
    """Read a folder of results.

    >>> read_report("no such folder")
    Traceback (most recent call last):
    ...
    ocssl.errors.DataError: 'no such folder' is not a folder of results
    """
    store = read_results(folder)
    if not store.files and not store.problems:
        raise DataError(f"'{folder}' holds no results; 'ocssl paper run' or 'ocssl run' makes some")
    shown = tuple(_shown(store))
    more = {problem for section in shown for problem in section.problems()} - set(store.problems)
    problems = (*store.problems, *sorted(more, key=lambda problem: problem.sentence))
    conflicting = {path for group in store.groups.values() for problem in group.problems for path in problem.paths}
    return Report(title, shown, store.files, problems, frozenset(conflicting))


def _shown(store: Store) -> Iterator[Section]:
    """Sections with a result or a problem that no section before them shows: some runs belong in many tables.

    Training times are a column and a figure of their own, so tables of times are left out.
    """
    listed = [found for table in TABLES.values() if table.shows == "accuracy" for found in sections_of(store, table)]
    seen: set[Path | Problem] = set()
    for section in (*listed, *unlisted(store, experiments(listed))):
        content = section.files() | section.problems()
        if content - seen:
            seen |= content
            yield section
