"""Learning rates and settings of the alignment that we tuned, kept beside the results.

The paper's were tuned for the authors' augmentation. A file ``tuned/TABLE@DATASET@PROTOCOL.yaml`` beside the results
maps rows of that table to other values, and results with these values fill the columns called *tuned*::

    er-fifo: {lr: 0.2}
    cla-e: {lr: 0.3, omega: 1.0}
    cassle: {lr: 0.03, omega: 1.0, from_start: true}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import quote, unquote

from pydantic import Field, StrictBool, TypeAdapter, ValidationError

from ocssl.common.console import shown
from ocssl.common.yaml import from_file
from ocssl.errors import ConfigError
from ocssl.results.result import PROTOCOLS, Protocol
from ocssl.results.tables import PaperTable, find_table

FOLDER = "tuned"
Tunable = Literal["lr", "omega", "from_start"]
TUNABLE: tuple[str, ...] = get_args(Tunable)
WITHOUT_OMEGA = frozenset({"iid", "er", "finetune", "lump", "minred", "scale", "osiris-r"})
WITH_BORDERS = frozenset({"cassle", "cassle-r"})

TunedFor = tuple[str, str, Protocol]
"""A table's id, a data set and a protocol."""
TunedValues = Mapping[str, Mapping[str, float | bool]]
"""lr, ω and ``from_start`` by row."""

Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
VALUES: TypeAdapter[Any] = TypeAdapter(Annotated[dict[Tunable, Number | StrictBool], Field(min_length=1)])


def tuned_path(results: Path, which: TunedFor) -> Path:
    """The file of tuned values in a folder of results."""
    table, dataset, protocol = which
    return results / FOLDER / f"{table}@{quote(dataset, safe='')}@{protocol}.yaml"


def read_tuned(path: Path) -> tuple[TunedFor, TunedValues]:
    """The values of a file, and the table, data set and protocol in its name."""
    for protocol in PROTOCOLS:
        table, _, dataset = path.stem.removesuffix(f"@{protocol}").partition("@")
        if path.stem == f"{table}@{dataset}@{protocol}" and "@" not in dataset:
            return (table, unquote(dataset), protocol), check_values(from_file(path), find_table(table), path)
    raise ConfigError(f"'{path}' must be called TABLE@DATASET@PROTOCOL.yaml, like high-simsiam@cifar100@clean.yaml")


def check_values(given: Mapping[Any, object], table: PaperTable, path: Path) -> TunedValues:
    """Tuned values by row, as a file gives them; those that a row cannot be run with are refused."""
    found: dict[str, dict[str, float | bool]] = {}
    for name, values in given.items():
        try:
            row = table.row(name)
            found[name] = dict(VALUES.validate_python(values))
        except ConfigError as error:
            raise ConfigError(f"'{path}': {error}") from error
        except ValidationError as error:
            raise ConfigError(
                f"'{path}' must give {shown(name)} numbers of at least 0 for lr or omega, or true or false for "
                f"from_start, not {shown(values)}"
            ) from error
        if row.untrained:
            raise ConfigError(f"'{path}' gives {name} values, but nothing is trained there; leave it out")
        unread = {"omega": row.strategy in WITHOUT_OMEGA, "from_start": row.strategy not in WITH_BORDERS}
        for setting, value in found[name].items():
            if unread.get(setting):
                raise ConfigError(f"'{path}' gives {name} {setting}, which its strategy does not read; leave it out")
            if (own := row.settings.get(setting, value)) != value:
                raise ConfigError(f"'{path}' gives {name} {setting} {value:g}, but the row is about {own:g}")
    return found
