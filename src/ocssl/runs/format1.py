"""Results and run configurations of ocssl 0.1 (format 1), in the terms of this version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ocssl.errors import DataError
from ocssl.format1 import upgrade_learner
from ocssl.runs.config import RunConfig, parse
from ocssl.runs.naming import names_of

RUN_SETTINGS = tuple(name for name in RunConfig.model_fields if name not in ("learner", "stream"))


FREE = ("data_root", "device", "checkpoint_minutes", "checkpoint_samples", "keep_checkpoints", "trackers")
"""Settings that the digests of version 0.1 leave out."""


def upgrade(old: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of a result file of format 1 as format 2 has them; :class:`DataError` if it contradicts itself."""
    config = upgrade_config(old["config"])
    for name, said, meant in _said_twice(old, config):
        if said != meant:
            raise DataError(f"says {name} {said}, but its configuration says {meant}")
    dropped = {"strategy", "method", "memory", "protocol", "seed"}
    kept = {name: value for name, value in old.items() if name not in dropped}
    target = str(old["dataset"]).partition("->")[2]
    names = names_of(config)._asdict()
    names["name"] += f"-on-{target}" if target else ""
    return {**names, **kept, "config": config.to_dict(), "format": 2}


def upgrade_config(old: Mapping[str, Any]) -> RunConfig:
    """A run's configuration from the settings that version 0.1 stored."""
    if "iid" not in old:
        return parse(old)
    run = {name: old[name] for name in RUN_SETTINGS if name in old}
    learner = upgrade_learner({name: value for name, value in old.items() if name not in (*run, "iid", "experiences")})
    if old["iid"]:
        online = {f"online_{name}": old[name] for name in ("stream_batch", "passes", "experiences")}
        return parse({**run, "stream": "iid", **online, **learner, "stream_batch": old["batch"], "passes": 1})
    return parse({**run, "stream": "class-incremental", "experiences": old["experiences"], **learner})


def digest(old: Mapping[str, Any]) -> str:
    """The digest that version 0.1 stored in the checkpoints of a run with these settings."""
    decisive = {name: value for name, value in old.items() if name not in FREE}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def _said_twice(old: Mapping[str, Any], config: RunConfig) -> Iterator[tuple[str, object, object]]:
    """Facts that format 1 stores beside the configuration: a name, the result's value and the configuration's."""
    yield "dataset", str(old["dataset"]).partition("->")[0], config.dataset
    yield "protocol", old["protocol"], config.protocol
    yield "strategy", old["strategy"], "iid" if config.iid else config.learner.strategy
    yield "method", old["method"], config.learner.method
    yield "memory", old["memory"], config.learner.memory
    yield "seed", old["seed"], config.learner.seed
