"""What a set of images looks like to everything else: a length, a size, and pixels by index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ocssl.errors import ConfigError, InputError

Channels = tuple[float, float, float]
Column = npt.NDArray[np.generic]

IMAGENET_MEAN: Channels = (0.485, 0.456, 0.406)
IMAGENET_STD: Channels = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Skipped:
    """An item that could not be used, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a source beside its pixels.

    Attributes:
        name: the address it was loaded from.
        classes: class names by label; empty when unknown.
        mean, std: per channel, for pixels in [0, 1].
        skipped: items left out because they could not be read.
        identity: changes with the names, sizes and times of the original files; empty when unknown.
    """

    name: str
    classes: tuple[str, ...] = ()
    mean: Channels = IMAGENET_MEAN
    std: Channels = IMAGENET_STD
    skipped: tuple[Skipped, ...] = field(default=(), repr=False)
    identity: str = field(default="", repr=False)


class Dataset(ABC):
    """Square RGB images of one size, by index. Subclass it to bring your own: two methods and ``super().__init__``.

    Args:
        about: name, classes, normalisation.
        image_size: side length in pixels.
        labels: int64 ``(N,)`` for evaluation, or None.
        columns: looks up further properties of the images by name, for :meth:`column`.
    """

    def __init__(
        self,
        about: DatasetInfo,
        image_size: int,
        labels: Tensor | None = None,
        columns: Callable[[str], Column] | None = None,
    ) -> None:
        self.about = about
        self.image_size = image_size
        self.labels = labels
        self._columns = columns

    @abstractmethod
    def __len__(self) -> int:
        """Number of images."""

    @abstractmethod
    def images(self, indices: Tensor | Sequence[int]) -> Tensor:
        """The images at ``indices``: uint8 ``(n, 3, S, S)``, a copy that the caller may change."""

    def column(self, name: str) -> Column:
        """Another property of each image, to order a stream by: a parquet column, ``"name"``, ``"mtime"``."""
        if self._columns is None:
            raise ConfigError(f"{self.name} has no column '{name}'")
        return self._columns(name)

    @property
    def name(self) -> str:
        return self.about.name

    @property
    def classes(self) -> tuple[str, ...]:
        return self.about.classes

    @property
    def mean(self) -> Channels:
        return self.about.mean

    @property
    def std(self) -> Channels:
        return self.about.std

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        return self.about.skipped

    def __repr__(self) -> str:
        labelled = f", {len(self.classes)} classes" if self.labels is not None else ""
        return f"<{self.name}: {len(self)} images of {self.image_size}×{self.image_size}{labelled}>"


class ResidentDataset(Dataset):
    """All images in RAM, as one tensor.

    >>> source = ResidentDataset(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), DatasetInfo("blank"))
    >>> source
    <blank: 4 images of 8×8>
    >>> source.images([0, 3]).shape
    torch.Size([2, 3, 8, 8])
    """

    def __init__(
        self,
        pixels: Tensor,
        about: DatasetInfo,
        labels: Tensor | None = None,
        columns: Callable[[str], Column] | None = None,
    ) -> None:
        if (
            pixels.dtype != torch.uint8
            or pixels.ndim != 4
            or pixels.shape[1] != 3
            or pixels.shape[2] != pixels.shape[3]
        ):
            raise InputError(f"images must be uint8 (N, 3, S, S), not {pixels.dtype} {tuple(pixels.shape)}")
        if labels is not None and len(labels) != len(pixels):
            raise InputError(f"{len(pixels)} images cannot have {len(labels)} labels")
        super().__init__(about, pixels.shape[-1], labels, columns)
        self._pixels = pixels

    def __len__(self) -> int:
        return len(self._pixels)

    def images(self, indices: Tensor | Sequence[int]) -> Tensor:
        return self._pixels.index_select(0, torch.as_tensor(indices, dtype=torch.int64))
