"""Settings that this machine can keep up with: the richest of a ladder that reaches the wanted rate."""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ocssl import strategies
from ocssl.learner import Learner
from ocssl.settings import REPLAY_BATCH, batch_size, require

SMALL = {"hidden_dim": 128, "output_dim": 512}
FEW = 20  # replay samples per batch, where REPLAY_BATCH is what the paper takes
LADDER: tuple[tuple[int, dict[str, Any]], ...] = (
    (FEW, {"backbone": "convnet-w8", "passes": 1, **SMALL}),
    (FEW, {"backbone": "convnet", "passes": 1, **SMALL}),
    (REPLAY_BATCH, {"backbone": "convnet", "passes": 1, **SMALL}),
    (FEW, {"backbone": "resnet18-w16", "passes": 1, **SMALL}),
    (REPLAY_BATCH, {"backbone": "resnet18-w16", "passes": 1, **SMALL}),
    (FEW, {"backbone": "resnet18", "passes": 1}),
    (REPLAY_BATCH, {"backbone": "resnet18", "passes": 1}),
    (REPLAY_BATCH, {"backbone": "resnet18", "passes": 3}),
)
"""Replay samples, for strategies that replay, and settings: from the cheapest to the paper's high budget, each about
three times the one before."""

DEFAULTS = {name: parameter.default for name, parameter in inspect.signature(Learner).parameters.items()}

RESERVE = 1.25  # measured in a quiet moment: decoding, saving and the machine's other work want their share
MEASURED = 3  # minibatches


def choose(target: float, given: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    """The richest settings that learn from ``target`` images per second here.

    Args:
        target: images per second.
        given: arguments of :class:`~ocssl.Learner` that are fixed; ``image_size`` for one.

    Returns:
        arguments for the learner, and the rate that was measured: below the target when even the cheapest are too
        slow.
    """
    best: tuple[dict[str, Any], float] | None = None
    tried: list[dict[str, Any]] = []
    for replay, rung in LADDER:
        settings = {**rung, "batch": batch_for(replay, given), **given}
        if settings in tried:
            continue
        tried.append(settings)
        rate = measure(settings, at_least=target * RESERVE)
        if best is None or rate >= target * RESERVE:
            best = settings, rate
        if rate < target * RESERVE:
            break
    assert best is not None
    return best


def batch_for(replay: int, given: Mapping[str, Any]) -> int:
    """Images per step: as many as the strategy takes from the stream, and so many from memory where it replays.

    Fewer are replayed where the memory could not hold them.

    >>> batch_for(20, {}), batch_for(20, {"stream_batch": 64}), batch_for(20, {"strategy": "finetune"})
    (30, 84, 10)
    >>> batch_for(128, {"memory_size": 100})
    109
    """
    strategy, stream_batch, memory_size = (
        _setting(name, given) for name in ("strategy", "stream_batch", "memory_size")
    )
    require("stream_batch", stream_batch, low=1, whole=True)
    require("memory_size", memory_size, low=1, whole=True)
    composition = strategies.get(strategy).composition
    if composition in ("stream", "mixed"):
        return int(stream_batch)
    held = memory_size - 1 - (stream_batch if composition == "replay" else 0)
    return int(stream_batch + max(1, min(replay, held)))


def measure(settings: Mapping[str, Any], at_least: float = 0.0) -> float:
    """Images per second that a learner with these settings takes in once it replays.

    A learner that is clearly slower than ``at_least`` is not watched to the end. A backbone of the user's own is
    copied, and learns nothing here.
    """
    batch = batch_size(*(_setting(name, settings) for name in ("strategy", "stream_batch", "batch")))
    # No larger than replay needs, so that it is full soon.
    small = {"memory_size": min(batch + 1, _setting("memory_size", settings))}
    if isinstance(settings.get("backbone"), nn.Module):
        small["backbone"] = copy.deepcopy(settings["backbone"])
    learner = Learner(**{**settings, **small})
    learner.partial_fit(_noise(learner, learner.stream_batch))  # the first step pays for what is set up once
    fill = -(-learner.memory_size // learner.stream_batch)
    rates = []
    for _ in range(fill + MEASURED):
        rates.append(learner.stream_batch / _seconds(learner))
        # One slow step may be an accident, several in a row are not.
        if len(rates) >= MEASURED and max(rates[-MEASURED:]) < at_least / 2:
            break
    return sorted(rates[-MEASURED:])[MEASURED // 2]


def _seconds(learner: Learner) -> float:
    images = _noise(learner, learner.stream_batch)
    preparing = learner.executor.preparing
    began = time.perf_counter()
    learner.partial_fit(images)
    learner.check_finite()  # reads a value back, so the device has to be through
    return time.perf_counter() - began - (learner.executor.preparing - preparing)


def _setting(name: str, given: Mapping[str, Any]) -> Any:
    """As given, else what a learner has without being told."""
    return given.get(name, DEFAULTS[name])


def _noise(learner: Learner, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (count, 3, learner.image_size, learner.image_size)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
