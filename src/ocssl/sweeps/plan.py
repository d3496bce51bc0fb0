"""A sweep as a file: what is fixed, what varies, how it is searched and by what it is judged."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from ocssl.common.yaml import read_yaml
from ocssl.errors import ConfigError, unreadable
from ocssl.registry import unknown
from ocssl.runs.config import RunConfig, check_names, merged, one_sentence
from ocssl.runs.presets import complete
from ocssl.sweeps.rehearsal import rehearse
from ocssl.sweeps.space import Range, Scalar, Values, draws, grid, nested, parse_space

OURS = {"seed": "list it under seeds", "measure_on": "sweeps are judged on the validation images, always"}
"""Settings that are the sweep's own business, and what to do instead of setting them."""


class Sweep(BaseModel):
    """What a sweep file says. Make one with :func:`parse_sweep` or :func:`read_sweep`.

    Attributes:
        search: ``grid``: every combination; ``random``: some; ``adaptive``: Optuna proposes, given what was found.
        settings: of every run; see :class:`ocssl.runs.config.RunConfig`.
        space: settings that vary, each over a list of values or ``{low, high, scale, whole}``; a dot in a name reaches
            into a group, as in ``options.strength``.
        also: configurations that a grid tries besides, such as one beyond its edge, without a whole row of others.
        seeds: each configuration runs once with each, and its score is the mean.
        score: of the linear probe on validation images: after the last experience, or averaged over experiences.
        trials: how many configurations ``random`` and ``adaptive`` try.
        seed: of their draws.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, arbitrary_types_allowed=True)

    search: Literal["grid", "random", "adaptive"] = "grid"
    settings: dict[str, Any] = Field(default_factory=dict)
    space: Annotated[
        dict[str, Values | Range],
        BeforeValidator(lambda given: parse_space(given) if isinstance(given, dict) else given),
        PlainSerializer(lambda space: {name: entry.plain() for name, entry in space.items()}),
    ]
    also: list[dict[str, Any]] = Field(default_factory=list)
    seeds: list[Annotated[int, Field(ge=0)]] = Field([0], min_length=1)
    score: Literal["final", "avg"] = "final"
    trials: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0)

    def configuration(self, values: Mapping[str, Scalar]) -> dict[str, Any]:
        """The settings of a configuration, as ``ocssl run --config`` takes them."""
        return merged(self.settings, nested(values))

    def run_settings(self, values: Mapping[str, Scalar], seed: int) -> dict[str, Any]:
        """The settings of one run that judges a configuration: on validation images, with nothing that costs extra."""
        frugal = {"knn": False, "references": False, "keep_checkpoints": 1}
        measured = {"evaluate": "final" if self.score == "final" else "each"}
        return measured | frugal | self.configuration(values) | {"seed": seed, "measure_on": "validation"}

    def to_yaml(self) -> str:
        """As a file has it."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False, allow_unicode=True)

    def options(self, name: str) -> list[Scalar]:
        """All values that are listed for a setting; none for a range.

        >>> read_sweep("paper-tuning-lr").model_copy(update={"also": [{"lr": 1.0}]}).options("lr")[-2:]
        [0.3, 1.0]
        """
        entry = self.space[name]
        return [*entry.options, *(values[name] for values in self.also)] if isinstance(entry, Values) else []

    def listed(self) -> list[dict[str, Scalar]]:
        """The configurations of a grid or random search, in order.

        >>> read_sweep("paper-tuning-lr").model_copy(update={"also": [{"lr": 1.0}]}).listed()[-2:]
        [{'lr': 0.3}, {'lr': 1.0}]
        """
        if self.search == "grid":
            combined = list(grid(self.space))
            return combined + [values for values in self.also if values not in combined]
        return draws(self.space, self.trials or 0, self.seed)


def parse_sweep(given: Mapping[str, Any]) -> Sweep:
    """A sweep from what a file says, checked down to each run that it will make.

    >>> parse_sweep({"space": {"lr": [0.1]}, "serch": "grid"})
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: unknown key 'serch'; did you mean 'search'? Known: search, settings, space, also, ...
    """
    for name in given:
        if name not in Sweep.model_fields:
            raise unknown("key", name, Sweep.model_fields)
    try:
        sweep = Sweep.model_validate(dict(given))
    except ValidationError as error:
        raise one_sentence(error) from error
    _check(sweep)
    return sweep


def read_sweep(name: str | Path, changes: Mapping[str, Any] | None = None) -> Sweep:
    """A sweep from a file, or a shipped one by its name.

    Args:
        changes: to its settings.

    >>> len(read_sweep("paper-tuning").listed())
    28
    """
    path = Path(name)
    text = _shipped(path) if path.parent == Path() and not path.suffix else None
    try:
        given = read_yaml(path.read_text() if text is None else text, str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{unreadable(path, error)}; with ocssl come {', '.join(shipped())}") from error
    if not isinstance(given, dict):
        raise ConfigError(f"'{path}' must hold a sweep as 'name: value' lines, not {type(given).__name__}")
    if changes and isinstance(given.get("settings", {}), dict):
        given["settings"] = merged(given.get("settings", {}), changes)
    return parse_sweep(given)


def shipped() -> list[str]:
    """Names of the sweeps that come with ocssl."""
    return sorted(Path(str(entry)).stem for entry in (resources.files("ocssl.sweeps") / "files").iterdir())


def _shipped(name: Path) -> str | None:
    entry = resources.files("ocssl.sweeps") / "files" / f"{name}.yaml"
    return entry.read_text() if entry.is_file() else None


def _check(sweep: Sweep) -> None:
    if not sweep.space:
        raise ConfigError("space is empty; list at least one setting that varies")
    check_names(sweep.settings)
    check_names(name.partition(".")[0] for name in sweep.space)
    for place in (sweep.settings, sweep.space):
        for name in OURS.keys() & place.keys():
            raise ConfigError(f"'{name}' cannot be set in a sweep: {OURS[name]}")
    for name in sweep.space:
        group, _, inner = name.partition(".")
        if inner and group in sweep.space:
            raise ConfigError(f"'{group}' varies under space as a whole and as '{name}'; decide for one")
        fixed = sweep.settings.get(group) if inner else sweep.settings
        if isinstance(fixed, Mapping) and (inner or name) in fixed:
            raise ConfigError(f"'{name}' is fixed under settings and varies under space; decide for one")
    for values in sweep.also:
        if sweep.search != "grid":
            raise ConfigError(f"also is for a grid; {sweep.search} search finds its own configurations")
        if values.keys() != sweep.space.keys():
            raise ConfigError(f"also must give each of {', '.join(sweep.space)}, and nothing else, not {values}")
        if not all(isinstance(value, Scalar) for value in values.values()):
            raise ConfigError(f"also must give plain values, not {values}")
        if sweep.also.count(values) > 1:
            raise ConfigError(f"also lists one twice: {values}")
    if len(set(sweep.seeds)) != len(sweep.seeds):
        raise ConfigError(f"seeds lists one twice: {sweep.seeds}")
    if sweep.search == "grid" and sweep.trials is not None:
        raise ConfigError("a grid tries every combination; leave trials out")
    if sweep.search != "grid" and sweep.trials is None:
        raise ConfigError(f"{sweep.search} search needs trials, the number of configurations to try")
    configs = [complete(sweep.run_settings(values, sweep.seeds[0])) for values in _samples(sweep)]
    for config in configs:
        _check_measured(sweep, config)
    rehearse(configs)


def _samples(sweep: Sweep) -> list[dict[str, Scalar]]:
    """Configurations that must be possible before anything begins: all that are known by now."""
    return sweep.listed() if sweep.search != "adaptive" else draws(sweep.space, 1, sweep.seed)


def _check_measured(sweep: Sweep, config: RunConfig) -> None:
    needed = ("each",) if sweep.score == "avg" else ("each", "final")
    if config.evaluate not in needed:
        raise ConfigError(f"score '{sweep.score}' needs evaluate: {needed[-1]}, not {config.evaluate}")
    if sweep.score == "avg" and config.iid:
        raise ConfigError("i.i.d. training has no average along the stream; score: final")
