"""Stand-in for ``ocssl.config``, to be deleted: the same names are in ``ocssl.config`` and ``ocssl.options``.

``config_of(learner)`` becomes ``learner.config``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ocssl import strategies
from ocssl.build import check
from ocssl.learner import Learner
from ocssl.options import Marks
from ocssl.settings import REPLAY_BATCH, batch_size

__all__ = ["REPLAY_BATCH", "config_of", "difference", "known_names", "parse_learner", "settings"]

_DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(Learner).parameters.items()}


class _Config(SimpleNamespace):
    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def parts(self) -> Any:
        composition = strategies.get(self.strategy).composition
        replays = composition in ("stream+replay", "replay")
        return SimpleNamespace(
            strategy=SimpleNamespace(
                replays_samples=lambda: replays,
                replay_size=lambda stream_batch, batch: batch if composition == "replay" else batch - stream_batch,
            )
        )


def parse_learner(given: Mapping[str, Any], *, own_backbone: bool = False) -> Any:
    config = _Config(**{**_DEFAULTS, **given})
    check(config)  # type: ignore[arg-type]
    config.batch = batch_size(config.strategy, config.stream_batch, config.batch)
    return config


def config_of(learner: Learner) -> Any:
    return _Config(**learner.get_params())


def difference(before: Any, after: Any) -> str | None:
    return next((name for name in vars(before) if name != "device" and vars(before)[name] != vars(after)[name]), None)


def known_names(given: Mapping[str, Any]) -> set[str]:
    return set(_DEFAULTS)


def settings() -> dict[str, Any]:
    affects = {"device": Marks(affects="nothing")}
    return {name: SimpleNamespace(marks=affects.get(name, Marks())) for name in _DEFAULTS}
