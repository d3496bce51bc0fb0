"""What a run reads: images close to the learner, and the parts of a data set that its probes need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ocssl import data
from ocssl.data.streams import split_validation
from ocssl.errors import ConfigError, DataError
from ocssl.runs.config import RunConfig

FREE_SHARE = 0.5  # of a GPU's free memory that images may take; the rest is for networks and features


class Pool:
    """The labelled images of a source by index, on a device.

    Args:
        source: where they come from.
        device: where they are wanted.
        resident: whether all of them live there; unset: on a GPU, where they fit.
    """

    def __init__(self, source: data.Dataset, device: torch.device, resident: bool | None = None) -> None:
        if source.labels is None:
            raise DataError(f"{source.name} has no labels, which the probes and the order of the stream need")
        self.labels = source.labels
        self._source = source
        self.device = device
        self.image_bytes = 3 * source.image_size**2
        self._resident: Tensor | None = None
        if resident is None and device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(device)
            resident = len(source) * self.image_bytes <= FREE_SHARE * free
        if resident:
            self._resident = source.images(torch.arange(len(source))).to(device)

    @property
    def identity(self) -> str:
        """Changes with the files that the images come from, where those are known."""
        return self._source.info.identity

    @property
    def reads(self) -> bool:
        """Whether images come from the source each time they are wanted."""
        return self._resident is None

    def __getitem__(self, indices: Tensor) -> Tensor:
        """The images at ``indices``: uint8 ``(n, 3, s, s)`` on the device."""
        if self._resident is not None:
            return self._resident[indices.to(self.device)]
        images = self._source.images(indices)
        if self.device.type == "cuda":  # pinned memory can be copied from while the device computes
            return images.pin_memory().to(self.device, non_blocking=True)
        return images


@dataclass(frozen=True)
class Part:
    """Some images of a pool."""

    pool: Pool
    indices: Tensor

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def labels(self) -> Tensor:
        """One per image."""
        return self.pool.labels[self.indices]

    def chunks(self, size: int) -> Iterator[Tensor]:
        """The images, ``size`` at a time."""
        return (self.pool[indices] for indices in self.indices.split(size))

    def without_last(self, batch: int) -> Part:
        """Without the incomplete last batch, unless nothing would be left."""
        return Part(self.pool, self.indices[: len(self) - len(self) % batch or len(self)])


@dataclass(frozen=True)
class Splits:
    """The three parts of a data set: the stream is made of ``train``, probes are chosen by ``validation``.

    Where settings are to be chosen, ``test`` is ``validation`` itself.
    """

    train: Part
    validation: Part
    test: Part

    @property
    def parts(self) -> tuple[Part, Part, Part]:
        """All three, in the order that the probes take them."""
        return self.train, self.validation, self.test

    @cached_property
    def classes(self) -> int:
        """How many labels there can be."""
        return 1 + max(int(part.labels.max()) for part in self.parts)


def load_splits(config: RunConfig, device: torch.device, dataset: str | None = None) -> Splits:
    """Open a data set as the configuration says.

    Args:
        dataset: another set than the configuration's, for a probe downstream.
    """
    name = dataset or config.dataset

    def whole(split: str) -> Part:
        source = data.load(name, split=split, root=config.data_root, image_size=config["image_size"])
        pool = Pool(source, device)
        return Part(pool, _at_most(pool.labels, config.samples_per_class))

    given = whole("train")
    kept, held_out = split_validation(given.labels, config.validation_fraction, config.data_seed)
    if len(held_out) == 0:
        raise ConfigError(
            f"validation_fraction {config.validation_fraction:g} holds out no image of {name}; raise it, or "
            "samples_per_class"
        )
    train = Part(given.pool, given.indices[kept])
    validation = Part(given.pool, given.indices[held_out])
    test = validation if config.measure_on == "validation" else whole("test")
    if config.protocol == "authors":  # their loop over validation and test data drops the last incomplete batch
        batch = config.probe.batch
        validation, test = validation.without_last(batch), test.without_last(batch)
    return Splits(train, validation, test)


def _at_most(labels: Tensor, count: int | None) -> Tensor:
    """Indices of the first ``count`` samples of each class, ascending."""
    if count is None:
        return torch.arange(len(labels))
    chosen = [torch.nonzero(labels == label).flatten()[:count] for label in labels.unique()]
    return torch.cat(chosen).sort().values
