"""Tuned values for ``ocssl paper run --tuned``: files of them, and the best configuration of a sweep."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ocssl.common.files import atomic_write, locked, writing
from ocssl.common.yaml import from_file
from ocssl.errors import ConfigError
from ocssl.paper.plan import configure
from ocssl.results.result import Protocol, trained_on
from ocssl.results.tables import PaperRow, Settings, find_table
from ocssl.results.tuned import TUNABLE, TunedFor, TunedValues, check_values, read_tuned, tuned_path
from ocssl.runs.config import RunConfig, merged, unread
from ocssl.runs.naming import experiment
from ocssl.runs.presets import resolve

JUDGING = {"measure_on", "evaluate"}
"""Settings that a sweep has for its own runs."""


def read_values(path: Path, which: TunedFor) -> TunedValues:
    """Tuned values by row of a table, from a file of them or from ``best.yaml`` of a sweep.

    Args:
        which: what the values are for; a configuration that was tuned for anything else is refused.
    """
    given: Mapping[str, Any] = from_file(path)
    if given.keys() & {"strategy", "stream"}:
        given = _of_configuration(given, path, which)
    return check_values(given, find_table(which[0]), path)


def merge_values(files: Iterable[Path], which: TunedFor) -> TunedValues:
    """Tuned values of several files; two that give a row different ones are refused."""
    together: dict[str, Mapping[str, float]] = {}
    origin: dict[str, Path] = {}
    for file in files:
        for row, values in read_values(file, which).items():
            if together.setdefault(row, values) != values:
                raise ConfigError(f"'{origin[row]}' and '{file}' give {row} different values; leave one of them out")
            origin.setdefault(row, file)
    return together


def tuning_settings(row: PaperRow, dataset: str, protocol: Protocol, changes: Settings) -> dict[str, Any]:
    """The settings of a sweep that tunes a row: all of the row's but those that vary."""
    given = merged({**row.settings, "dataset": trained_on(dataset), "protocol": protocol}, changes)
    unused = unread(given)
    return {name: value for name, value in given.items() if name not in unused and value is not None}


def keep_values(values: TunedValues, results: Path, which: TunedFor) -> None:
    """Write tuned values into a folder of results, so that results with them fill the tuned columns."""
    path = tuned_path(results, which)
    with locked(path.parent, wait=-1), writing(path):
        before = read_tuned(path)[1] if path.exists() else {}
        for row in values:
            if row in before and before[row] != values[row]:
                conflict = f"'{path}' has {before[row]} for {row}, not {values[row]}"
                raise ConfigError(f"{conflict}; remove that line to tune anew")
        lines = {row: dict(numbers) for row, numbers in {**before, **values}.items()}
        atomic_write(path, yaml.safe_dump(lines, default_flow_style=None, sort_keys=False))


def _of_configuration(given: Mapping[str, Any], path: Path, which: TunedFor) -> TunedValues:
    """The tuned values of a configuration, for the row with the same other settings."""
    table, dataset, protocol = find_table(which[0]), which[1], which[2]
    try:
        config = resolve(given)
    except ConfigError as error:
        raise ConfigError(f"'{path}' is not the configuration of a run: {error}") from error
    tuned = {name: given[name] for name in TUNABLE if given.get(name) is not None}
    apart: dict[str, dict[str, tuple[Any, Any]]] = {}
    for row in table.rows:
        if not row.untrained:
            free = JUDGING | (tuned.keys() - row.settings.keys())
            apart[row.name] = differences(configure(row, dataset, protocol), config, free)
    name, found = min(apart.items(), key=lambda entry: ("strategy" in entry[1], "stream" in entry[1], len(entry[1])))
    if not found:
        if tuned.get("from_start") == configure(table.row(name), dataset, protocol).to_dict().get("from_start"):
            tuned.pop("from_start", None)  # results of version 0.1 do not name it
        return {name: tuned}
    setting = next((setting for setting in found if setting in given), next(iter(found)))
    ours, theirs = found[setting]
    raise ConfigError(
        f"'{path}' is the configuration of no row of table '{table.id}': {name}, the nearest, has {setting} {ours}, "
        f"not {theirs}; tune with the settings of the row"
    )


def differences(ours: RunConfig, theirs: RunConfig, free: Collection[str] = ()) -> dict[str, tuple[Any, Any]]:
    """Settings in which two experiments differ, but for those that are free to."""
    one, other = experiment(ours), experiment(theirs)
    names = [name for name in dict.fromkeys([*one, *other]) if name not in free]
    return {name: (one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)}
