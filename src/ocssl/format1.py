"""Settings of saved learners, those of ocssl 0.1 in the terms of this version.

Version 0.1 stored every setting of every part, read or not, unset ones as None, and options in dictionaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from ocssl.config import known_names, lost_part, settings
from ocssl.errors import CheckpointError
from ocssl.options import refuse_unknown

VARIANTS = {"clean": "default", "authors": "authors", "origin": "original"}
OPTIONS = {
    "updates": "repeat_updates",
    "past": "teacher_update",
    "share": "forgetting_weight",
    "eager": "early_replay",
    "drops": "selection",
    "together": "joint_target",
    "normalize": "normalize_features",
}
"""Options that were renamed."""
_SCALE = {"joint_pairs": False, "relation_pass": False, "own_pair": "excluded", "past_head": "copied"}
RAN: dict[tuple[str, str], dict[str, Any]] = {
    ("minred", "authors"): {"newcomers": "compete", "insert_mode": "evaluation", "partial_batches": False},
    ("minred", "origin"): {"selection": "simultaneous", "drop_oldest": False},
    ("scale", "authors"): _SCALE,
    ("scale", "origin"): _SCALE | {"normalize_features": True},
    ("osiris-r", "authors"): {"separate_heads": False},
    ("osiris-r", "origin"): {"separate_heads": False, "plain_heads": False, "late_replay": False},
    ("cassle", "origin"): {"distance": "method"},
    ("cassle-r", "origin"): {"distance": "method"},
}
"""What variants of version 0.1 did where those of this version do otherwise, by strategy and variant."""
GROUPS = ("options", "method_options", "memory_options")


def saved_settings(path: str | Path, facts: Mapping[str, Any], backbone: nn.Module | None) -> dict[str, Any]:
    """The settings of a saved learner, with the module that its backbone is, where it is the user's own."""
    found = facts["config"] if "config" in facts else upgrade_learner(facts["parameters"])
    if not isinstance(found, dict):
        raise CheckpointError(f"'{path}' cannot be read as a saved learner: its config holds no settings by name")
    if backbone is None and found["backbone"] is None:
        raise CheckpointError(f"'{path}' was saved with a backbone of your own; pass it as backbone=")
    given = found if backbone is None else {**found, "backbone": backbone}
    if why := lost_part(given):
        raise CheckpointError(f"'{path}' cannot be loaded: {why}")
    return given


def upgrade_learner(old: Mapping[str, Any]) -> dict[str, Any]:
    """A learner's settings of version 0.1 as :func:`ocssl.config.parse_learner` takes them.

    >>> upgrade_learner({"strategy": "er", "variant": "clean", "omega": None, "tau": 0.999, "lr": 0.1})
    {'strategy': 'er', 'lr': 0.1, 'backbone': 'resnet18', 'joint_views': True, 'variant': 'default'}
    """
    new = {name: value for name, value in old.items() if value is not None and name not in GROUPS}
    for group in GROUPS:
        for name, value in (old.get(group) or {}).items():
            new |= _option(name, value)
    if "augmentation" in new:
        new["normalize_first"] = new.pop("augmentation") == "authors"
    if "backbone" in old and old["backbone"] is None:
        new["backbone"] = None
        new.pop("stem", None)  # a module has no options
    new.setdefault("backbone", "resnet18")
    variant = new.pop("variant", "clean")
    new.setdefault("joint_views", variant != "authors")
    if variant == "authors":
        new["conv1_init"] = "kaiming"
    new = {**RAN.get((new.get("strategy", ""), variant), {}), **new}
    new["variant"] = VARIANTS.get(variant, variant)
    read, known = known_names(new), settings()
    refuse_unknown(new, [*known, *read])
    return {name: value for name, value in new.items() if name in read}


def _option(name: str, value: Any) -> dict[str, Any]:
    if name == "raw":
        return {"normalize_features": not value}
    if name == "entry":
        return {"insert_features": value == "described"}
    if name == "second_view":
        return {name: "new" if value == "fresh" else value}
    return {OPTIONS.get(name, name): value}
