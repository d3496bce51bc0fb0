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
    key, label, overrides, name = _named(json.dumps({**settings, "seed": 0, "init_from": place}))
    dataset = str(content.get("dataset"))
    transfer = dataset.partition("->")[2]
    name = name.removesuffix("seed0") + f"seed{seed}"
    named = {
        "key": key,
        "label": label,
        "name": name + (slug(f"-on-{transfer}") if transfer else ""),
        "overrides": overrides,
        "config": settings,
        "format": 2,
    }
    return {key: value for key, value in content.items() if key not in SAID_TWICE} | named


@cache
def _named(settings: str) -> tuple[str, str, dict[str, Any], str]:
    config = parse(json.loads(settings))
    try:
        return naming.key(config), naming.label(config), naming.overrides(config), naming.run_name(config)
    except ConfigError:  # a strategy or data set that is not installed here
        name = str(config["strategy"])
        return naming.key(config), name, {}, slug(f"{config.dataset}-{name}-seed0")
