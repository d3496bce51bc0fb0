"""The images of a run: its splits on the learner's device, the schedule of the stream, and reading ahead."""

from __future__ import annotations

import math
from bisect import bisect_right
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ocssl import data
from ocssl.budget import plan
from ocssl.data import Stream, authors, streams
from ocssl.data.dataset import first_per_class
from ocssl.data.streams import ClassIncremental, Iid, StreamType
from ocssl.distributed import ProcessGroup
from ocssl.errors import ConfigError, DataError
from ocssl.runs.config import RunConfig
from ocssl.runs.presets import online_cost

FREE_SHARE = 0.5  # of a GPU's free memory that images may take; the rest is for networks and features
BLOCK_BYTES = 64 << 20  # read at a time; two blocks are on the device at once

# ---------------------------------------------------------------------- splits


class DeviceDataset:
    """The labelled images of a data set by index, on a device.

    Args:
        resident: keep all of them there; unset: on a GPU, where they fit.
    """

    def __init__(self, source: data.Dataset, device: torch.device, resident: bool | None = None) -> None:
        if source.labels is None:
            raise DataError(f"{source.name} has no labels, which the probes and the order of the stream need")
        self.labels = source.labels
        self.source = source
        self.device = device
        self.image_bytes = 3 * source.image_size**2
        self._resident: Tensor | None = None
        if resident is None and device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(device)
            resident = len(source) * self.image_bytes <= FREE_SHARE * free
        if resident:
            shape = (len(source), 3, source.image_size, source.image_size)
            self._resident = torch.empty(shape, dtype=torch.uint8, device=device)
            for rows in torch.arange(len(source)).split(max(1, BLOCK_BYTES // self.image_bytes)):  # not all at once
                self._resident[rows[0] : rows[-1] + 1] = source.images(rows).to(device)

    @property
    def reads(self) -> bool:
        """Whether images are read from the data set each time they are wanted."""
        return self._resident is None

    def __getitem__(self, indices: Tensor) -> Tensor:
        """The images at ``indices``: uint8 ``(n, 3, s, s)`` on the device."""
        if self._resident is not None:
            return self._resident[indices.to(self.device)]
        images = self.source.images(indices)
        if self.device.type == "cuda":  # pinned memory can be copied from while the device computes
            return images.pin_memory().to(self.device, non_blocking=True)
        return images


@dataclass(frozen=True)
class Subset:
    """Some images of a data set."""

    dataset: DeviceDataset
    indices: Tensor

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def labels(self) -> Tensor:
        """One per image."""
        return self.dataset.labels[self.indices]

    def __getitem__(self, rows: slice) -> Tensor:
        """Some of its images: uint8 ``(n, 3, s, s)`` on the device."""
        return self.dataset[self.indices[rows]]

    def without_last(self, batch: int) -> Subset:
        """Without the incomplete last batch, unless nothing would be left."""
        return Subset(self.dataset, self.indices[: len(self) - len(self) % batch or len(self)])


@dataclass(frozen=True)
class Splits:
    """The splits of a data set: the stream is made of ``train``, probes are chosen by ``validation``.

    Where settings are to be chosen, ``test`` is ``validation`` itself.
    """

    train: Subset
    validation: Subset
    test: Subset

    @property
    def subsets(self) -> tuple[Subset, Subset, Subset]:
        """All three, in the order that the probes take them."""
        return self.train, self.validation, self.test

    @property
    def sources(self) -> dict[str, data.Dataset]:
        """The data sets behind them by split: ``train``, and ``test`` unless validation images are measured on."""
        both = {"train": self.train.dataset.source, "test": self.test.dataset.source}
        return both if both["test"] is not both["train"] else {"train": both["train"]}

    @cached_property
    def classes(self) -> int:
        """How many labels there can be."""
        return 1 + max(int(subset.labels.max()) for subset in self.subsets)


def load_splits(config: RunConfig, device: torch.device) -> Splits:
    """Open the data set of a configuration."""

    def whole(split: str) -> Subset:
        images = data.load(
            config.dataset,
            split=split,
            root=config.data_root,
            image_size=config.learner.image_size,
            fit=config.learner.fit,
            pixel_range=config.learner.pixel_range,
        )
        on_device = DeviceDataset(images, device)
        return Subset(on_device, first_per_class(on_device.labels, config.samples_per_class))

    given = whole("train")
    kept, held_out = streams.split_validation(given.labels, config.validation_fraction, config.data_seed)
    if len(held_out) == 0:
        raise ConfigError(
            f"validation_fraction {config.validation_fraction:g} holds out no image of {config.dataset}; raise it, or "
            "samples_per_class"
        )
    train = Subset(given.dataset, given.indices[kept])
    validation = Subset(given.dataset, given.indices[held_out])
    test = validation if config.measure_on == "validation" else whole("test")
    for label, (here, there) in enumerate(zip(train.dataset.source.classes, test.dataset.source.classes, strict=False)):
        if here != there:
            raise DataError(
                f"label {label} of {config.dataset} is '{here}' in split train and '{there}' in split test; give both "
                "the same class names"
            )
    if config.protocol == "authors":  # their loop over validation and test data drops the last incomplete batch
        batch = config.probe.batch
        validation, test = validation.without_last(batch), test.without_last(batch)
    return Splits(train, validation, test)


# ---------------------------------------------------------------------- schedule


@dataclass(frozen=True)
class Schedule:
    """Which images arrive when, where the encoder is measured, and what the run costs.

    Attributes:
        borders: how many samples have arrived when each experience ends; the last is the end of the run.
        experiences: the classes of each experience; i.i.d. data is one experience of all classes.
        cbp: what all steps cost, if every batch is full.
        fingerprint: of the stream.
    """

    borders: tuple[int, ...]
    experiences: tuple[tuple[int, ...], ...]
    cbp: int
    fingerprint: str
    _stream: Stream

    def __len__(self) -> int:
        return self.borders[-1]

    def indices(self, start: int, stop: int) -> Tensor:
        """The samples that arrive from position ``start`` up to ``stop``, as indices into the training images."""
        return self._stream.between(start, stop)


def make_schedule(config: RunConfig, train: Subset, *, spent: int = 0) -> Schedule:
    """The schedule that a configuration asks for.

    Args:
        train: the images that may arrive.
        spent: CBP that went into the networks before this run; counts towards ``config.cbp``.
    """
    left = None if config.cbp is None else config.cbp - spent
    if left is not None and left <= 0:
        raise ConfigError(f"cbp is {config.cbp}, but {spent} were spent before this run")
    stream = streams.registry.get(config.stream)(config.stream_options())
    return _iid(config, stream, train, left) if config.iid else _online(config, stream, train, left)


def _online(config: RunConfig, kind: StreamType, train: Subset, left: int | None) -> Schedule:
    learner, size = config.learner, config.learner.stream_batch
    stream = _build(kind, config, train, size)
    count = len(train.dataset.labels)
    streams.require_runnable(stream, config.stream, indices=train.indices, count=count, stream_batch=size)
    minibatches, step = range(0, len(stream) - size + 1, size), learner.step_cost()
    cost = list(accumulate(step * learner.passes_at(seen) for seen in minibatches))
    samples = len(stream) if left is None else bisect_right(cost, left) * size
    if samples == 0 or (left is not None and left >= cost[-1] + step * learner.passes_at(len(stream))):
        raise ConfigError(f"this stream can spend from {cost[0]} to {cost[-1]} CBP, not {left}")
    ends = (*(border for border in stream.borders if border < samples), samples)
    classes = tuple(_classes_of(train, stream.indices(number)) for number in range(len(ends)))
    return Schedule(ends, classes, cost[samples // size - 1], stream.fingerprint(), stream)


def _build(kind: StreamType, config: RunConfig, train: Subset, stream_batch: int, **more: Any) -> Stream:
    """The stream, in the order of the run's own seed and of the authors' classes where these are wanted."""
    if getattr(config, "sample_order", "data") == "seed":
        more["order_seed"] = config.learner.seed
    if getattr(config, "class_order", "data") == "authors":
        more["class_order"] = authors.CLASS_ORDERS[config.dataset]
    return streams.build_stream(
        kind,
        train.dataset.labels,
        indices=train.indices,
        data_seed=config.data_seed,
        stream_batch=stream_batch,
        column=train.dataset.source.column,
        **more,
    )


def _iid(config: RunConfig, kind: StreamType, train: Subset, left: int | None) -> Schedule:
    batch, classes = config.learner.batch, _classes_of(train, train.indices)
    step = config.learner.step_cost()
    if config.learner.early_images:
        raise ConfigError("i.i.d. training has no early_passes; leave early_passes and early_images out")
    if left is None:
        # Equal cost: an experience drops its last, incomplete minibatch, so an online stream may be a little shorter.
        stream_batch, _, passes = online_cost(config)
        experiences = min(config.select(Iid.Options).online_experiences, len(classes))
        online = ClassIncremental(ClassIncremental.Options(experiences=experiences))
        samples = len(_build(online, config, train, stream_batch))
        if samples == 0:
            raise ConfigError(f"no experience has as many samples as online_stream_batch ({stream_batch}); lower it")
        planned = plan(samples, stream_batch, batch, passes)
        steps, epochs = planned.steps, planned.iid_epochs
    else:
        steps, epochs = left // step, 1
        if steps < 1:
            raise ConfigError(f"{left} CBP are less than the {step} of one batch of {batch} images")
    if config.select(Iid.Options).epoch_end == "drop":
        whole = len(train) // batch
        if whole == 0:
            raise ConfigError(f"{len(train)} images are less than one batch of {batch}; set epoch_end=carry")
        if left is None:
            steps = epochs * whole
        else:
            epochs = math.ceil(steps / whole)
    else:  # batches run on from one epoch into the next, so that every step is full and the cost is exact
        epochs = max(epochs, math.ceil(steps * batch / len(train)))
    stream = _build(kind, config, train, batch, epochs=epochs)
    return Schedule((steps * batch,), (classes,), steps * step, stream.fingerprint(), stream)


def _classes_of(train: Subset, indices: Tensor) -> tuple[int, ...]:
    return tuple(train.dataset.labels[indices].unique().tolist())


# ---------------------------------------------------------------------- reading ahead


class Prefetcher:
    """The images of any part of the schedule, in order; a thread reads the next block ahead.

    Reading ahead pays where images come from disk and training does not need the processor: on a GPU whose memory the
    set does not fit into. In a process group each process reads its share when it is wanted.

    Args:
        ahead: read ahead; unset: where it pays.
    """

    def __init__(
        self, dataset: DeviceDataset, schedule: Schedule, group: ProcessGroup, ahead: bool | None = None
    ) -> None:
        self._dataset, self._schedule, self._group = dataset, schedule, group
        self._ahead = (dataset.reads and dataset.device.type == "cuda" and group.single) if ahead is None else ahead
        self._block = max(1, BLOCK_BYTES // dataset.image_bytes)
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ocssl-prefetch")
        self._blocks: dict[int, Future[Tensor]] = {}

    def take(self, start: int, stop: int) -> Tensor:
        """This process's share of the images at positions ``start`` up to ``stop``: uint8 ``(n, 3, s, s)``."""
        if not self._ahead:
            return self._dataset[self._schedule.indices(start, stop)[self._group.share(stop - start)]]
        parts = []
        for number in range(start // self._block, -(-stop // self._block)):
            first = number * self._block
            parts.append(self._get(number)[max(start - first, 0) : stop - first])
        return torch.cat(parts)

    def close(self) -> None:
        """Stop reading."""
        self._reader.shutdown(cancel_futures=True)

    def _get(self, number: int) -> Tensor:
        """A block, with the next one being read; earlier blocks are dropped."""
        wanted = [ahead for ahead in (number, number + 1) if ahead * self._block < len(self._schedule)]
        self._blocks = {block: self._blocks.get(block) or self._reader.submit(self._read, block) for block in wanted}
        images = self._blocks[number].result()
        if images.is_cuda:
            images.record_stream(torch.cuda.current_stream(images.device))
        return images

    def _read(self, number: int) -> Tensor:
        start = number * self._block
        indices = self._schedule.indices(start, min(start + self._block, len(self._schedule)))
        if self._dataset.device.type != "cuda":
            return self._dataset[indices]
        stream = torch.cuda.Stream(self._dataset.device)
        with torch.cuda.stream(stream):
            images = self._dataset[indices]
        stream.synchronize()
        return images
