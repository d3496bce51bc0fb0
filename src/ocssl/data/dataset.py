"""A data set: square RGB images of one size by index, in RAM or mapped from a file."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ocssl.common.files import atomic_write, read_file
from ocssl.errors import ConfigError, InputError
from ocssl.imaging import file_stamp

Channels = tuple[float, float, float]
ColumnArray = npt.NDArray[np.generic]
Columns = Callable[[str], ColumnArray] | None

IMAGENET_MEAN: Channels = (0.485, 0.456, 0.406)
IMAGENET_STD: Channels = (0.229, 0.224, 0.225)
HASHED_AT_ONCE = 32 << 20  # bytes


@dataclass(frozen=True)
class Skipped:
    """An image that could not be used, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class DatasetInfo:
    """Facts of a data set besides its pixels.

    Attributes:
        name: the address it was loaded from.
        classes: class names by label; empty when unknown.
        mean, std: per channel, for pixels in [0, 1].
        skipped: images left out because they could not be read.
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
        info: name, classes, normalisation; its fields ``name``, ``classes``, ``mean``, ``std`` and ``skipped`` are
            attributes of the data set as well.
        image_size: side length in pixels.
        labels: int64 ``(N,)`` for evaluation, or None.
        columns: looks up further properties of the images by name, for :meth:`column`.
    """

    def __init__(
        self, info: DatasetInfo, image_size: int, labels: Tensor | None = None, columns: Columns = None
    ) -> None:
        if labels is not None and not (isinstance(labels, Tensor) and labels.dtype == torch.int64):
            found = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
            raise InputError(f"labels of data set '{info.name}' must be a tensor of int64, not {found}")
        self.info = info
        self.name, self.classes, self.skipped = info.name, info.classes, info.skipped
        self.mean, self.std = info.mean, info.std
        self.image_size = image_size
        self.labels = labels
        self._columns = columns

    @abstractmethod
    def __len__(self) -> int:
        """Number of images."""

    @abstractmethod
    def images(self, indices: Tensor | Sequence[int]) -> Tensor:
        """The images at ``indices``, int64 ``(n,)``: uint8 ``(n, 3, S, S)``, a copy that the caller may change."""

    def column(self, name: str) -> ColumnArray:
        """Another property of each image, to order a stream by: a parquet column, ``"name"``, ``"mtime"``."""
        if self._columns is None:
            raise ConfigError(
                f"{self.name} has no column '{name}'; parquet files have columns, and image files 'name' and 'mtime'"
            )
        return self._columns(name)

    def digest(self) -> str:
        """SHA-256 of the images and labels: equal for equal ones, whatever files they were decoded from.

        >>> one, other = torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.ones(2, 3, 8, 8, dtype=torch.uint8)
        >>> ResidentDataset(one, DatasetInfo("a")).digest() == ResidentDataset(one, DatasetInfo("b")).digest()
        True
        >>> ResidentDataset(one, DatasetInfo("a")).digest() == ResidentDataset(other, DatasetInfo("a")).digest()
        False
        """
        labels = b"" if self.labels is None else self.labels.cpu().numpy().astype("<i8").tobytes()
        shape = f"{len(self)} {self.image_size} {self._digest_pixels()}\n"
        return hashlib.sha256(shape.encode() + labels).hexdigest()

    def _digest_pixels(self) -> str:
        digest, many = hashlib.sha256(), max(1, HASHED_AT_ONCE // (3 * self.image_size**2))
        for start in range(0, len(self), many):
            images = self.images(torch.arange(start, min(start + many, len(self))))
            digest.update(images.cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def __repr__(self) -> str:
        labelled = f", {len(self.classes)} classes" if self.labels is not None else ""
        return f"<{self.name}: {len(self)} images of {self.image_size}×{self.image_size}{labelled}>"


def _positions(indices: Tensor | Sequence[int], count: int) -> Tensor:
    """Indices as int64 ``(n,)``; what is none, such as a mask, would be taken for other images."""
    given = torch.as_tensor(indices)
    found = given.to(torch.int64)
    if not given.numel():
        return found.flatten()
    whole = given.ndim == 1 and given.dtype != torch.bool and not given.is_floating_point()
    if not whole or found.min() < 0 or found.max() >= count:
        what = f"{given.dtype} {tuple(given.shape)} from {given.min():g} to {given.max():g}"
        hint = "; of a mask, take mask.nonzero().flatten()" if given.dtype == torch.bool else ""
        raise InputError(f"indices must be whole numbers from 0 to {count - 1}, (n,), not {what}{hint}")
    return found


def first_per_class(labels: Tensor, count: int | None) -> Tensor:
    """Indices of the first ``count`` samples of each class, ascending; None: of all samples.

    >>> first_per_class(torch.tensor([3, 3, 1, 3, 1, 1]), 2)
    tensor([0, 1, 2, 4])
    """
    if count is None:
        return torch.arange(len(labels))
    chosen = [torch.nonzero(labels == label).flatten()[:count] for label in labels.unique()]
    return torch.cat(chosen).sort().values


class ResidentDataset(Dataset):
    """All images in RAM, as one tensor.

    Args:
        pixels: uint8 ``(N, 3, S, S)``.

    >>> dataset = ResidentDataset(torch.zeros(4, 3, 8, 8, dtype=torch.uint8), DatasetInfo("blank"))
    >>> dataset
    <blank: 4 images of 8×8>
    >>> dataset.images([0, 3]).shape
    torch.Size([2, 3, 8, 8])
    """

    def __init__(
        self, pixels: Tensor, info: DatasetInfo, labels: Tensor | None = None, columns: Columns = None
    ) -> None:
        if pixels.dtype != torch.uint8 or pixels.ndim != 4 or pixels.shape[1:] != (3, *pixels.shape[-1:] * 2):
            raise InputError(f"images must be uint8 (N, 3, S, S), not {pixels.dtype} {tuple(pixels.shape)}")
        if labels is not None and len(labels) != len(pixels):
            raise InputError(f"{len(pixels)} images cannot have {len(labels)} labels")
        super().__init__(info, pixels.shape[-1], labels, columns)
        self._pixels = pixels

    def __len__(self) -> int:
        return len(self._pixels)

    def images(self, indices: Tensor | Sequence[int]) -> Tensor:
        return self._pixels.index_select(0, _positions(indices, len(self)))


class MappedDataset(Dataset):
    """Images in a file that is mapped into memory; only the images asked for are read.

    Args:
        path: file of uint8 pixels, ``(N, 3, S, S)``.
        image_size: S.
    """

    # The kernel counts mapped pages as this process's memory until they are given back. The file stays in the
    # system's page cache, so giving back costs next to nothing.
    _GIVE_BACK_BYTES = 32 << 20

    def __init__(
        self, path: Path, image_size: int, info: DatasetInfo, labels: Tensor | None = None, columns: Columns = None
    ) -> None:
        super().__init__(info, image_size, labels, columns)
        self._path = path
        with open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._pixels = np.frombuffer(self._map, dtype=np.uint8).reshape(-1, 3, image_size, image_size)
        self._stamp = file_stamp(path)
        self._touched = 0

    def __len__(self) -> int:
        return len(self._pixels)

    def images(self, indices: Tensor | Sequence[int]) -> Tensor:
        images = self._pixels.take(_positions(indices, len(self)).numpy(), axis=0)
        self._touched += images.nbytes
        if self._touched > self._GIVE_BACK_BYTES:
            self._map.madvise(mmap.MADV_DONTNEED)
            self._touched = 0
        return torch.from_numpy(images)

    def _digest_pixels(self) -> str:
        """Computed once: kept beside the file, for as long as the file has this size and time of change."""
        kept = self._path.with_suffix(".sha256")
        with contextlib.suppress(OSError, UnicodeDecodeError):
            digest, _, stamp = read_file(kept).decode().strip().partition(" ")
            if stamp == self._stamp:
                return digest
        digest = super()._digest_pixels()
        with contextlib.suppress(OSError):  # a cache that cannot be written to, or a scratch file that is gone
            atomic_write(kept, f"{digest} {self._stamp}\n")
        return digest
