"""Joins the paper's tables with results: one section for each table, data set and protocol.

Results of two protocols, of two data sets, of test and validation images or of single images and several crops never
share a section, a row or a mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from ocssl.results.differences import best_rows
from ocssl.results.names import file_part, flat_settings, heading, row_name, style_name
from ocssl.results.published import published_results
from ocssl.results.read import Group, Problem, ResultFile, Store
from ocssl.results.result import Block, Protocol, Result, probed_on
from ocssl.results.table import Value
from ocssl.results.tables import PaperRow, PaperTable

BOUNDS = frozenset({"iid", "cassle", "cassle-r"})
"""Strategies that the paper prints in italics: they use more than the stream, so they are not ranked."""

PAPER_VALUES: dict[str, Any] = {
    "tau": 0.999,
    "joint_views": False,
    "class_order": "authors",
    "sample_order": "seed",
    "conv1_init": "torch",
}
"""The paper's values of settings that some tables vary; its ω are in ``hyperparameters.csv``."""

SAME_BUDGET = 1.05  # factor between CBP that count as equal
PROBE_NOISE = 0.5  # points by which probes of one floor may differ between machines
FLOORS = {"untrained": "untrained encoder", "pixels": "raw pixels", "histogram": "colour histogram"}
"""Floors: what every encoder should beat, by name in result files, as tables label it."""

MEASURED = ("data_seed", "samples_per_class", "validation_fraction", "image_size", "fit", "pixel_range", "probe")
"""Settings that every floor depends on, besides data set, protocol and images."""
NETWORK = ("backbone", "width", "stem", "conv1_init", "variant", "mean", "std", "weights")
ENCODERS = {"untrained": (*NETWORK, "eval_crops"), "initial": (*NETWORK, "eval_crops", "init_from")}
"""Floors that are an encoder before its first image, and the further settings that they depend on."""

UNLISTED = "other"  # begins the ids of sections that are no table of the paper
FLOOR_STYLE = "random"


@dataclass(frozen=True)
class Row:
    """A row of a section.

    Attributes:
        style: its key in :data:`ocssl.results.names.STYLES`.
        ours: results with the paper's lr and ω.
        block: b_s, b and n_p; None for a floor.
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
    block: Block | None = None
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
    def distinct(self) -> tuple[Group, ...]:
        """:attr:`groups`, but only one where tuning found the paper's own values."""
        return (self.ours,) if self.tuned is self.ours else self.groups


@dataclass(frozen=True)
class Section:
    """One table for one data set and one protocol.

    Attributes:
        rows: those of the table.
        floors: :data:`FLOORS` that are no row of the table, measured or not.
        shared: settings that all rows share and that differ from the paper's.
    """

    table: PaperTable
    dataset: str
    protocol: Protocol
    rows: tuple[Row, ...]
    floors: tuple[Row, ...] = ()
    shared: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Unique in a report, and fit for a file name."""
        return f"{file_part(self.table.id)}-{file_part(self.dataset)}-{self.protocol}"

    @property
    def method(self) -> str:
        """The objective of the rows without one of their own; empty where there are none."""
        return next((row.method for row in self.rows if row.method), "")

    @property
    def title(self) -> str:
        """Data set and table."""
        return f"{heading(self.dataset)}, {self.table.title}"

    @property
    def block(self) -> Block | None:
        """b_s, b and n_p where all rows share them."""
        found = {row.block for row in self.rows if row.block}
        return found.pop() if len(found) == 1 else None

    def row(self, name: str) -> Row:
        """The row of that name."""
        return next(row for row in self.rows if row.name == name)

    def label(self, row: Row) -> str:
        """The label of a row; with b where two rows have the same (i.i.d. training at the low budget)."""
        alone = sum(other.label == row.label for other in self.rows) == 1
        return row.label if alone or not row.block else f"{row.label}, b = {row.block[1]}"

    def group_label(self, row: Row, group: Group) -> str:
        """The label of a group of a row: that of the row, and whether lr and ω were tuned."""
        return self.label(row) + ("" if group is row.ours else ", tuned")

    @property
    def is_unlisted(self) -> bool:
        """Whether the paper has no such table."""
        return self.table.id.startswith(UNLISTED)

    @property
    def groups(self) -> list[Group]:
        """The groups of all rows."""
        return [group for row in self.rows for group in row.groups]

    @property
    def content(self) -> set[Path | Problem]:
        """Files of the results that count, and why others do not."""
        groups = [*self.groups, *(row.ours for row in self.floors)]
        return {part for group in groups for parts in (group.paths, group.problems) for part in parts}

    def best(self, number: str, *, tuned: bool = False) -> set[str]:
        """The compared rows with the highest number, by our results or by the tuned ones; see :func:`best_groups`."""
        ranked = {row.name: row.tuned if tuned else row.ours for row in self.rows if row.ranked}
        return best_groups({name: group for name, group in ranked.items() if group}, number)


def best_groups(groups: Mapping[str, Group], number: str) -> set[str]:
    """The groups with the highest number, as :func:`ocssl.results.differences.best_rows` finds them.

    There are none where groups were measured in different ways, had different budgets or saw different streams.
    """
    values = {name: getattr(group, number) for name, group in groups.items() if getattr(group, number)}
    results = [run.result for name in values for run in groups[name].runs.values()]
    budgets = {result.cbp_planned for result in results}
    if len(values) < 2 or max(budgets) > SAME_BUDGET * min(budgets) or len({one.measure for one in results}) > 1:
        return set()
    return best_rows(values) if all(one.same_stream(other) for one, other in combinations(results, 2)) else set()


def sections_of(store: Store, table: PaperTable) -> list[Section]:
    """A section for each of the table's data sets and each other one with results, filled or not."""
    transfer = any(map(probed_on, table.datasets))
    present = {file.result.dataset for file in store.files if bool(probed_on(file.result.dataset)) == transfer}
    found = (
        make_section(store, table, dataset, protocol, tuple(_rows(store, table, dataset, protocol)))
        for dataset in (*table.datasets, *sorted(present - {*table.datasets}))
        for protocol in table.protocols
    )
    return [section for section in found if section.dataset in table.datasets or section.content]


def make_section(store: Store, table: PaperTable, dataset: str, protocol: Protocol, rows: tuple[Row, ...]) -> Section:
    """A section of these rows, with the floors that its runs measured."""
    held = {row.ours.floor for row in rows}
    groups = [group for row in rows for group in row.groups]
    floors = (
        Row(name, label, FLOOR_STYLE, _floor(store, name, groups), ranked=False)
        for name, label in FLOORS.items()
        if name not in held and table.shows == "accuracy"
    )
    return Section(table, dataset, protocol, rows, tuple(floors))


def _rows(store: Store, table: PaperTable, dataset: str, protocol: Protocol) -> Iterator[Row]:
    tuned = store.tuned.get((table.id, dataset, protocol), {})
    groups: list[Group] = []
    for row in table.rows:
        published = _published(table, row, dataset)
        if row.untrained:  # the last row, after those that measured it
            untrained = _floor(store, "untrained", groups)
            yield Row(row.name, row.label, FLOOR_STYLE, untrained, ranked=False, published=published)
            continue
        strategy, method, memory, block = row.kind
        paper, values = row.hyperparameters(dataset), tuned.get(row.name)
        found = Row(
            row.name,
            row.label,
            style_name(row_name(strategy, memory)),
            store.find(row, dataset, protocol),
            block,
            method,
            ranked=row.after is not None or strategy not in BOUNDS,
            published=published,
            tuned=None if values is None else store.find(row, dataset, protocol, values),
            tuned_values={name: float(paper[name]) for name in ("lr", "omega") if paper.get(name)} | dict(values or {}),
        )
        groups += found.groups
        yield found


def _published(table: PaperTable, row: PaperRow, dataset: str) -> dict[str, Value]:
    """Final and Avg of the paper; none for settings that it did not run."""
    _, method, _, (_, b, n_p) = row.kind
    block = ("-", "", "") if row.untrained else (method or "-", str(b), str(n_p))
    omega = row.hyperparameters(dataset).get("omega")
    paper = PAPER_VALUES | ({"omega": float(omega)} if omega else {})
    if not row.untrained and any(paper.get(name) != value for name, value in row.declared.items()):
        return {}
    line = published_results().get((table.source, *block, row.published, dataset.replace(":authors", "")), {})
    return {
        number: Value(float(line[number]), float(std) if (std := line[f"{number}_std"]) else None, digits=1)
        for number in ("final", "avg")
        if line.get(number)
    }


def _floor(store: Store, name: str, groups: Iterable[Group]) -> Group:
    """A floor as the runs of these groups measured it, and results of floors alone that were measured like them.

    It is unknown where the runs were measured on different images, or began with different networks.
    """
    runs = [run for group in groups if not group.floor for run in group.runs.values()]
    alike = {_measured_like(run.result, name) for run in runs}
    if len(alike) != 1:
        return Group(floor=name)
    seeds = {run.result.seed for run in runs}
    more = [file for file in store.floors if file.result.seed in seeds and _measured_like(file.result, name) in alike]
    same = [file for file in more if all(file.result.same_pixels(run.result) for run in runs)]
    return floor_group(name, [*runs, *same])


def floor_group(name: str, files: Sequence[ResultFile]) -> Group:
    """A floor by seed, from results that were measured alike; a seed for which they disagree does not count."""
    held: list[ResultFile] = []
    conflicts: dict[int, Problem] = {}
    for seed in sorted({file.result.seed for file in files}):
        own = [file for file in files if file.result.seed == seed]
        linear = [file for file in own if name in file.result.references]
        near = [file for file in own if name in file.result.knn_references]
        held += {file.path: file for file in (*linear[:1], *near[:1])}.values()
        values = [file.result.references[name] for file in linear]
        if values and max(values) - min(values) > PROBE_NOISE:
            sentence = (
                f"runs of seed {seed} have {min(values):.2f} and {max(values):.2f} for the same "
                f"{FLOORS.get(name, f'{name} encoder')}; its row lacks that seed, but their own numbers count"
            )
            conflicts[seed] = Problem(tuple(file.path for file in linear), sentence)
    return Group(tuple(held), conflicts, floor=name)


def floor_settings(result: Result, name: str) -> dict[str, Any]:
    """The settings that a floor depends on, besides data set, protocol and images; groups with a dot."""
    fit = "squash" if result.protocol == "authors" else "crop"
    earlier = {"conv1_init": "kaiming", "eval_crops": 1, "fit": fit}  # of results that are older than these settings
    given = {**earlier, **result.config, **result.overrides}  # of init_from the name, without the seed
    encoder = (*ENCODERS[name], *result.backbone_settings) if name in ENCODERS else ()
    return flat_settings({setting: given.get(setting) for setting in (*MEASURED, *encoder)})


def _measured_like(result: Result, name: str) -> str:
    """All that a floor depends on: equal for results in which it is the same number, but for :data:`PROBE_NOISE`."""
    settings = floor_settings(result, name)
    return repr((result.dataset, result.protocol, result.measured_on, settings))
