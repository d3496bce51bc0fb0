"""Results of format 1, converted on reading."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from ocssl.common.files import slug
from ocssl.errors import ConfigError
from ocssl.runs import naming
from ocssl.runs.config import parse

SAID_TWICE = ("strategy", "method", "memory", "protocol", "seed")


def upgrade(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a result file of format 1 in format 2."""
    config = parse(content["config"])
    settings = config.to_dict()
    seed, place = settings["seed"], settings["init_from"]
    place = place and place.replace(f"seed{seed}", "seed0")
    key, label, overrides = _named(json.dumps({**settings, "seed": 0, "init_from": place}))
    dataset = str(content.get("dataset"))
    transfer = dataset.partition("->")[2]
    name = naming.run_name(config) if overrides is not None else slug(f"{dataset}-{label}-seed{seed}")
    named = {
        "key": key,
        "label": label,
        "name": name + (slug(f"-on-{transfer}") if transfer else ""),
        "overrides": overrides or {},
        "config": settings,
        "format": 2,
    }
    return {key: value for key, value in content.items() if key not in SAID_TWICE} | named


@cache
def _named(settings: str) -> tuple[str, str, dict[str, Any] | None]:
    config = parse(json.loads(settings))
    try:
        return naming.key(config), naming.label(config), naming.overrides(config)
    except ConfigError:  # a strategy or data set that is not installed here
        return naming.key(config), str(config["strategy"]), None
