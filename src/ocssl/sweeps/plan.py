"""Sweep files: which settings are fixed, which vary, how they are searched and how trials are scored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib import resources
from itertools import chain, islice
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BeforeValidator, Field

from ocssl.common.console import shown
from ocssl.common.files import read_file
from ocssl.common.yaml import MAX_BYTES, read_yaml
from ocssl.errors import ConfigError, unreadable
from ocssl.options import Options, setting, validate
from ocssl.plugins import SCRIPT, name_plugins
from ocssl.runs.config import merged, settings, unread
from ocssl.runs.presets import resolve
from ocssl.sweeps.space import Range, Scalar, Space, combinations, parse_space, random_values

OWN = {"seed": "list it under seeds", "measure_on": "sweeps are scored on the validation images, always"}
"""Settings that the sweep itself sets, and what to do instead of setting them."""
MAX_RUNS = 100_000
DRAWS = 1000  # at random per trial, before a search ends with fewer


class Sweep(Options):
    """What a sweep file holds. Make one with :func:`parse_sweep` or :func:`read_sweep`."""

    search: Literal["grid", "random", "tpe"] = setting(
        "grid", "grid: every combination; random: some of them; tpe: Optuna proposes, given the scores so far."
    )
    settings: dict[str, Any] = setting({}, "Settings of every run.")
    space: Annotated[
        dict[str, tuple[Scalar, ...] | Range],
        BeforeValidator(lambda given: parse_space(given) if isinstance(given, dict) else given),
    ] = setting(..., "Settings that vary: a list of values, or {low, high, scale}; probe.lr is lr in the group probe.")
    extra: list[dict[str, Scalar]] = setting([], "Single configurations that a grid tries in addition.")
    seeds: list[Annotated[int, Field(ge=0)]] = setting(
        [0], "Each configuration runs with each seed; its score is the mean.", min_length=1
    )
    score: Literal["final", "avg"] = setting(
        "final", "Accuracy of the linear probe on validation images, after the last experience or averaged over all."
    )
    plugins: list[str] = setting([], "Modules with parts of your own, imported first.")
    trials: int | None = setting(None, "Number of configurations of random and tpe.", ge=1)
    seed: int = setting(0, "Seed of random and tpe.", ge=0)

    def configuration(self, values: Mapping[str, Scalar]) -> dict[str, Any]:
        """The settings of a configuration, as ``ocssl run --config`` takes them.

        >>> read_sweep("paper-tuning-lr").configuration({"lr": 0.1, "probe.lr": 0.5})["probe"]
        {'lr': 0.5}
        """
        found = dict(self.settings)
        for name, value in values.items():
            group, _, inner = name.partition(".")
            found = merged(found, {group: {inner: value} if inner else value})
        return found

    def run_settings(self, values: Mapping[str, Scalar], seed: int) -> dict[str, Any]:
        """The settings of one run of a trial: scored on validation images, without measurements that cost extra."""
        frugal = {"knn": False, "references": False, "keep_checkpoints": 1}
        measured = {"evaluate": "final" if self.score == "final" else "each"}
        return measured | frugal | self.configuration(values) | {"seed": seed, "measure_on": "validation"}

    def to_yaml(self) -> str:
        """The content of a sweep file."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)

    def options(self, name: str) -> list[Scalar]:
        """All values that are listed for a setting; none for a range.

        >>> read_sweep("paper-tuning-lr").model_copy(update={"extra": [{"lr": 1.0}]}).options("lr")[-2:]
        [0.3, 1.0]
        """
        entry = self.space[name]
        return [] if isinstance(entry, Range) else [*entry, *(v[name] for v in self.extra if name in v)]

    def corners(self) -> list[dict[str, Scalar]]:
        """Configurations with every combination of names, every listed number and both ends of each range.

        >>> space = {"strategy": ["er", "cla-e"], "lr": {"low": 0.1, "high": 1}, "omega": [0.3]}
        >>> [list(values.values()) for values in Sweep(space=space).corners()]
        [['er', 0.1, 0.3], ['er', 1.0, 0.3], ['cla-e', 0.1, 0.3], ['cla-e', 1.0, 0.3]]
        """
        lists = {name: entry.ends if isinstance(entry, Range) else entry for name, entry in self.space.items()}
        named = {name: entry for name, entry in lists.items() if _has_text(entry)}
        longest = max((len(entry) for name, entry in lists.items() if name not in named), default=1)
        numbers = [{name: entry[i % len(entry)] for name, entry in lists.items()} for i in range(longest)]
        return [values | names for names in combinations(named) for values in numbers] + self.extra

    @cached_property
    def conditional(self) -> set[str]:
        """Settings that some configurations of the space read and others do not, such as omega beside strategy."""
        ignored = [unread(self.configuration(values)) for values in self.corners()]
        return {name for name in self.space if 0 < sum(_group(name) in names for names in ignored) < len(ignored)}

    def reduced(self, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Values without the conditional settings that their configuration does not read."""
        ignored = unread(self.configuration(values)) if self.conditional else ()
        return {n: value for n, value in values.items() if not (n in self.conditional and _group(n) in ignored)}

    def distinct(self, candidates: Iterable[Mapping[str, Scalar]], limit: int | None = None) -> list[dict[str, Scalar]]:
        """The first ``limit`` candidates, reduced, each once."""
        found: dict[frozenset[tuple[str, Scalar]], dict[str, Scalar]] = {}
        for values in map(self.reduced, candidates):
            found.setdefault(frozenset(values.items()), values)
            if len(found) == limit:
                break
        return list(found.values())

    def listed(self) -> list[dict[str, Scalar]]:
        """The configurations of a grid or random search, in order.

        >>> read_sweep("paper-tuning-lr").model_copy(update={"extra": [{"lr": 1.0}]}).listed()[-2:]
        [{'lr': 0.3}, {'lr': 1.0}]
        """
        if self.search == "grid":
            lists = {name: entry for name, entry in self.space.items() if not isinstance(entry, Range)}
            return self.distinct(chain(combinations(lists), self.extra))
        draws = islice(random_values(self.space, self.seed), DRAWS * (self.trials or 0))
        return self.distinct(draws, self.trials)


def _group(name: str) -> str:
    return name.partition(".")[0]


def parse_sweep(given: Mapping[str, Any]) -> Sweep:
    """A sweep from the content of a file, with every configuration checked that is known in advance.

    Files of version 0.1 say ``also`` for ``extra`` and ``adaptive`` for ``tpe``.

    >>> parse_sweep({"space": {"lr": [0.1]}, "serch": "grid"})
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: unknown setting 'serch'; did you mean 'search'? Known: search, settings, space, extra, ...
    """
    if {"also", "extra"} <= given.keys():
        raise ConfigError("also is the name of extra in version 0.1; list all configurations under extra")
    given = {"extra" if name == "also" else name: value for name, value in given.items()}
    if given.get("search") == "adaptive":
        given["search"] = "tpe"
    sweep = validate(Sweep, given)
    name_plugins(sweep.plugins, "the sweep")
    sweep = sweep.model_copy(update={"space": _with_whole_ranges(sweep.space)})
    _check(sweep)
    used: dict[str, None] = dict.fromkeys(sweep.plugins)
    for values in sweep.distinct(sweep.corners()) if sweep.search == "tpe" else sweep.listed():
        config = resolve(sweep.run_settings(values, max(sweep.seeds)))
        used |= dict.fromkeys(plugin.module for plugin in config.plugins() if plugin.module != SCRIPT)
        needed = ("each",) if sweep.score == "avg" else ("each", "final")
        if config.evaluate not in needed:
            raise ConfigError(f"score '{sweep.score}' needs evaluate: {needed[-1]}, not {config.evaluate}")
        if sweep.score == "avg" and config.iid:
            raise ConfigError("i.i.d. training has no average along the stream; use score: final")
    return sweep.model_copy(update={"plugins": [*used]})


def _check(sweep: Sweep) -> None:
    """Refuse what contradicts itself."""
    if not sweep.space:
        raise ConfigError("space is empty; list at least one setting that varies")
    for name in [*sweep.settings, *sweep.space]:
        if name in OWN:
            raise ConfigError(f"'{name}' cannot be set in a sweep: {OWN[name]}")
    for name, entry in sweep.space.items():
        group, _, inner = name.partition(".")
        if inner and group in sweep.space:
            raise ConfigError(f"'{group}' varies under space as a whole and as '{name}'; decide for one")
        fixed = sweep.settings.get(group) if inner else sweep.settings
        if isinstance(fixed, Mapping) and (inner or name) in fixed:
            raise ConfigError(f"'{name}' is fixed under settings and varies under space; decide for one")
        if sweep.search == "grid" and isinstance(entry, Range):
            raise ConfigError(f"grid search needs a list of values for space.{name}, not a range")
        if isinstance(entry, Range) and entry.whole and not (entry.low.is_integer() and entry.high.is_integer()):
            raise ConfigError(f"space.{name} is of whole numbers, so low and high must be whole, too")
    for values in sweep.extra:
        if sweep.search != "grid":
            raise ConfigError(f"extra is for a grid; {sweep.search} search finds its own configurations")
        if values.keys() != sweep.space.keys():
            raise ConfigError(
                f"extra must give each of {', '.join(sweep.space)}, and nothing else, not {shown(values)}"
            )
    if len(set(sweep.seeds)) != len(sweep.seeds):
        raise ConfigError(f"seeds lists one twice: {shown(sweep.seeds)}")
    if sweep.search == "grid" and sweep.trials is not None:
        raise ConfigError("a grid tries every combination; leave trials out")
    if sweep.search != "grid" and sweep.trials is None:
        raise ConfigError(f"{sweep.search} search needs trials, the number of configurations to try")
    counts = [entry.count if isinstance(entry, Range) else float(len(entry)) for entry in sweep.space.values()]
    possible = math.prod(counts)  # infinity where it is beyond a float
    _check_runs(sweep, possible)
    if sweep.trials is not None:
        if possible <= MAX_RUNS:
            lists = {name: _values(entry) for name, entry in sweep.space.items()}
            possible = len(sweep.distinct(combinations(lists), sweep.trials))
        if possible < sweep.trials:
            raise ConfigError(
                f"the space has {possible:.0f} configurations, so trials cannot be {sweep.trials}; use a grid"
            )


def _check_runs(sweep: Sweep, possible: float) -> None:
    """Refuse a sweep that is too large to be listed; ``possible`` is the number of configurations of its space."""
    configurations = possible + len(sweep.extra) if sweep.trials is None else sweep.trials
    if configurations * len(sweep.seeds) > MAX_RUNS:
        many = f"{configurations:,.0f}" if configurations < 1e15 else "more than 10**15"
        raise ConfigError(
            f"a sweep has at most {MAX_RUNS:,} runs; this one has {many} configurations and {len(sweep.seeds):,} "
            "seeds: vary less, or try fewer"
        )
    texts = [entry for entry in sweep.space.values() if not isinstance(entry, Range) and _has_text(entry)]
    if math.prod(map(len, texts)) > MAX_RUNS:
        raise ConfigError(f"the space has more than {MAX_RUNS:,} combinations of names; list fewer")


def _with_whole_ranges(space: Space) -> Space:
    """The space, with whole numbers in the ranges of settings that take no others."""
    known = settings()

    def is_whole(name: str) -> bool:
        group, _, inner = name.partition(".")
        kind: Any = known[group].field.annotation if group in known else None
        field = getattr(kind, "model_fields", {}).get(inner)
        kind = field.annotation if field else kind
        return [part for part in get_args(kind) or [kind] if part is not NoneType] == [int]

    ranges = {name: entry for name, entry in space.items() if isinstance(entry, Range) and is_whole(name)}
    return {**space, **{name: entry.model_copy(update={"whole": True}) for name, entry in ranges.items()}}


def _values(entry: tuple[Scalar, ...] | Range) -> Sequence[Scalar]:
    """All values of a list, or of a range of whole numbers."""
    return range(int(entry.low), int(entry.high) + 1) if isinstance(entry, Range) else entry


def _has_text(entry: Iterable[Scalar]) -> bool:
    return any(isinstance(value, str) for value in entry)


def read_sweep(
    name: str | Path, changes: Mapping[str, Any] | None = None, base: Mapping[str, Any] | None = None
) -> Sweep:
    """A sweep from a file, or a shipped one by its name.

    Args:
        changes: to its settings.
        base: settings beneath its own, such as the best ones of an earlier sweep; those that it varies are left out.

    >>> len(read_sweep("paper-tuning").listed())
    28
    """
    path = Path(name)
    entry = resources.files("ocssl.sweeps") / "files" / f"{name}.yaml"
    is_shipped = path.parent == Path() and not path.suffix and entry.is_file()
    try:
        text = entry.read_text() if is_shipped else read_file(path, MAX_BYTES).decode()
        given = read_yaml(text, str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{unreadable(path, error)}; with ocssl come {', '.join(shipped())}") from error
    if not isinstance(given, dict):
        raise ConfigError(f"'{path}' must hold a sweep as 'name: value' lines, not {type(given).__name__}")
    own, space = given.get("settings", {}), given.get("space", {})
    if isinstance(own, dict) and isinstance(space, dict):
        beneath = {setting: value for setting, value in (base or {}).items() if setting not in space}
        given["settings"] = merged(merged(beneath, own), changes or {})
    return parse_sweep(given)


def shipped() -> list[str]:
    """Names of the sweeps that come with ocssl."""
    return sorted(Path(str(entry)).stem for entry in (resources.files("ocssl.sweeps") / "files").iterdir())
