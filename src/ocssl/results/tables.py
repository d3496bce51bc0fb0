"""The paper's tables and figures, as ``published/tables.yaml`` lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ocssl.registry import unknown
from ocssl.results.names import row_label, row_name
from ocssl.results.published import choose_line, hyperparameter_lines, read_yaml
from ocssl.results.result import PROTOCOLS, Block, Protocol, Result, trained_on

Settings = Mapping[str, Any]
Kind = tuple[str, str | None, str | None, Block]
"""Strategy, method, memory and block: what every result of a row has."""

NAMED = frozenset({"strategy", "method", "memory", "stream", "stream_batch", "batch", "passes", "budget", "device"})
"""Settings that :data:`Kind` covers, or that do not change the experiment."""

ROW_KEYS = frozenset({"label", "published", "after", "untrained"})
"""Keys of a row that are no settings."""


@dataclass(frozen=True)
class PaperRow:
    """One row of a table.

    Attributes:
        name: unique in its table; ``--rows`` and files of tuned values use it.
        label: as the paper prints it.
        settings: those that its runs are started with.
        published: the row's name in the paper's numbers.
        after: settings of the run that its runs start from.
        untrained: no run of its own, but the encoder before the first image of the table's other runs.
    """

    name: str
    label: str
    settings: Settings = field(default_factory=dict)
    published: str = ""
    after: Settings | None = None
    untrained: bool = False

    @property
    def strategy(self) -> str:
        """The strategy; ``iid`` for i.i.d. training."""
        return "iid" if self.settings.get("stream") == "iid" else str(self.settings.get("strategy", ""))

    @property
    def names(self) -> set[str]:
        """The names by which it is chosen: its own, its strategy's, the paper's for that with this memory.

        A row that goes on from another run is chosen by the strategy of that run as well.
        """
        strategies = {self.strategy, row_name(self.strategy, self.settings.get("memory"))}
        return {self.name, *strategies, *([] if self.after is None else [self.after["strategy"]])} - {""}

    @cached_property
    def kind(self) -> Kind:
        """Strategy, method, memory and block of its results."""
        given, paper = self.settings, self.hyperparameters()
        b, n_p = given.get("batch", paper.get("b", 0)), given.get("passes", paper.get("n_p", 0))
        return (
            self.strategy,
            given.get("method"),
            given.get("memory"),
            (given.get("stream_batch", 10), int(b), int(n_p)),
        )

    @property
    def declared(self) -> dict[str, Any]:
        """Settings of its results besides :attr:`kind`; all others are the paper's."""
        return {name: value for name, value in self.settings.items() if name not in NAMED}

    def hyperparameters(self, dataset: str = "cifar100") -> dict[str, str]:
        """The paper's b, n_p, lr and ω for the row, as text; empty where the paper has none."""
        given, base = self.settings, trained_on(dataset).partition(":")[0]
        name = row_name(self.strategy, given.get("memory"))
        lines = hyperparameter_lines(given.get("budget"), name, given.get("method"), base)
        return choose_line(lines, given.get("batch"), given.get("passes"))

    @property
    def tuning(self) -> dict[str, list[float | bool]]:
        """Values that its tuning tries, by setting; empty where it is not tuned."""
        grid: dict[str, list[float | bool]]
        grid = read_yaml("tables")["tuning"].get(self.settings.get("budget"), {}).get(self.name, {})
        return grid

    def matches(self, result: Result, tuned: Settings) -> bool:
        """Whether a result of the row's kind belongs in it: its other settings are declared, tuned or the paper's."""
        declared = self.declared | dict(tuned)
        if self.after is not None:
            name = "-{strategy}-{memory}-{budget}-".format(**self.after) + result.protocol
            if not re.search(rf"{name}(-np\d+)?-seed\d+$", str(result.config.get("init_from"))):
                return False
            declared["init_from"] = result.config["init_from"]
        known = {name.partition(".")[0] for name in result.overrides} <= declared.keys() | NAMED
        # A setting that is newer than the result was off.
        return known and all(result.config.get(name, 0) == value for name, value in declared.items())


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of the paper.

    Attributes:
        source: the table of the paper with its published numbers.
        datasets: those of the paper; ``a->b`` trains on a and probes on b.
        protocols: those under which it is run.
    """

    id: str
    title: str
    rows: tuple[PaperRow, ...]
    source: Literal["main", "buffer-ablation", "downstream"] = "main"
    datasets: tuple[str, ...] = ("cifar100", "imagenet100")
    budget: str = ""
    shows: Literal["accuracy", "seconds"] = "accuracy"
    protocols: tuple[Protocol, ...] = PROTOCOLS

    @property
    def names(self) -> set[str]:
        """The names that :meth:`select` takes: those by which its rows are chosen."""
        return {name for row in self.rows for name in row.names}

    def row(self, name: str) -> PaperRow:
        """The row of that name."""
        found = {row.name: row for row in self.rows}
        if name not in found:
            raise unknown("row", name, found, of=f"table '{self.id}'")
        return found[name]

    def select(self, names: Iterable[str]) -> tuple[PaperRow, ...]:
        """The rows that are chosen by these names; a strategy's name stands for all its rows, no name for all rows."""
        wanted = set(names)
        for name in wanted - self.names:
            self.row(name)  # unknown
        return tuple(row for row in self.rows if not wanted or row.names & wanted)


def find_table(name: str) -> PaperTable:
    """The table of that id.

    >>> find_table("hihg-simsiam")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: unknown table 'hihg-simsiam'; did you mean 'high-simsiam'? Known: ...
    """
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    return TABLES[name]


def _read_tables() -> Iterator[PaperTable]:
    content = read_yaml("tables")
    for id, table in content["tables"].items():
        settings, variants = table.get("settings", {}), table.get("variants", {"": {}})
        lines = table.get("own", {}) | {name: content["rows"][name] for name in table.get("rows", ())}
        rows = [
            _row(name, line, mark, variant, settings)
            for name, line in lines.items()
            for mark, variant in variants.items()
        ]
        given = {key: table[key] for key in ("source", "shows") if key in table}
        given |= {key: tuple(table[key]) for key in ("datasets", "protocols") if key in table}
        yield PaperTable(id, table["title"], tuple(rows), budget=settings.get("budget", ""), **given)


def _row(name: str, line: Settings, mark: str, variant: Settings, settings: Settings) -> PaperRow:
    """A row of a table: the settings of the table, of the row and of its variant, each on top of those before."""
    own = {key: value for key, value in line.items() if key not in ROW_KEYS}
    varied = {key: value for key, value in variant.items() if key != "label"}
    label = row_label(line.get("label", name))
    return PaperRow(
        name + mark,
        f"{label}, {variant['label']}" if variant else label,
        {**settings, **own, **varied},
        published=line.get("published", name + mark if mark.startswith("+") else name),
        after={**settings, **line["after"]} if "after" in line else None,
        untrained=line.get("untrained", False),
    )


TABLES: dict[str, PaperTable] = {table.id: table for table in _read_tables()}
