"""What an experiment is called, and when two runs are the same experiment.

Every folder, result file, row and legend takes its name from here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from ocssl.common.files import json_digest, slug
from ocssl.config import REGISTRIES
from ocssl.errors import ConfigError
from ocssl.memory import Memory
from ocssl.options import default_of
from ocssl.plugins import Plugin
from ocssl.results.names import flat_settings
from ocssl.results.result import read_result
from ocssl.runs.config import RunConfig
from ocssl.runs.presets import online_cost, resolve
from ocssl.strategies import Strategy

MAX_NAME_BYTES = 160  # without the seed; a transfer's result adds the other data set
MAX_MARKS = 3  # settings in a file's name; more are summed up in a digest
COST_MARKS = ("bs", "b", "np")  # b_s, b and n_p in a file's name


def experiment(config: RunConfig) -> dict[str, Any]:
    """The settings that make the experiment, whatever its seed and the machine it runs on.

    Of a run that another starts from, the name in its result counts, not its folder; without a result, the folder's.
    """
    settings = {name: value for name, value in config.only("experiment").items() if name != "seed"}
    if config.init_from is not None:
        name = Path(config.init_from).name
        with contextlib.suppress(OSError):  # it is not finished, or not here
            name = read_result(config.init_from).name
        settings["init_from"] = name.removesuffix(f"-seed{config.learner.seed}")
    return settings


def experiment_key(config: RunConfig, plugins: Sequence[Plugin] | None = None) -> str:
    """A digest of :func:`experiment`: equal for runs that differ in nothing but seed, device, speed and places.

    The code of plugins counts, too.

    Args:
        plugins: those that ran; unset: the configuration's, as they are now.

    >>> table = {"strategy": "cla-e", "budget": "high"}
    >>> experiment_key(resolve(table)) == experiment_key(resolve(table | {"seed": 1, "execution": "eager"}))
    True
    >>> experiment_key(resolve(table)) == experiment_key(resolve(table | {"omega": 0.3}))
    True
    >>> experiment_key(resolve(table)) == experiment_key(resolve(table | {"tau": 0.99}))
    False
    """
    settings = experiment(config)
    if code := {plugin.module: plugin.digest for plugin in (config.plugins() if plugins is None else plugins)}:
        settings["plugins"] = code
    return json_digest(settings)


def overrides(config: RunConfig) -> dict[str, Any]:
    """Settings in which an experiment differs from the paper's of the same strategy, b_s, b and n_p.

    >>> overrides(resolve({"strategy": "cla-e", "budget": "high", "tau": 0.99}))
    {'tau': 0.99}
    >>> overrides(resolve({"stream": "blurred"}))
    {'stream': 'blurred'}
    """
    stream_batch, batch, passes = online_cost(config)
    theirs = experiment(_preset(config, stream_batch=stream_batch, batch=batch, passes=passes))
    fields, values = config.fields(), config.to_dict()
    later = {name: values[name] for name in theirs if name in values}  # at its default, where the paper's is not
    ours = {**later, **experiment(config)}
    # Of parts that the paper's run does not have, settings that are not at their default.
    usual = {name: to_jsonable_python(default_of(fields[name])) for name in ours if name not in theirs}
    papers = flat_settings({**usual, **theirs})
    return {name: value for name, value in flat_settings(ours).items() if value != papers[name]}


def names_of(config: RunConfig, plugins: Sequence[Plugin] | None = None) -> dict[str, Any]:
    """All names of a run, by their keys in its result; ``plugins`` as in :func:`experiment_key`."""
    return {
        "key": experiment_key(config, plugins),
        "label": label(config),
        "name": run_name(config),
        "overrides": overrides(config),
    }


def run_name(config: RunConfig, target: str | None = None) -> str:
    """The name of a run's folder and of its result: what it is, and how it differs from the paper's.

    Args:
        target: the other data set that the encoder is probed on; of a result alone.

    >>> run_name(resolve({"strategy": "cla-e", "budget": "high", "seed": 2}))
    'cifar100-simsiam-cla-e-fifo-high-clean-seed2'
    >>> run_name(resolve({"strategy": "er", "memory": "fifo", "budget": "high", "passes": 6, "lr": 0.2}))
    'cifar100-simsiam-er-fifo-high-clean-np6-lr0.2-seed0'
    """
    learner = config.learner
    parts = [config.dataset, learner.method, config.strategy, learner.memory, config.budget, config.protocol]
    name = "-".join(str(part) for part in [*parts, *_marks(config)] if part)
    if len(name.encode()) > MAX_NAME_BYTES:  # a long address of a data set
        name = f"{slug(config.dataset, limit=60)}-{experiment_key(config)[:8]}"
    name = slug(f"{name}-seed{learner.seed}", limit=200)
    return slug(f"{name}-on-{target}", limit=240) if target else name


def label(config: RunConfig) -> str:
    """The strategy as papers print it, with its memory where that is not the usual one, and the crops if several.

    >>> label(resolve({"strategy": "er", "memory": "fifo"})), label(resolve({"strategy": "cla-e"}))
    ('ER w/ FIFO', 'CLA-E')
    >>> label(resolve({"strategy": "cla-e", "memory": "reservoir", "tau": 0.99}))
    'CLA-E, reservoir'
    >>> label(resolve({"strategy": "cla-e", "eval_crops": 10}))
    'CLA-E, 10 crops'
    """
    return _label(config) + (f", {config.eval_crops} crops" if config.eval_crops > 1 else "")


def _label(config: RunConfig) -> str:
    if config.iid:
        return "i.i.d."
    parts = config.learner.parts()
    name, memory = _own_label("strategy", config.learner.strategy, parts.strategy), parts.memory
    if memory is None or config.learner.memory is None:
        return name
    kept = _own_label("memory", config.learner.memory, memory)
    if name == "ER":
        return f"{name} w/ {kept}"
    return name if config.learner.memory == parts.strategy.default_memory else f"{name}, {kept}"


def _own_label(setting: str, name: str, kind: type[Strategy | Memory]) -> str:
    """The label of a part, or its name where the label is inherited and names the part that it derives from."""
    declared = any("label" in vars(owner) for owner in (kind, REGISTRIES[setting].get(name)))
    return (kind.label if declared else "") or name


def _marks(config: RunConfig) -> list[str]:
    """What tells the run's name from that of the paper's run of the same strategy."""
    costs = zip(COST_MARKS, online_cost(config), online_cost(_preset(config)), strict=True)
    differing = {name: ours for name, ours, papers in costs if ours != papers} | dict(sorted(overrides(config).items()))
    if "init_from" in differing:
        prefix, suffix = f"{config.dataset}-{config.learner.method}-", f"-{config.protocol}"
        differing["init_from"] = str(differing["init_from"]).removeprefix(prefix).removesuffix(suffix)
    if len(differing) > MAX_MARKS or any(isinstance(value, dict | list) for value in differing.values()):
        return [experiment_key(config)[:8]]
    short = {"init_from": "after-", "stream": ""}
    return [f"{short.get(name, name)}{value}" for name, value in differing.items()]


def _preset(config: RunConfig, **more: Any) -> RunConfig:
    """The paper's run of the same strategy, objective, memory, data set, protocol and budget."""
    stream = "iid" if config.iid else None
    named = {name: getattr(config, name) for name in ("dataset", "protocol", "budget")}
    parts = {name: getattr(config.learner, name) for name in ("strategy", "method", "memory")}
    try:
        return _resolved(**named, **parts, stream=stream, **more)
    except ConfigError:  # the strategy cannot have this budget, and the run has b and n_p of its own
        return _resolved(**{**named, "budget": None}, **parts, stream=stream, **more)


@lru_cache(maxsize=256)
def _resolved(**given: Any) -> RunConfig:
    return resolve(given)
