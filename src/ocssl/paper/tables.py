"""The paper's tables and figures as lists of rows, each a few settings away from a complete configuration.

A new table is one more entry of :data:`TABLES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ocssl.paper.identity import run_name
from ocssl.registry import unknown
from ocssl.runs.config import RunConfig, merged
from ocssl.runs.presets import complete

Settings = Mapping[str, Any]
Protocol = Literal["clean", "authors"]
PROTOCOLS: tuple[Protocol, ...] = ("clean", "authors")


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes:
        name: unique in its table; ``--rows`` and files of tuned values use it.
        label: as the paper prints it.
        settings: what sets it apart, on top of the table's.
        published: what the paper's numbers call it; the name by default.
        after: settings of a run that this one starts from, on top of the table's.
        untrained: not a run of its own, but the encoder that the table's other runs began with.
    """

    name: str
    label: str
    settings: Settings = field(default_factory=dict)
    published: str | None = None
    after: Settings | None = None
    untrained: bool = False


@dataclass(frozen=True)
class Table:
    """A table or figure of the paper.

    Attributes:
        settings: what all its runs share.
        source: which of the paper's tables its published numbers stand in.
        datasets: those of the paper; ``a->b`` trains on one set and probes on another.
        shows: what its cells are about.
    """

    id: str
    title: str
    rows: tuple[Row, ...]
    settings: Settings
    source: Literal["main", "buffer-ablation", "downstream"] = "main"
    datasets: tuple[str, ...] = ("cifar100", "imagenet100")
    shows: Literal["accuracy", "seconds"] = "accuracy"

    def row(self, name: str) -> Row:
        """The row of that name."""
        found = {row.name: row for row in self.rows}
        if name not in found:
            raise unknown(f"row of table '{self.id}'", name, found)
        return found[name]

    def chosen(self, names: Iterable[str]) -> tuple[Row, ...]:
        """The rows of these names; a strategy's name stands for all rows that run it, and no name for all rows."""
        names = list(names)
        for name in names:
            if not any(_answers(row, name) for row in self.rows):
                raise unknown(f"row of table '{self.id}'", name, [row.name for row in self.rows])
        return tuple(row for row in self.rows if not names or any(_answers(row, name) for name in names))


def _answers(row: Row, name: str) -> bool:
    return name in (row.name, row.settings.get("strategy"))


def trained_on(dataset: str) -> str:
    """The set that a table's data set trains on.

    >>> trained_on("cifar100->svhn"), trained_on("cifar100")
    ('cifar100', 'cifar100')
    """
    return dataset.partition("->")[0]


def probed_on(dataset: str) -> str | None:
    """The other set that encoders are measured on, if any.

    >>> probed_on("cifar100->svhn")
    'svhn'
    """
    return dataset.partition("->")[2] or None


def configure(
    table: Table,
    row: Row,
    dataset: str,
    protocol: Protocol,
    *,
    seed: int = 0,
    tuned: Settings | None = None,
    changes: Settings | None = None,
    runs: Path = Path("runs"),
) -> RunConfig:
    """The complete configuration of a row's run.

    Args:
        tuned: lr and ω instead of the paper's.
        changes: settings on top of all others, also for the run that this one starts from.
        runs: where the folders of runs lie; a row that starts from another run looks for it there.

    >>> high = find_table("high-simsiam")
    >>> configure(high, high.row("cla-e"), "cifar100", "clean")["lr"]
    0.3
    """
    common = {"dataset": trained_on(dataset), "protocol": protocol, "seed": seed}
    given = merged({**table.settings, **row.settings, **common, **(tuned or {})}, changes or {})
    if row.after is not None:
        first = first_stage(table, row, dataset, protocol, seed=seed, changes=changes)
        given["init_from"] = str(runs / run_name(first))
    return complete(given)


def first_stage(
    table: Table, row: Row, dataset: str, protocol: Protocol, *, seed: int = 0, changes: Settings | None = None
) -> RunConfig:
    """The configuration of the run that a row's run starts from."""
    begun = replace(row, settings=row.after or {}, after=None)
    return configure(table, begun, dataset, protocol, seed=seed, changes=changes)


def find_table(name: str) -> Table:
    """The table of that id.

    >>> find_table("hihg-simsiam")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: unknown table 'hihg-simsiam'; did you mean 'high-simsiam'? Known: ...
    """
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    return TABLES[name]


def _with(row: Row, mark: str, label: str, **settings: Any) -> Row:
    settings = {**row.settings, **settings}
    return replace(row, name=f"{row.name}-{mark}", label=f"{row.label}, {label}", settings=settings, published=row.name)


IID = Row("iid", "i.i.d.", {"iid": True})
CASSLE = Row("cassle", "CaSSLe", {"strategy": "cassle"})
CASSLE_R = Row("cassle-r", "CaSSLe-R", {"strategy": "cassle-r"})
FINETUNE = Row("finetune", "finetuning", {"strategy": "finetune"})
LUMP = Row("lump", "LUMP", {"strategy": "lump"})
ER_RESERVOIR = Row("er-reservoir", "ER w/ reservoir", {"strategy": "er", "memory": "reservoir"})
ER_FIFO = Row("er-fifo", "ER w/ FIFO", {"strategy": "er", "memory": "fifo"})
MINRED = Row("minred", "MinRed", {"strategy": "minred"})
CLA_B = Row("cla-b", "CLA-b", {"strategy": "cla-b"})
CLA_R = Row("cla-r", "CLA-R", {"strategy": "cla-r"})
CLA_E = Row("cla-e", "CLA-E", {"strategy": "cla-e"})
SCALE = Row("scale", "SCALE", {"strategy": "scale", "method": None})
OSIRIS_R = Row("osiris-r", "Osiris-R", {"strategy": "osiris-r", "method": None})
RANDOM = Row("random", "random encoder", untrained=True)

REPLAY = (IID, CASSLE_R, ER_RESERVOIR, ER_FIFO, MINRED, CLA_R, CLA_E)
OWN_OBJECTIVE = (SCALE, OSIRIS_R)
STREAM_ONLY = (
    replace(IID, name="iid-b10", settings={"iid": True, "batch": 10}, published="iid"),
    CASSLE,
    FINETUNE,
    LUMP,
    CLA_B,
)
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


def _early(first: int, then: int) -> tuple[Row, ...]:
    """CLA for some passes and i.i.d. for the rest, against i.i.d. for all of them."""
    whole = _with(IID, "whole", "all the way", passes=first + then)
    alone = (_with(cla, "first", "alone", passes=first) for cla in (CLA_R, CLA_E))
    onward = replace(_with(IID, "rest", "the rest", passes=then), published=None)
    continued = (
        replace(
            onward, name=f"{cla.name}-iid", label=f"{cla.label}, then i.i.d.", after={**cla.settings, "passes": first}
        )
        for cla in (CLA_R, CLA_E)
    )
    return whole, *alone, *continued


SMOKE = (replace(FINETUNE, settings={**FINETUNE.settings, "batch": 12, "passes": 2}), ER_FIFO, CLA_E, RANDOM)
TINY = {
    "method": "simclr",
    "samples_per_class": 12,
    "image_size": 16,
    "experiences": 3,
    "backbone": "convnet-w8",
    "hidden_dim": 32,
    "output_dim": 64,
    "stream_batch": 12,
    "batch": 24,
    "passes": 1,
    "memory_size": 48,
    "probe": {"max_epochs": 5},
    "device": "cpu",
}

HIGH, LOW = {"budget": "high"}, {"budget": "low"}
SIMSIAM, SIMCLR = {"method": "simsiam"}, {"method": "simclr"}
ONWARD = ("cifar100->svhn", "imagenet100->cars")

TABLES: dict[str, Table] = {
    table.id: table
    for table in (
        Table("high-simsiam", "high CBP, SimSiam", (*REPLAY, *OWN_OBJECTIVE, RANDOM), HIGH | SIMSIAM),
        Table("low-simsiam", "low CBP, SimSiam", BOTH_BLOCKS, LOW | SIMSIAM),
        Table("high-simclr", "high CBP, SimCLR", REPLAY, HIGH | SIMCLR),
        Table("low-simclr", "low CBP, SimCLR", (*STREAM_ONLY, *REPLAY), LOW | SIMCLR),
        Table("buffers", "CLA with other memories", BUFFERS, HIGH | SIMSIAM, source="buffer-ablation"),
        Table("passes-simsiam", "Final against CBP, SimSiam", PASSES, HIGH | SIMSIAM),
        Table("passes-simclr", "Final against CBP, SimCLR", PASSES, HIGH | SIMCLR),
        Table("pretraining-simsiam", "i.i.d. after CLA, SimSiam", _early(3, 3), HIGH | SIMSIAM),
        Table("pretraining-simclr", "i.i.d. after CLA, SimCLR", _early(1, 2), HIGH | SIMCLR),
        Table("downstream-simsiam", "probes on other sets, SimSiam", DOWNSTREAM, HIGH | SIMSIAM, "downstream", ONWARD),
        Table("downstream-simclr", "probes on other sets, SimCLR", DOWNSTREAM, HIGH | SIMCLR, "downstream", ONWARD),
        Table("tau", "CLA-E with other τ", TAU, HIGH | SIMSIAM, datasets=("cifar100",)),
        Table("omega", "CLA with other ω", OMEGA, HIGH | SIMSIAM),
        Table("views", "low CBP, SimSiam, each view alone", BOTH_BLOCKS, LOW | SIMSIAM | {"joint_views": False}),
        Table("times", "training time against CBP", PASSES, HIGH | SIMSIAM, shows="seconds"),
        Table("smoke", "a rehearsal of seconds", SMOKE, TINY, datasets=("shapes",)),
    )
}
