"""Learning rates and ω that we tuned, kept beside the results.

The paper's were tuned for the authors' augmentation. A file ``tuned/TABLE@DATASET@PROTOCOL.yaml`` in the folder of results
maps rows of that table to other values::

    er-fifo: {lr: 0.2}
    cla-e: {lr: 0.3, omega: 1.0}

Results with these values fill the columns called *tuned*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, unquote

import yaml

from ocssl.errors import ConfigError, unreadable
from ocssl.results.result import PROTOCOLS, Protocol
from ocssl.results.tables import ALIGNING, PaperRow, PaperTable, find_table

FOLDER = "tuned"
TUNABLE = ("lr", "omega")

TunedFor = tuple[str, str, Protocol]
"""A table's id, a data set and a protocol."""
TunedValues = Mapping[str, Mapping[str, float]]
"""lr and ω by row."""


def tuned_path(results: Path, which: TunedFor) -> Path:
    """The file of tuned values in a folder of results."""
    table, dataset, protocol = which
    return results / FOLDER / f"{table}@{quote(dataset, safe='')}@{protocol}.yaml"


def read_tuned(path: Path) -> dict[TunedFor, TunedValues]:
    """The values of a file, under the table, data set and protocol in its name."""
    match path.stem.split("@"):
        case [table, dataset, protocol] if protocol in PROTOCOLS:
            try:
                given = yaml.safe_load(path.read_text())
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(unreadable(path, error)) from error
            except yaml.YAMLError as error:
                raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
            which: TunedFor = table, unquote(dataset), "clean" if protocol == "clean" else "authors"
            return {which: check_values(given, find_table(table), path)}
    raise ConfigError(f"'{path}' must be called TABLE@DATASET@PROTOCOL.yaml, like high-simsiam@cifar100@clean.yaml")


def check_values(given: object, table: PaperTable, path: Path) -> TunedValues:
    """Tuned values by row; what no row of the table can be run with is refused.

    Args:
        given: the content of the file ``path``.
    """
    if not isinstance(given, dict):
        raise ConfigError(f"'{path}' must map rows to values, like 'cla-e: {{lr: 0.3, omega: 1.0}}'")
    found = {}
    for name, values in given.items():
        try:
            row = table.row(name)
        except ConfigError as error:
            raise ConfigError(f"'{path}': {error}") from error
        found[name] = _row_values(row, values, path)
    return found


def _row_values(row: PaperRow, given: object, path: Path) -> dict[str, float]:
    if row.untrained:
        raise ConfigError(f"'{path}' gives {row.name} values, but nothing is trained there; leave it out")
    values = given if isinstance(given, dict) and given.keys() <= {*TUNABLE} else {}
    numbers = {name: _number(value) for name, value in values.items()}
    if not numbers or None in numbers.values():
        raise ConfigError(f"'{path}' must give {row.name} numbers for lr, omega or both, not {given!r}")
    for name, value in numbers.items():
        if value is None or not 0 <= value < math.inf:
            raise ConfigError(f"{name} of {row.name} in '{path}' must be a number of at least 0, not {value!r}")
        if row.settings.get(name, value) != value:
            raise ConfigError(
                f"'{path}' gives {row.name} {name} {value:g}, but the row is about {row.settings[name]:g}"
            )
    if "omega" in numbers and row.strategy not in ALIGNING:
        raise ConfigError(f"'{path}' gives {row.name} an omega, which its strategy does not read; leave it out")
    return {name: value for name, value in numbers.items() if value is not None}


def _number(value: object) -> float | None:
    """The number, also where YAML 1.1 takes 1e-3 for a text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
