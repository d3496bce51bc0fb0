"""The paper's tables and figures as data: rows, each a few settings apart from the rest of its table.

A new table is one more entry of :data:`TABLES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ocssl.common.files import slug
from ocssl.registry import unknown
from ocssl.results.names import LABELS, row_name
from ocssl.results.published import hyperparameters
from ocssl.results.result import Protocol, Result, trained_on

Settings = Mapping[str, Any]
Kind = tuple[str, str | None, str | None, tuple[int, int, int]]
"""Strategy, method, memory, and the block b_s, b, n_p: what every result of a row has."""

PAPER_STREAM_BATCH = 10
ALIGNING = frozenset({"cassle", "cassle-r", "cla-b", "cla-r", "cla-e"})
"""Strategies with a weight ω."""

NAMED = frozenset({"strategy", "method", "memory", "stream", "stream_batch", "batch", "passes", "budget", "device"})
"""Settings that a :data:`Kind` covers, and those that do not change the experiment."""


@dataclass(frozen=True)
class PaperRow:
    """One row of a table.

    Attributes:
        name: unique in its table; ``--rows`` and files of tuned values use it.
        label: as the paper prints it.
        settings: those of the row, on top of the table's.
        published: the row's name in the paper's numbers; ``name`` by default.
        after: settings of the run that this one starts from, on top of the table's.
        untrained: no run of its own, but the encoder before the first image of the table's other runs.
    """

    name: str
    label: str
    settings: Settings = field(default_factory=dict)
    published: str | None = None
    after: Settings | None = None
    untrained: bool = False

    @property
    def strategy(self) -> str:
        """The strategy; ``iid`` for i.i.d. training."""
        return "iid" if self.settings.get("stream") == "iid" else str(self.settings.get("strategy", ""))


@dataclass(frozen=True)
class PaperTable:
    """A table or figure of the paper.

    Attributes:
        settings: those that all its runs share.
        source: the table of the paper with its published numbers.
        datasets: those of the paper; ``a->b`` trains on a and probes on b.
        shows: what its cells are.
    """

    id: str
    title: str
    rows: tuple[PaperRow, ...]
    settings: Settings
    source: Literal["main", "buffer-ablation", "downstream"] = "main"
    datasets: tuple[str, ...] = ("cifar100", "imagenet100")
    shows: Literal["accuracy", "seconds"] = "accuracy"

    def row(self, name: str) -> PaperRow:
        """The row of that name."""
        found = {row.name: row for row in self.rows}
        if name not in found:
            raise unknown(f"row of table '{self.id}'", name, found)
        return found[name]

    def select(self, names: Iterable[str]) -> tuple[PaperRow, ...]:
        """The rows of these names; a strategy's name stands for all its rows, and no name for all rows."""
        names = list(names)
        for name in names:
            if not any(name in (row.name, row.strategy) for row in self.rows):
                raise unknown(f"row of table '{self.id}'", name, [row.name for row in self.rows])
        return tuple(row for row in self.rows if not names or {row.name, row.strategy} & {*names})

    def declared(self, row: PaperRow) -> dict[str, Any]:
        """Settings that set the row apart, besides those of its :data:`Kind`."""
        return {name: value for name, value in {**self.settings, **row.settings}.items() if name not in NAMED}

    def kind(self, row: PaperRow) -> Kind:
        """Strategy, method, memory and block of a row's results."""
        settings = {**self.settings, **row.settings}
        paper = self.hyperparameters(row) or {}
        batch, passes = settings.get("batch", paper.get("b", 0)), settings.get("passes", paper.get("n_p", 0))
        block = settings.get("stream_batch", PAPER_STREAM_BATCH), int(batch), int(passes)
        return row.strategy, settings.get("method"), settings.get("memory"), block

    def hyperparameters(self, row: PaperRow, dataset: str = "cifar100") -> dict[str, str] | None:
        """The paper's b, n_p, lr and ω for a row; None where it prints none."""
        settings = {**self.settings, **row.settings}
        name = row_name(row.strategy, settings.get("memory"))
        asked: dict[str, Any] = {"batch": settings.get("batch"), "passes": settings.get("passes")}
        return hyperparameters(settings.get("budget"), name, settings.get("method"), base_set(dataset), **asked)

    def first_run(self, row: PaperRow, dataset: str, protocol: Protocol) -> str:
        """The name, without its seed, of the run that the runs of a row start from."""
        first = replace(row, settings=row.after or {})
        settings = {**self.settings, **first.settings}
        parts = (trained_on(dataset), settings["method"], first.strategy, settings["memory"], settings["budget"])
        same = int((self.hyperparameters(first) or {}).get("n_p", "0")) == settings["passes"]
        return slug("-".join([*parts, protocol])) + ("" if same else f"-np{settings['passes']}")

    def matches(self, row: PaperRow, result: Result, tuned: Settings) -> bool:
        """Whether a result of the row's :data:`Kind` belongs in it: its other settings are the row's or the paper's.

        Args:
            tuned: lr and ω instead of the paper's.
        """
        declared = {**self.declared(row), **tuned}
        if row.after is not None:
            begun = Path(str(result.config.get("init_from"))).name.removesuffix(f"-seed{result.seed}")
            if begun != self.first_run(row, result.dataset, result.protocol):
                return False
            declared["init_from"] = result.config["init_from"]
        known = result.overrides.keys() <= declared.keys()
        return known and all(result.config.get(name) == value for name, value in declared.items())


def base_set(dataset: str) -> str:
    """The data set whose published numbers apply: that of the training images, whatever its classes.

    >>> base_set("imagenet100:authors"), base_set("cifar100->svhn")
    ('imagenet100', 'cifar100')
    """
    return trained_on(dataset).partition(":")[0]


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


def _row(name: str, memory: str | None = None, **settings: Any) -> PaperRow:
    given = {"strategy": name, "memory": memory} | settings
    return PaperRow(name, LABELS[name], {key: value for key, value in given.items() if key != "memory" or value})


def _with(row: PaperRow, mark: str, label: str, **settings: Any) -> PaperRow:
    settings = {**row.settings, **settings}
    return replace(row, name=f"{row.name}-{mark}", label=f"{row.label}, {label}", settings=settings, published=row.name)


IID = PaperRow("iid", LABELS["iid"], {"stream": "iid"})
CASSLE, CASSLE_R = _row("cassle"), _row("cassle-r", "reservoir")
FINETUNE, LUMP = _row("finetune"), _row("lump", "reservoir")
ER_RESERVOIR = _row("er-reservoir", "reservoir", strategy="er")
ER_FIFO = _row("er-fifo", "fifo", strategy="er")
MINRED = _row("minred", "minred")
CLA_B, CLA_R, CLA_E = _row("cla-b"), _row("cla-r", "fifo"), _row("cla-e", "fifo")
SCALE = _row("scale", "reservoir", method=None)
OSIRIS_R = _row("osiris-r", "reservoir", method=None)
RANDOM = PaperRow("random", LABELS["random"], untrained=True)

REPLAY = (IID, CASSLE_R, ER_RESERVOIR, ER_FIFO, MINRED, CLA_R, CLA_E)
OWN_OBJECTIVE = (SCALE, OSIRIS_R)
IID_B10 = replace(IID, name="iid-b10", settings={"stream": "iid", "batch": 10}, published="iid")
STREAM_ONLY = (IID_B10, CASSLE, FINETUNE, LUMP, CLA_B)
BOTH_BLOCKS = (*STREAM_ONLY, *REPLAY, *OWN_OBJECTIVE, RANDOM)
DOWNSTREAM = (IID, ER_RESERVOIR, ER_FIFO, MINRED, SCALE, OSIRIS_R, CLA_R, CLA_E)

BUFFERS = tuple(
    replace(
        row, name=f"{row.name}+{memory}", label=f"{row.label}, {label}", settings={**row.settings, "memory": memory}
    )
    for row in (CLA_R, CLA_E)
    for memory, label in (("reservoir", "reservoir"), ("minred", "MinRed"), ("fifo", "FIFO"))
)
PASSES = tuple(
    _with(row, mark, label, **settings)
    for row in (*REPLAY, *OWN_OBJECTIVE)
    for mark, label, settings in (
        ("low", "low CBP", {"budget": "low"}),
        ("np1", "n_p = 1", {"passes": 1}),
        ("np3", "n_p = 3", {}),
        ("np6", "n_p = 6", {"passes": 6}),
    )
)
TAU = tuple(_with(CLA_E, f"tau{tau}", f"τ = {tau}", tau=tau) for tau in (0.9, 0.99, 0.999, 0.9999))
OMEGA = tuple(
    _with(row, f"omega{omega}", f"ω = {omega}", omega=omega) for row in (CLA_R, CLA_E) for omega in (0.1, 0.3, 1.0, 3.0)
)


def _early(first: int, then: int) -> tuple[PaperRow, ...]:
    """CLA for some passes and i.i.d. training for the rest, against i.i.d. training for all of them."""
    whole = _with(IID, "whole", "all the way", passes=first + then)
    alone = (_with(cla, "first", "alone", passes=first) for cla in (CLA_R, CLA_E))
    rest = {**IID.settings, "passes": then}
    continued = (
        PaperRow(f"{cla.name}-iid", f"{cla.label}, then i.i.d.", rest, after={**cla.settings, "passes": first})
        for cla in (CLA_R, CLA_E)
    )
    return whole, *alone, *continued


SMOKE = (replace(FINETUNE, settings={**FINETUNE.settings, "batch": 12, "passes": 2}), ER_FIFO, CLA_E, RANDOM)
TINY = {
    "method": "simclr",
    "samples_per_class": 12,
    "image_size": 16,
    "experiences": 3,
    "backbone": "convnet",
    "width": 8,
    "hidden_dim": 32,
    "output_dim": 64,
    "stream_batch": 12,
    "batch": 24,
    "passes": 1,
    "memory_size": 48,
    "probe": {"lr": 0.05, "batch": 256, "patience": 5, "factor": 3.0, "min_lr": 0.0001, "max_epochs": 5},
    "device": "cpu",
}

HIGH, LOW = {"budget": "high"}, {"budget": "low"}
SIMSIAM, SIMCLR = {"method": "simsiam"}, {"method": "simclr"}
TRANSFER = ("cifar100->svhn", "imagenet100->cars")

TABLES: dict[str, PaperTable] = {
    table.id: table
    for table in (
        PaperTable("high-simsiam", "high CBP, SimSiam", (*REPLAY, *OWN_OBJECTIVE, RANDOM), HIGH | SIMSIAM),
        PaperTable("low-simsiam", "low CBP, SimSiam", BOTH_BLOCKS, LOW | SIMSIAM),
        PaperTable("high-simclr", "high CBP, SimCLR", REPLAY, HIGH | SIMCLR),
        PaperTable("low-simclr", "low CBP, SimCLR", (*STREAM_ONLY, *REPLAY), LOW | SIMCLR),
        PaperTable("buffers", "CLA with other memories", BUFFERS, HIGH | SIMSIAM, "buffer-ablation"),
        PaperTable("passes-simsiam", "Final against CBP, SimSiam", PASSES, HIGH | SIMSIAM),
        PaperTable("passes-simclr", "Final against CBP, SimCLR", PASSES, HIGH | SIMCLR),
        PaperTable("pretraining-simsiam", "i.i.d. after CLA, SimSiam", _early(3, 3), HIGH | SIMSIAM),
        PaperTable("pretraining-simclr", "i.i.d. after CLA, SimCLR", _early(1, 2), HIGH | SIMCLR),
        PaperTable(
            "downstream-simsiam", "probes on other sets, SimSiam", DOWNSTREAM, HIGH | SIMSIAM, "downstream", TRANSFER
        ),
        PaperTable(
            "downstream-simclr", "probes on other sets, SimCLR", DOWNSTREAM, HIGH | SIMCLR, "downstream", TRANSFER
        ),
        PaperTable("tau", "CLA-E with other τ", TAU, HIGH | SIMSIAM, datasets=("cifar100",)),
        PaperTable("omega", "CLA with other ω", OMEGA, HIGH | SIMSIAM),
        PaperTable("views", "low CBP, SimSiam, each view alone", BOTH_BLOCKS, LOW | SIMSIAM | {"joint_views": False}),
        PaperTable("times", "training time against CBP", PASSES, HIGH | SIMSIAM, shows="seconds"),
        PaperTable("smoke", "a rehearsal of seconds", SMOKE, TINY, datasets=("shapes",)),
    )
}
