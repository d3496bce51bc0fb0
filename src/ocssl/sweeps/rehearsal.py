"""Whether the learners of runs can be made at all, found out before the first run begins."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from types import SimpleNamespace
from typing import Any

from ocssl.build import check
from ocssl.errors import ConfigError, OcsslError
from ocssl.learner import Learner
from ocssl.nn import build_backbone
from ocssl.runs.config import RunConfig

NUMBERS = ("lr", "momentum", "weight_decay", "omega", "tau", "seed")
"""Settings that fit to each other whatever they are."""

TINY: dict[str, Any] = {
    "backbone": "convnet-w1",
    "image_size": 8,
    "hidden_dim": 8,
    "output_dim": 8,
    "device": "cpu",
    "execution": "eager",
}
"""What makes a learner in milliseconds, on a machine that may not be the one of its run."""


def rehearse(configs: Iterable[RunConfig]) -> None:
    """Refuse the first of these configurations that its learner would refuse.

    The numbers of each are checked as they are; how its names, sizes and options go together is found by making a
    learner of next to no size, once for all that differ in nothing else.
    """
    made: set[str] = set()
    for config in configs:
        asked = config.learner()
        check(SimpleNamespace(**asked))  # type: ignore[arg-type]
        kind = json.dumps({name: value for name, value in asked.items() if name not in NUMBERS}, sort_keys=True)
        if kind not in made:
            made.add(kind)
            _check_backbone(asked["backbone"], asked["stem"])
            _make({**asked, **TINY})


def _make(settings: dict[str, Any]) -> None:
    try:
        Learner(**settings)
    except OcsslError:
        raise
    except (TypeError, ValueError) as error:  # an option of the wrong kind
        raise ConfigError(f"strategy '{settings['strategy']}' cannot have these options: {error}") from error


@cache
def _check_backbone(name: str, stem: Any) -> None:
    if not name.startswith("timm:"):  # those can be as large as they like
        build_backbone(name, TINY["image_size"], stem)
