"""When two configurations are the same experiment, how they differ from the paper's, and what they are called.

A configuration also says where data lie, on what device and how fast things are to be done. None of that makes another
experiment: runs of one cell may come from several machines.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ocssl.runs.config import RESUMABLE, RunConfig
from ocssl.runs.presets import complete
from ocssl.settings import views_together

HOW = RESUMABLE | {"execution", "precision", "log_every", "knn", "references"}
"""Settings that make no other experiment."""

NAMED_BY = ("dataset", "protocol", "budget", "iid", "strategy", "method", "memory", "seed")
SHORT = {"batch": "b", "passes": "np", "init_from": "after-"}
MOST_MARKS = 3


def essence(config: RunConfig) -> dict[str, Any]:
    """What the experiment is, whatever its seed and its machine.

    ``budget`` only names what b, n_p, lr and ω say, of the run that another starts from the name counts, not where it
    lies, and whether views pass together may be told or follow from the variant.
    """
    settings = {name: value for name, value in config.to_dict().items() if name not in HOW | {"budget", "seed"}}
    settings["joint_views"] = views_together(config["joint_views"], config["variant"])
    if config.init_from is not None:
        settings["init_from"] = Path(config.init_from).name.removesuffix(f"-seed{config['seed']}")
    return settings


def key(config: RunConfig) -> str:
    """A digest of the essence.

    >>> tables = {"strategy": "cla-e", "budget": "high"}
    >>> key(complete(tables)) == key(complete(tables | {"seed": 1, "execution": "eager"}))
    True
    >>> key(complete(tables)) == key(complete(tables | {"tau": 0.99}))
    False
    """
    return hashlib.sha256(json.dumps(essence(config), sort_keys=True).encode()).hexdigest()


def departures(config: RunConfig) -> dict[str, Any]:
    """Settings in which an experiment differs from the paper's of the same strategy, b and n_p.

    >>> departures(complete({"strategy": "cla-e", "budget": "high", "tau": 0.99}))
    {'tau': 0.99}
    """
    return _beyond(config, _preset(config, *NAMED_BY, "batch", "passes"))


def run_name(config: RunConfig) -> str:
    """What a run's folder and its result are called: what it is, and what sets it apart from the paper's.

    >>> run_name(complete({"strategy": "cla-e", "budget": "high", "seed": 2}))
    'cifar100-simsiam-cla-e-fifo-high-clean-seed2'
    >>> run_name(complete({"strategy": "er", "memory": "fifo", "budget": "high", "passes": 6, "lr": 0.2}))
    'cifar100-simsiam-er-fifo-high-clean-np6-lr0.2-seed0'
    """
    what = "iid" if config.iid else config["strategy"]
    parts = [config.dataset, config["method"], what, config["memory"], config.budget, config.protocol, *_marks(config)]
    return plain("-".join(str(part) for part in parts if part) + f"-seed{config['seed']}")


def plain(name: str) -> str:
    """A name that any file system takes.

    >>> plain("folder:my/images")
    'folder-my-images'
    """
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)


def _marks(config: RunConfig) -> list[str]:
    block = _beyond(config, _preset(config, *NAMED_BY))
    differing = {name: block[name] for name in ("batch", "passes") if name in block} | departures(config)
    if "init_from" in differing:
        first = str(differing["init_from"])
        differing["init_from"] = first.removeprefix(f"{config.dataset}-{config['method']}-").removesuffix(
            f"-{config.protocol}"
        )
    if len(differing) > MOST_MARKS or any(isinstance(value, dict | list) for value in differing.values()):
        return [key(config)[:8]]
    return [f"{SHORT.get(name, name)}{value}" for name, value in differing.items()]


def _preset(config: RunConfig, *given: str) -> RunConfig:
    settings = {name: config[name] for name in given}
    if config.iid:
        del settings["strategy"]
    return complete(settings)


def _beyond(config: RunConfig, preset: RunConfig) -> dict[str, Any]:
    ours, theirs = essence(config), essence(preset)
    return {name: value for name, value in ours.items() if value != theirs[name]}
