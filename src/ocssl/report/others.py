"""Results that belong in none of the paper's tables: each experiment a row, with what sets it apart in its name."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import groupby
from typing import Any

from ocssl.errors import ConfigError
from ocssl.paper import Cell, Row, Score, Store, Stored, Table
from ocssl.paper.identity import departures, essence
from ocssl.paper.store import Experiment
from ocssl.report.names import label, spell
from ocssl.runs.presets import row_name

OTHER = "other"
SHORT = {"batch": "b", "passes": "n_p", "omega": "ω", "tau": "τ", "stream_batch": "b_s"}
SAID = ("measure_on", "evaluate")
"""What the table's title says, and whether it has an Avg."""
FEW_SETTINGS = 3


def other_cells(store: Store, claimed: Collection[Experiment | None]) -> Iterator[Cell]:
    """A cell for each experiment that no table claims; what was measured on other images stands in another table."""
    left = [stored for stored in store.results if stored.experiment not in claimed]
    for (images, method, *_), together in groupby(sorted(left, key=_kind), key=_kind):
        experiments: dict[Experiment, Stored] = {}
        for stored in together:
            experiments.setdefault(stored.experiment, stored)
        firsts = sorted(experiments.values(), key=_place)
        title = "other runs" + (f", {spell(method)}" if method else "")
        title += "" if images == "test" else f", measured on {images} images"
        table = Table("-".join(filter(None, (OTHER, method, images))), title, (), {})
        for stored, name in zip(firsts, _labels(firsts), strict=True):
            yield _cell(store, table, stored, name)


def _kind(stored: Stored) -> tuple[str, ...]:
    """Results of one kind may stand in one table."""
    result = stored.result
    return stored.config.measure_on, result.method or "", result.dataset, result.protocol


def _place(stored: Stored) -> tuple[Any, ...]:
    """Rows of one name stand together, in the order of what is usually varied."""
    config = stored.config
    return row_name(config), config["batch"], config["passes"], config["lr"], config["omega"] or 0.0


def _cell(store: Store, table: Table, stored: Stored, name: str) -> Cell:
    config, dataset = stored.config, stored.result.dataset
    runs = store.runs(config, dataset)
    return Cell(
        table,
        Row(f"{row_name(config)}-{stored.experiment[0][:8]}", name),
        dataset,
        stored.result.protocol,
        tuning="paper",
        config=config,
        final=Score({seed: run.result.final for seed, run in runs.items() if run.result.final is not None}),
        avg=Score({seed: run.result.avg for seed, run in runs.items() if run.result.avg is not None}),
        runs=runs,
        problems=tuple(dict.fromkeys(store.disputed(config, dataset).values())),
    )


def _labels(experiments: list[Stored]) -> list[str]:
    """The strategy's name and what sets the experiment apart: from the paper's, and from others under that name.

    A few settings, and more where those leave two experiments with one name.
    """
    names = [label(row_name(stored.config)) for stored in experiments]
    settings = [essence(stored.config) for stored in experiments]
    return [
        ", ".join([name, *_marks(stored, [other for twin, other in zip(names, settings, strict=True) if twin == name])])
        for name, stored in zip(names, experiments, strict=True)
    ]


def _marks(stored: Stored, twins: list[dict[str, Any]]) -> list[str]:
    own = essence(stored.config)
    differing = [name for name, value in own.items() if any(twin[name] != value for twin in twins)]
    with suppress(ConfigError):  # a strategy that is not installed here has no settings of the paper's
        differing = [*(name for name in departures(stored.config) if name not in SAID), *differing]
    names = list(dict.fromkeys(differing))
    few = FEW_SETTINGS
    while few < len(names) and sum(all(twin[name] == own[name] for name in names[:few]) for twin in twins) > 1:
        few += 1
    return [f"{SHORT.get(name, name)} {_short(own[name])}" for name in own if name in names[:few]]


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
