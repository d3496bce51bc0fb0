"""Decoded images on disk, ready to be mapped into memory: training reads no JPEG and memory stays bounded.

One folder per set and size, named by a key over the original files' names, sizes and times, and made by
:mod:`ocssl.data.cache_writer`:

=================  ==============================================================================
``images.u8``      the pixels, uint8 ``(N, 3, S, S)``, nothing else
``labels.npy``     int64 ``(N,)``; absent without labels
``index.json``     size, count, classes, checksums, pixel range, and every image that was left out
``skipped.txt``    the images that were left out, a name and a reason per line; absent without any
=================  ==============================================================================
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, get_args

import numpy as np
import torch
from pydantic import ConfigDict, Field, StrictBool
from pydantic.dataclasses import dataclass as pydantic_dataclass
from torch import Tensor

from ocssl.common.console import shown
from ocssl.common.files import read_file
from ocssl.data.dataset import Columns, Dataset, DatasetInfo, MappedDataset, ResidentDataset, Skipped
from ocssl.errors import ConfigError, DataError
from ocssl.imaging import Fit, PixelRange, check_pixel_range
from ocssl.registry import unknown

OnBadImage = Literal["error", "skip"]
VERSION = 2
MAX_SIDE = 8192
"""Largest ``image_size``."""
RESIDENT_BYTES = 1 << 30
"""Sets up to this size live in RAM as one tensor; larger ones stay on disk, mapped into memory."""
PIXELS, LABELS, INDEX, SKIPPED = "images.u8", "labels.npy", "index.json", "skipped.txt"
INDEX_BYTES = 1 << 30  # of an index, or of the journal of a draft
WholeNumber = Annotated[int, Field(strict=True, ge=0)]


@dataclass(frozen=True)
class Decoding:
    """How images become squares of one size, as :func:`ocssl.data.load` takes it.

    Without an ``image_size`` it is that of the first image, which all must then have.
    """

    image_size: int | None = None
    fit: Fit = "crop"
    on_bad_image: OnBadImage = "error"
    pixel_range: PixelRange | None = None

    def __post_init__(self) -> None:
        size = self.image_size
        if size is not None and not (hasattr(size, "__index__") and 1 <= size <= MAX_SIDE):
            limits = f"at most {MAX_SIDE} pixels and a whole number above 0"
            raise ConfigError(f"image_size must be {limits}, not {shown(size)}")
        if self.fit not in get_args(Fit):
            raise unknown("fit", self.fit, get_args(Fit))
        if self.on_bad_image not in get_args(OnBadImage):
            raise unknown("on_bad_image", self.on_bad_image, get_args(OnBadImage))

    def __str__(self) -> str:
        size = f"{self.image_size}×{self.image_size}, " if self.image_size else ""
        deep = ", pixel_range [{:g}, {:g}]".format(*self.pixel_range) if self.pixel_range else ""
        return f"{size}{self.fit}{deep}"


def cache_root() -> Path:
    """Where decoded images are kept: ``$OCSSL_CACHE``, else ``~/.cache/ocssl``."""
    return Path(os.path.expanduser(os.environ.get("OCSSL_CACHE") or "~/.cache/ocssl"))


def cache_folder(name: str, identity: str, decoding: Decoding) -> Path:
    """The folder that holds, or will hold, a set decoded in this way; ``identity`` is that of its reader."""
    squash = "squash\n" if decoding.fit == "squash" else ""
    deep = f"pixel_range {decoding.pixel_range}\n" if decoding.pixel_range else ""
    key = hashlib.sha256(f"{VERSION} {decoding.image_size}\n{squash}{deep}{identity}".encode()).hexdigest()
    return cache_root() / f"{_folder_name(name)}-{key[:16]}"


def _folder_name(name: str) -> str:
    """How the folders of a set's caches begin. Not files.slug: caches of earlier versions have these names."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[-40:]


def find_caches(name: str, identity: str, image_size: int | None = None) -> Iterator[tuple[Path, Decoding]]:
    """The folders of a set's complete caches, made with ``image_size`` if it is given, and how each was decoded."""
    for folder in sorted(cache_root().glob(f"{_folder_name(name)}-*")):
        try:
            index = CacheIndex.read(folder)
        except DataError:  # a draft, or damaged
            continue
        sizes = (index.image_size, None) if image_size is None else (image_size,)
        for size, fit in product(sizes, get_args(Fit)):
            decoding = Decoding(size, fit, pixel_range=index.pixel_range)
            if folder == cache_folder(name, identity, decoding):
                yield folder, replace(decoding, image_size=index.image_size)


def is_prepared(folder: Path) -> bool:
    """Whether the cache in ``folder`` is complete."""
    return (folder / INDEX).exists()


def open_cache(folder: Path, info: DatasetInfo, columns: Columns = None) -> Dataset:
    """Open a complete cache: in RAM when it is small, mapped otherwise.

    Args:
        columns: looks up properties of the *original* images, those that were left out included.
    """
    index = CacheIndex.read(folder)
    info = replace(
        info,
        classes=index.classes or info.classes,
        skipped=tuple(Skipped(name, reason) for _, name, reason in index.skipped),
        identity=folder.name,
    )
    gaps = [position for position, _, _ in index.skipped]
    kept_columns = None if columns is None else lambda name: np.delete(columns(name), gaps)
    labels = _read_labels(folder, index) if index.labelled else None
    if index.bytes <= RESIDENT_BYTES:
        shape = (index.count, 3, index.image_size, index.image_size)
        pixels = torch.from_numpy(np.fromfile(folder / PIXELS, dtype=np.uint8).reshape(shape))
        return ResidentDataset(pixels, info, labels, kept_columns)
    return MappedDataset(folder / PIXELS, index.image_size, info, labels, kept_columns)


def verify(folder: Path) -> None:
    """Read the whole cache and compare its checksums; :class:`DataError` names a damaged one."""
    index = CacheIndex.read(folder)
    if not all(checksums_hold(folder / PIXELS, index.image_size, index.chunks)):
        raise _damaged(folder)


def checksums_hold(pixels: Path, image_size: int, chunks: Iterable[tuple[int, int]]) -> Iterator[bool]:
    """For each ``(rows, checksum)`` in turn, whether the file's next rows have that checksum."""
    with open(pixels, "rb") as file:
        for rows, checksum in chunks:
            content = file.read(rows * 3 * image_size * image_size)
            yield len(content) == rows * 3 * image_size * image_size and zlib.crc32(content) == checksum


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class CacheIndex:
    """The content of ``index.json``; a value of another type is a ``ValueError``."""

    version: int
    image_size: WholeNumber
    count: WholeNumber
    labelled: StrictBool
    classes: tuple[str, ...]
    chunks: list[tuple[WholeNumber, WholeNumber]]
    skipped: list[tuple[WholeNumber, str, str]]
    pixel_range: PixelRange | None = None  # absent from the file without one

    @property
    def bytes(self) -> int:
        return self.count * 3 * self.image_size * self.image_size

    @classmethod
    def read(cls, folder: Path) -> CacheIndex:
        try:
            index = cls(**json.loads(read_file(folder / INDEX, INDEX_BYTES)))
            check_pixel_range(index.pixel_range)
            complete = 0 < index.bytes == (folder / PIXELS).stat().st_size
            if complete and index.version == VERSION and index.count == sum(rows for rows, _ in index.chunks):
                return index
        except (OSError, ValueError, TypeError, RecursionError):
            pass
        raise _damaged(folder)

    def write(self, folder: Path) -> None:
        given = {name: value for name, value in vars(self).items() if value is not None}
        (folder / INDEX).write_text(json.dumps(given, indent=1), encoding="utf-8")


def _read_labels(folder: Path, index: CacheIndex) -> Tensor:
    try:
        labels = np.load(io.BytesIO(read_file(folder / LABELS, 8 * index.count + 4096)))
        in_range = not index.classes or 0 <= labels.min() <= labels.max() < len(index.classes)
        if labels.dtype == np.int64 and labels.shape == (index.count,) and in_range:
            return torch.from_numpy(labels)
    except Exception as error:  # numpy parses the header as Python, which raises anything
        raise _damaged(folder) from error
    raise _damaged(folder)


def _damaged(folder: Path) -> DataError:
    return DataError(f"the image cache {folder} is damaged; delete it and prepare it again")
