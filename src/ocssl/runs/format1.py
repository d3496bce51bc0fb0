"""Results and run configurations of ocssl 0.1 (format 1), in the terms of this version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ocssl.common.files import json_digest
from ocssl.errors import ConfigError, DataError
from ocssl.format1 import upgrade_learner
from ocssl.results.result import probed_on, trained_on
from ocssl.runs.config import RunConfig, parse
from ocssl.runs.naming import names_of, run_name

RUN_SETTINGS = tuple(name for name in RunConfig.model_fields if name not in ("learner", "stream"))
FREE = ("data_root", "device", "checkpoint_minutes", "checkpoint_samples", "keep_checkpoints", "trackers")
"""Settings that the digests of version 0.1 leave out."""


def upgrade(old: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of a result file of format 1 as format 2 has them; :class:`DataError` if it contradicts itself."""
    config = upgrade_config(old["config"])
    also_in_config = {
        "dataset": config.dataset,
        "protocol": config.protocol,
        "strategy": config.strategy,
        "method": config.learner.method,
        "memory": config.learner.memory,
        "seed": config.learner.seed,
    }
    for name, meant in also_in_config.items():
        if name not in old:
            raise DataError(f"is not a complete result: {name} is missing")
        said = trained_on(str(old[name])) if name == "dataset" else old[name]
        if said != meant:
            raise DataError(f"says {name} {said}, but its configuration says {meant}")
    kept = {name: value for name, value in old.items() if name == "dataset" or name not in also_in_config}
    names = names_of(config, plugins=())  # it does not say which there were
    names["name"] = run_name(config, probed_on(str(old["dataset"])))
    return {**names, **kept, "config": config.to_dict(), "format": 2}


def upgrade_config(old: Mapping[str, Any]) -> RunConfig:
    """A run's configuration from the settings that version 0.1 stored."""
    if "iid" not in old:
        return parse(old)
    missing = next((name for name in ("experiences", "stream_batch", "batch", "passes") if name not in old), None)
    if missing is not None:
        raise ConfigError(f"the setting '{missing}' is missing")
    run = {name: old[name] for name in RUN_SETTINGS if name in old}
    learner = upgrade_learner({name: value for name, value in old.items() if name not in (*run, "iid", "experiences")})
    if old["iid"]:
        online = {f"online_{name}": old[name] for name in ("stream_batch", "passes", "experiences")}
        return parse({**run, "stream": "iid", **online, **learner, "stream_batch": old["batch"], "passes": 1})
    return parse({**run, "stream": "class-incremental", "experiences": old["experiences"], **learner})


def digest(old: Mapping[str, Any]) -> str:
    """The digest that version 0.1 stored in the checkpoints of a run with these settings."""
    return json_digest({name: value for name, value in old.items() if name not in FREE})
