"""Learning rates and ω that we tuned ourselves, kept in the store beside the results they led to.

The paper's were tuned for the authors' augmentation. A file ``tuned/TABLE@DATASET@PROTOCOL.yaml`` in the store maps
rows of that table to other values::

    er-fifo: {lr: 0.2}
    cla-e: {lr: 0.3, omega: 1.0}

A result counts as tuned by us if its own configuration has these values. The best configuration of a sweep,
``best.yaml``, is read as the line of the row whose other settings it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import yaml

from ocssl import strategies
from ocssl.common.files import atomic_write, writing
from ocssl.common.yaml import read_yaml
from ocssl.errors import ConfigError, unreadable
from ocssl.paper.identity import essence
from ocssl.paper.tables import PROTOCOLS, Protocol, Row, Table, configure, find_table
from ocssl.runs.config import RunConfig
from ocssl.runs.presets import complete
from ocssl.settings import require

FOLDER = "tuned"
TUNABLE = ("lr", "omega")
JUDGING = {"measure_on", "evaluate"}
"""Settings that a sweep has for its own runs."""

Tuned = tuple[str, str, Protocol]
"""A table's id, a data set and a protocol."""
TunedValues = Mapping[str, Mapping[str, float]]
"""Settings by row."""


def read_tuned(path: Path) -> dict[Tuned, TunedValues]:
    """A file of the store, under what its name says."""
    for known in PROTOCOLS:
        match path.stem.split("@"):
            case [table, dataset, protocol] if protocol == known:
                which = table, unquote(dataset), known
                return {which: read_values(path, which)}
    raise ConfigError(f"'{path}' must be called TABLE@DATASET@PROTOCOL.yaml, like high-simsiam@cifar100@clean.yaml")


def read_values(path: Path, which: Tuned) -> TunedValues:
    """Tuned values by row of a table, from a file of them or from the best configuration of a sweep.

    Args:
        which: what they are to be used for; a configuration that was tuned for anything else is refused.
    """
    table = find_table(which[0])
    try:
        given = read_yaml(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(unreadable(path, error)) from error
    if not isinstance(given, dict):
        raise ConfigError(f"'{path}' must map rows to values, like 'cla-e: {{lr: 0.3, omega: 1.0}}'")
    whole = "strategy" in given or given.get("iid") is True
    found: TunedValues = _of_configuration(given, path, which) if whole else given
    for row, values in found.items():
        _check(_row(table, row, path), values, path)
    return found


def _row(table: Table, name: str, path: Path) -> Row:
    try:
        row = table.row(name)
    except ConfigError as error:
        raise ConfigError(f"'{path}': {error}") from error
    if row.untrained:
        raise ConfigError(f"'{path}' gives {name} values, but nothing is trained there; leave it out")
    return row


def merge(files: Iterable[Path], which: Tuned) -> TunedValues:
    """Tuned values from several files; two that give a row different ones are refused."""
    together: dict[str, Mapping[str, float]] = {}
    origin: dict[str, Path] = {}
    for file in files:
        for row, values in read_values(file, which).items():
            if together.setdefault(row, values) != values:
                raise ConfigError(f"'{origin[row]}' and '{file}' give {row} different values; leave one of them out")
            origin.setdefault(row, file)
    return together


def _check(row: Row, values: object, path: Path) -> None:
    """Refuse what a row cannot be run with."""
    if not isinstance(values, dict) or not values or not all(_is_number(values, name) for name in values):
        raise ConfigError(f"'{path}' must give {row.name} numbers for lr, omega or both, not {values!r}")
    for name, value in values.items():
        require(f"{name} of {row.name} in '{path}'", value, low=0)
        if row.settings.get(name, value) != value:
            raise ConfigError(
                f"'{path}' gives {row.name} {name} {value:g}, but the row is about {row.settings[name]:g}"
            )
    strategy = strategies.get(row.settings.get("strategy", "finetune"))
    if "omega" in values and not issubclass(strategy, strategies.Aligned):
        raise ConfigError(f"'{path}' gives {row.name} an omega, which its strategy has no use for; leave it out")


def _of_configuration(given: Mapping[str, Any], path: Path, which: Tuned) -> TunedValues:
    """A whole configuration's lr and ω, for the row that has the rest of it."""
    table, dataset, protocol = find_table(which[0]), *which[1:]
    try:
        config = complete(given)
    except ConfigError as error:
        raise ConfigError(f"'{path}' is not the configuration of a run: {error}") from error
    tuned = {name: given[name] for name in TUNABLE if given.get(name) is not None}
    apart: dict[str, dict[str, tuple[Any, Any]]] = {}
    for row in table.rows:
        if not row.untrained:
            free = JUDGING | (tuned.keys() - row.settings.keys())
            apart[row.name] = _differences(configure(table, row, dataset, protocol), config, free)
    name, found = min(apart.items(), key=lambda entry: ("strategy" in entry[1], "iid" in entry[1], len(entry[1])))
    if not found:
        return {name: tuned}
    setting = next((setting for setting in found if setting in given), next(iter(found)))
    ours, theirs = found[setting]
    raise ConfigError(
        f"'{path}' is the configuration of no row of table '{table.id}': {name}, the nearest, has {setting} {ours}, "
        f"not {theirs}; tune with the settings of the row"
    )


def _differences(ours: RunConfig, theirs: RunConfig, free: set[str]) -> dict[str, tuple[Any, Any]]:
    """Settings that make two experiments different, but for those that are free to be."""
    one, other = essence(ours), essence(theirs)
    return {name: (one[name], other[name]) for name in one if name not in free and one[name] != other[name]}


def declare(values: TunedValues, store: Path, which: Tuned) -> None:
    """Keep tuned values in a store, where results made with them will be known by them."""
    table, dataset, protocol = which
    path = store / FOLDER / f"{table}@{quote(dataset, safe='')}@{protocol}.yaml"
    before = read_values(path, which) if path.exists() else {}
    for row in values:
        if row in before and before[row] != values[row]:
            raise ConfigError(f"'{path}' has {before[row]} for {row}, not {values[row]}; remove that line to tune anew")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = {row: dict(numbers) for row, numbers in {**before, **values}.items()}
        atomic_write(path, yaml.safe_dump(lines, default_flow_style=None, sort_keys=False))


def _is_number(values: Mapping[str, object], name: str) -> bool:
    return name in TUNABLE and isinstance(values[name], int | float) and not isinstance(values[name], bool)
