"""Settings that this machine can keep up with: image size, network, batch and passes."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import torch
from torch import nn

from ocssl.common.signals import check_stop
from ocssl.config import parse_learner
from ocssl.device import pick_device
from ocssl.errors import ConfigError
from ocssl.imaging import BadImage, Picture, PixelRange, bad_images, decode, open_image
from ocssl.learner import Learner

RECIPE: dict[str, Any] = {
    "strategy": "er",
    "method": "emp",
    "views": 2,
    "rate_weight": 0.02,
    "memory": "reservoir",
    "optimizer": "lars",
    "hidden_dim": 512,
    "output_dim": 256,
}
"""Parts of a learner that learn most from few images and little time, as ``docs/gate.md`` shows."""
FEW, MORE = 20, 54  # replay samples per batch
PRESETS: tuple[tuple[int, dict[str, Any]], ...] = (
    (FEW, {"backbone": "convnet-w8", "passes": 1}),
    (FEW, {"backbone": "convnet", "passes": 1}),
    (FEW, {"backbone": "convnet", "passes": 3}),
    (FEW, {"backbone": "convnet", "passes": 10}),
    (FEW, {"backbone": "resnet18-w16", "passes": 3}),
    (FEW, {"backbone": "resnet18-w16", "passes": 10}),
    (FEW, {"backbone": "resnet18", "passes": 3}),
    (FEW, {"backbone": "resnet18", "passes": 10}),
)
"""Replay samples, for strategies that replay, and settings; each costs about three times the one before."""
PRETRAINED_PRESETS: tuple[tuple[int, dict[str, Any]], ...] = ((FEW, {}), (MORE, {}))
"""The same for a learner that begins with weights: these are the network's, and more passes lose what it knows."""

RESERVE = 1.25  # the rate is measured on an idle machine: decoding, saving and other work need a share
MEASURED = 3  # minibatches at least
SPAN = 0.5  # seconds that they take at least
LONG = 5.0  # seconds of a minibatch from which on a single one is precise enough
SLOW = 1.0  # seconds of a minibatch without replay from which on the time of one with replay is computed from it
MAX_SIZE_CPU, MAX_SIZE_GPU = 64, 224


def image_size_for(
    picture: Picture | BadImage, device: str = "auto", pixel_range: PixelRange | None = None
) -> int | None:
    """The shorter side of an image, at most 64 on a CPU and 224 on a GPU; None where the image cannot be used.

    Raises:
        OSError, MemoryError: it could not be read for a reason outside of it.

    >>> import numpy as np
    >>> image_size_for(np.zeros((32, 48, 3), dtype=np.uint8))
    32
    >>> image_size_for(np.zeros((480, 640, 3), dtype=np.uint8), "cpu")
    64
    """
    largest = MAX_SIZE_CPU if pick_device(device).type == "cpu" else MAX_SIZE_GPU
    if isinstance(picture, BadImage):
        return None
    try:
        with bad_images():
            image = open_image(picture, pixel_range)
            decode(image, MAX_SIZE_CPU, "crop", pixel_range)
            return min(*image.size, largest)
    except BadImage:
        return None


def autotune(target: float, given: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    """The most expensive preset with which this machine learns from ``target`` images per second.

    Args:
        given: settings of :class:`~ocssl.Learner` that are fixed, e.g. ``image_size``. A preset that they do not fit is
            left out.

    Returns:
        settings of the learner, and the measured rate, which is below the target where the cheapest preset is too slow.
    """
    best: tuple[dict[str, Any], float] | None = None
    tried: list[dict[str, Any]] = []
    known: list[tuple[dict[str, Any], float]] = []
    refusal = ConfigError("no preset fits")
    for replay, preset in PRETRAINED_PRESETS if "weights" in given else PRESETS:
        try:
            settings = {**preset, "batch": batch_for(replay, given), **given}
            if settings in tried:
                continue
            tried.append(settings)
            rate = measure(settings, target * RESERVE, known)
        except ConfigError as error:
            refusal = error
            continue
        if best is None or rate >= target * RESERVE:
            best = settings, rate
        if rate < target * RESERVE:
            break
    if best is None:
        raise refusal
    return best


def batch_for(replay: int, given: Mapping[str, Any]) -> int:
    """Images per step: the stream minibatch and, for strategies that replay, so many samples of the memory.

    There are fewer replay samples where the memory could not hold them.

    >>> batch_for(20, {}), batch_for(20, {"stream_batch": 64}), batch_for(20, {"strategy": "finetune"})
    (30, 84, 10)
    >>> batch_for(128, {"memory_size": 100})
    109
    """
    config = parse_learner({name: given[name] for name in ("strategy", "variant", "memory") if name in given})
    strategy = config.parts().strategy
    stream_batch = given.get("stream_batch", config.stream_batch)
    memory_size = given.get("memory_size", getattr(config, "memory_size", 0))
    if not (isinstance(stream_batch, Integral) and isinstance(memory_size, Integral)):
        return config.batch  # the learner refuses these settings
    stream_batch, memory_size = int(stream_batch), int(memory_size)
    if strategy.default_batch(stream_batch) == stream_batch:
        return stream_batch
    missing = strategy.replay_size(stream_batch, stream_batch + replay) + 1 - memory_size
    return stream_batch + max(1, replay - max(0, missing))


def measure(
    settings: Mapping[str, Any], at_least: float = 0.0, known: list[tuple[dict[str, Any], float]] | None = None
) -> float:
    """Images per second that a learner with these settings takes once it replays.

    One pass is measured, and several take as many times longer. Where a step without replay takes long, one with replay
    is not waited for: it takes longer in proportion to its images. The measurement ends early where the rate is far
    below ``at_least``. A backbone of the user's own is copied, so that it learns nothing here.

    Args:
        known: settings with one pass, and the seconds that it took; looked up, and added to.
    """
    known = [] if known is None else known
    single = {**settings, "passes": 1}
    changes: dict[str, Any] = {"passes": 1, "early_passes": 1, "early_images": 0}
    changes["weights"] = None  # their source has been read, and only the time matters
    fill, own = 0, isinstance(settings.get("backbone"), nn.Module)
    if own:
        changes["backbone"] = copy.deepcopy(settings["backbone"])
    config = parse_learner({**settings, "backbone": None} if own else settings, own_backbone=own)
    per_image = config.passes / config.stream_batch
    for other, taken in known:
        if other == single:
            return 1 / (per_image * taken)
    if hasattr(config, "memory_size"):
        changes["memory_size"] = min(config.batch + 1, config.memory_size)  # small, so that it is full soon
        fill = -(-changes["memory_size"] // config.stream_batch)
    if hasattr(config, "heads_first"):
        changes["heads_first"] = 1 + fill  # such steps are faster: none of those that are measured
    try:
        learner = Learner(**{**settings, **changes})
    except ConfigError:  # parts of so small a memory may be too small; what is wrong with the real one is said of that
        changes.pop("memory_size", None)
        learner = Learner(**{**settings, **changes})
    first = _seconds(learner)  # it includes what is set up once
    whole = not hasattr(config, "heads_first")  # all of the network learns in every step
    seconds: list[float] = []
    while len(seconds) < fill + MEASURED or sum(seconds[fill:]) < SPAN:
        seconds.append(_seconds(learner))
        if whole and len(seconds) <= fill and (quickest := min(first, *seconds)) > SLOW:
            seconds = [quickest * config.batch / config.stream_batch] * (fill + 1)
            break
        # One slow step may be an accident, several in a row are not.
        too_slow = len(seconds) >= MEASURED and min(seconds[-MEASURED:]) * per_image * at_least > 2
        if too_slow or (len(seconds) > fill and seconds[-1] > LONG):
            break
    measured = sorted(seconds[fill:] or seconds[-MEASURED:])
    known.append((single, measured[len(measured) // 4]))  # other work makes many of them slower
    return 1 / (per_image * known[-1][1])


def _seconds(learner: Learner) -> float:
    """The time of one stream minibatch, without the capture of graphs."""
    config, generator = learner.config, torch.Generator().manual_seed(0)
    shape = (config.stream_batch, 3, config.image_size, config.image_size)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    preparing = learner.executor.preparing
    check_stop("stopped while the speed was measured; nothing was learned")
    began = time.perf_counter()
    learner.partial_fit(images)
    learner.check_finite()  # reads a value back, so the device has finished
    return time.perf_counter() - began - (learner.executor.preparing - preparing)
