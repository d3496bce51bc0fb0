"""Learning rates and ω that we tuned ourselves, kept in the store beside the results they led to.

The paper's were tuned for the authors' augmentation. A file ``tuned/TABLE@DATASET@PROTOCOL.yaml`` in the store maps
rows of that table to other values::

    er-fifo: {lr: 0.2}
    cla-e: {lr: 0.3, omega: 1.0}

A result counts as tuned by us if its own configuration has these values. The best configuration of a sweep,
``best.yaml``, is read as the line of the row it belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import yaml

from ocssl.errors import ConfigError, unreadable
from ocssl.experiments.config import read_yaml
from ocssl.experiments.folder import write_atomically, writing
from ocssl.paper.tables import PROTOCOLS, Protocol, Table, find_table

FOLDER = "tuned"
TUNABLE = ("lr", "omega")

Tuned = tuple[str, str, Protocol]
"""A table's id, a data set and a protocol."""
TunedValues = Mapping[str, Mapping[str, float]]
"""Settings by row."""


def read_tuned(path: Path) -> dict[Tuned, TunedValues]:
    """A file of the store, under what its name says."""
    table, dataset, protocol = (*path.stem.split("@"), "", "")[:3]
    for known in PROTOCOLS:
        if protocol == known:
            return {(table, unquote(dataset), known): read_values(path, find_table(table))}
    raise ConfigError(f"'{path}' must be called TABLE@DATASET@PROTOCOL.yaml, like high-simsiam@cifar100@clean.yaml")


def read_values(path: Path, table: Table) -> TunedValues:
    """Tuned values by row of a table, from a file of them or from the best configuration of a sweep."""
    try:
        given = read_yaml(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(unreadable(path, error)) from error
    if not isinstance(given, dict):
        raise ConfigError(f"'{path}' must map rows to values, like 'cla-e: {{lr: 0.3, omega: 1.0}}'")
    if "strategy" in given:
        return _of_configuration(given, path, table)
    for row, values in given.items():
        table.row(row)
        right = isinstance(values, dict) and values and all(_is_number(values, name) for name in values)
        if not right:
            raise ConfigError(f"'{path}' must give {row} numbers for lr, omega or both, not {values!r}")
    return given


def _of_configuration(given: Mapping[str, Any], path: Path, table: Table) -> TunedValues:
    """A whole configuration's lr and ω, for the row that has the rest of it."""
    for row in table.rows:
        asked = {**table.settings, **row.settings}
        if row.settings and all(given.get(name) == value for name, value in asked.items()):
            return {row.name: {name: given[name] for name in TUNABLE if given.get(name) is not None}}
    raise ConfigError(f"'{path}' is the configuration of no row of table '{table.id}'")


def declare(values: TunedValues, store: Path, which: Tuned) -> None:
    """Keep tuned values in a store, where results made with them will be known by them."""
    table, dataset, protocol = which
    path = store / FOLDER / f"{table}@{quote(dataset, safe='')}@{protocol}.yaml"
    before = read_values(path, find_table(table)) if path.exists() else {}
    for row in values:
        if row in before and before[row] != values[row]:
            raise ConfigError(f"'{path}' has {before[row]} for {row}, not {values[row]}; remove that line to tune anew")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = {row: dict(numbers) for row, numbers in {**before, **values}.items()}
        write_atomically(path, yaml.safe_dump(lines, default_flow_style=None, sort_keys=False))


def _is_number(values: Mapping[str, object], name: str) -> bool:
    return name in TUNABLE and isinstance(values[name], int | float) and not isinstance(values[name], bool)
