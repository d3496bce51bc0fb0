"""Stand-ins until ``ocssl.runs.config`` has ``resolve`` and ``unread``; then this module goes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ocssl.build import check
from ocssl.errors import ConfigError, OcsslError
from ocssl.learner import Learner
from ocssl.nn import build_backbone
from ocssl.runs.config import RunConfig
from ocssl.runs.presets import complete

_TINY: dict[str, Any] = {
    "backbone": "convnet-w1",
    "image_size": 8,
    "hidden_dim": 8,
    "output_dim": 8,
    "device": "cpu",
    "execution": "eager",
}
_NUMBERS = ("lr", "momentum", "weight_decay", "omega", "tau", "seed")
_made: set[str] = set()


def unread(given: Mapping[str, Any]) -> set[str]:
    """Names in ``given`` that the parts named in it do not read."""
    strategy = given.get("strategy")
    found = {"omega"} if strategy in ("er", "finetune", "minred", "lump", "scale", "osiris-r") else set()
    found |= {"tau"} if strategy is not None and strategy not in ("cla-b", "cla-e") else set()
    return found & given.keys()


def resolve(given: Mapping[str, Any]) -> RunConfig:
    """The complete configuration; :class:`ConfigError` for anything wrong."""
    for name in sorted(unread(given)):
        raise ConfigError(f"strategy '{given['strategy']}' does not read {name}; leave it out")
    config = complete(given)
    asked = config.learner()
    check(SimpleNamespace(**asked))  # type: ignore[arg-type]
    kind = json.dumps({name: value for name, value in asked.items() if name not in _NUMBERS}, sort_keys=True)
    if kind not in _made:
        if not asked["backbone"].startswith("timm:"):
            build_backbone(asked["backbone"], _TINY["image_size"], asked["stem"])
        try:
            Learner(**{**asked, **_TINY})
        except OcsslError:
            raise
        except (TypeError, ValueError) as error:
            raise ConfigError(f"strategy '{asked['strategy']}' cannot have these options: {error}") from error
        _made.add(kind)
    return config
