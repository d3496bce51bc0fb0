"""A run's way through its images: which arrive when, where the encoder is measured, and what it all costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ocssl.budget import plan
from ocssl.data import Stream
from ocssl.data.streams import class_incremental, iid
from ocssl.errors import ConfigError
from ocssl.runs.config import RunConfig
from ocssl.runs.material import Part


@dataclass(frozen=True)
class Schedule:
    """The way itself.

    Attributes:
        borders: how many samples have arrived when each experience ends; the last is the end of the run.
        experiences: the classes of each experience; i.i.d. data is one experience of all classes.
        cbp: what the way costs, views × batch summed over steps, if every batch is full.
        fingerprint: of the stream it follows.
    """

    borders: tuple[int, ...]
    experiences: tuple[tuple[int, ...], ...]
    cbp: int
    fingerprint: str
    _stream: Stream
    _samples: Callable[[int], Tensor]

    def __len__(self) -> int:
        return self.borders[-1]

    def indices(self, start: int, stop: int) -> Tensor:
        """The samples that arrive from position ``start`` up to ``stop``, as indices into the training pool."""
        parts = []
        while start < stop:
            number = self._stream.experience_at(start)
            begin = self._stream.borders[number - 1] if number else 0
            end = min(stop, self._stream.borders[number])
            parts.append(self._samples(number)[start - begin : end - begin])
            start = end
        return torch.cat(parts)


def make_schedule(config: RunConfig, train: Part, *, views: int, spent: int = 0) -> Schedule:
    """Lay out the way that the configuration asks for.

    Args:
        train: the images that may arrive.
        views: of each image in a step.
        spent: CBP that went into the networks before this run; counts towards ``config.cbp``.
    """
    left = None if config.cbp is None else config.cbp - spent
    if left is not None and left <= 0:
        raise ConfigError(f"cbp is {config.cbp}, but {spent} were spent before this run")
    return _iid(config, train, views, left) if config.iid else _class_incremental(config, train, views, left)


def _class_incremental(config: RunConfig, train: Part, views: int, left: int | None) -> Schedule:
    size = config["stream_batch"]
    stream = _stream(config, train, config.experiences)
    if len({0, *stream.borders}) <= stream.experiences:
        raise ConfigError(f"an experience has fewer samples than stream_batch ({size}); use fewer experiences")
    per_minibatch = views * config["batch"] * config["passes"]
    samples = len(stream) if left is None else left // per_minibatch * size
    if not 0 < samples <= len(stream):
        possible = f"from {per_minibatch} to {len(stream) // size * per_minibatch}"
        raise ConfigError(f"this stream can spend {possible} CBP, not {left}")
    ends = (*(border for border in stream.borders if border < samples), samples)
    classes = tuple(_classes_of(train, stream.indices(number)) for number in range(len(ends)))
    return _route(stream, ends, classes, samples // size * per_minibatch)


def _stream(config: RunConfig, train: Part, experiences: int) -> Stream:
    return class_incremental(
        train.pool.labels,
        experiences,
        indices=train.indices,
        data_seed=config.data_seed,
        stream_batch=config["stream_batch"],
    )


def _iid(config: RunConfig, train: Part, views: int, left: int | None) -> Schedule:
    batch, classes = config["batch"], _classes_of(train, train.indices)
    if left is None:
        # An experience drops its last, incomplete minibatch, so a stream may have fewer samples than there are images.
        online = _stream(config, train, min(config.experiences, len(classes)))
        if len(online) == 0:
            raise ConfigError(f"no experience has as many samples as stream_batch ({config['stream_batch']}); lower it")
        planned = plan(len(online), config["stream_batch"], batch, config["passes"], views)
        steps, epochs = planned.steps, planned.iid_epochs
    else:
        steps, epochs = left // (views * batch), 1
    if steps < 1:
        raise ConfigError(f"{left} CBP are less than one batch of {batch} images in {views} views")
    # Batches run on from one epoch into the next, so that every step is full and the cost is exact.
    epochs = max(epochs, math.ceil(steps * batch / len(train)))
    stream = iid(indices=train.indices, epochs=epochs, data_seed=config.data_seed, batch=batch, last="carry")
    return _route(stream, (steps * batch,), (classes,), steps * batch * views)


def _route(stream: Stream, borders: tuple[int, ...], classes: tuple[tuple[int, ...], ...], cbp: int) -> Schedule:
    # Drawing an epoch's order takes milliseconds, asking for it again at every stretch would take them every time.
    return Schedule(borders, classes, cbp, stream.fingerprint(), stream, lru_cache(maxsize=2)(stream.indices))


def _classes_of(train: Part, indices: Tensor) -> tuple[int, ...]:
    return tuple(train.pool.labels[indices].unique().tolist())
