"""Names of runs: file names, labels, and the key of an experiment."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ocssl.common.console import short_value
from ocssl.common.files import slug
from ocssl.results.names import row_label, row_name
from ocssl.runs.config import RESUMABLE, RunConfig
from ocssl.runs.presets import complete

HOW = RESUMABLE | {"execution", "precision", "log_every", "knn", "references"}
NAMED_BY = ("dataset", "protocol", "budget", "iid", "strategy", "method", "memory", "seed")
SHORT = {"batch": "b", "passes": "np", "init_from": "after-"}
SYMBOLS = {"omega": "ω", "tau": "τ"}
MOST_MARKS = 3


def experiment(config: RunConfig) -> dict[str, Any]:
    """The settings that make an experiment, whatever its seed and its machine."""
    settings = {name: value for name, value in config.to_dict().items() if name not in HOW | {"budget", "seed"}}
    if config.init_from is not None:
        settings["init_from"] = Path(config.init_from).name.removesuffix(f"-seed{config['seed']}")
    return settings


def key(config: RunConfig) -> str:
    """A digest of the experiment."""
    return hashlib.sha256(json.dumps(experiment(config), sort_keys=True).encode()).hexdigest()


def overrides(config: RunConfig) -> dict[str, Any]:
    """Settings in which an experiment differs from the paper's of the same strategy, b and n_p."""
    return _beyond(config, _preset(config, *NAMED_BY, "batch", "passes"))


def label(config: RunConfig) -> str:
    """An experiment in a few words."""
    name = row_label("iid" if config.iid else row_name(config["strategy"], config["memory"]))
    return ", ".join([name, *(f"{SYMBOLS.get(n, n)} {short_value(value)}" for n, value in overrides(config).items())])


def run_name(config: RunConfig) -> str:
    """The name of a run's folder and of its result file."""
    what = "iid" if config.iid else config["strategy"]
    parts = [config.dataset, config["method"], what, config["memory"], config.budget, config.protocol, *_marks(config)]
    return slug("-".join(str(part) for part in parts if part) + f"-seed{config['seed']}")


def _marks(config: RunConfig) -> list[str]:
    preset = _preset(config, *NAMED_BY)
    differing = {name: config[name] for name in ("batch", "passes") if config[name] != preset[name]} | overrides(config)
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
    ours, theirs = experiment(config), experiment(preset)
    return {name: value for name, value in ours.items() if value != theirs.get(name)}
