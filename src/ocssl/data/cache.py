"""Decoded images on disk, ready to be mapped into memory: training touches no JPEG and memory stays bounded.

One folder per set and size, named by a key over the original files' names, sizes and times:

=================  ==============================================================================
``images.u8``      the pixels, uint8 ``(N, 3, S, S)``, nothing else
``labels.npy``     int64 ``(N,)``; absent without labels
``index.json``     size, count, classes, checksums, and every image that was left out
``skipped.txt``    the images that were left out, a name and a reason per line; absent without any
=================  ==============================================================================
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from ocssl.data.build import (
    JOURNAL,
    PIXELS,
    Label,
    OnBadImage,
    bad_image_error,
    build,
    checksums_hold,
    nothing_usable,
    writing_to,
)
from ocssl.data.origin import Reader, number_of
from ocssl.data.source import Column, Dataset, DatasetInfo, ResidentDataset, Skipped
from ocssl.errors import DataError

VERSION = 2
RESIDENT_BYTES = 1 << 30
"""Sets up to this size live in RAM as one tensor; larger ones stay on disk, mapped into memory."""
INDEX, LABELS, SKIPPED = "index.json", "labels.npy", "skipped.txt"

log = logging.getLogger(__name__)


def cache_root() -> Path:
    """Where decoded images are kept: ``$OCSSL_CACHE``, else ``~/.cache/ocssl``."""
    return Path(os.environ.get("OCSSL_CACHE") or "~/.cache/ocssl").expanduser()


def cache_folder(origin: Reader, name: str, image_size: int | None) -> Path:
    """The folder that holds, or will hold, this set at this size."""
    key = hashlib.sha256(f"{VERSION} {image_size}\n{origin.identity()}".encode()).hexdigest()
    return cache_root() / f"{re.sub(r'[^A-Za-z0-9]+', '-', name).strip('-')[-40:]}-{key[:16]}"


def is_prepared(folder: Path) -> bool:
    """Whether the cache in ``folder`` is complete."""
    return (folder / INDEX).exists()


def cached(
    origin: Reader,
    about: DatasetInfo,
    *,
    image_size: int | None = None,
    on_bad_image: OnBadImage = "error",
    check: bool = False,
    show: bool | None = None,
) -> Dataset:
    """The source for an origin, decoding it into the cache first unless that was done before.

    Args:
        check: read the whole cache and compare its checksums.
    """
    folder = cache_folder(origin, about.name, image_size)
    if not is_prepared(folder):
        with writing_to(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(f"{folder}.lock")
            lock.acquire()
        try:
            if not is_prepared(folder):  # another process may have done it while this one waited
                write_cache(origin, folder, image_size, on_bad_image, show)
        finally:
            lock.release()
    if check:
        verify(folder)
    source = open_cache(folder, about, origin.column)
    if source.skipped:
        if on_bad_image == "error":
            raise bad_image_error(source.skipped[0].name, source.skipped[0].reason)
        left_out = number_of(len(source.skipped), "bad image")
        log.warning("%s: left out %s, named in %s", about.name, left_out, folder / SKIPPED)
    return source


def open_cache(folder: Path, about: DatasetInfo, columns: Callable[[str], Column] | None = None) -> Dataset:
    """Open a complete cache: in RAM when it is small, mapped otherwise.

    Args:
        columns: a look-up of properties of the *original* items, those that were left out included.
    """
    index = _Index.read(folder)
    about = replace(
        about,
        classes=index.classes or about.classes,
        skipped=tuple(Skipped(name, reason) for _, name, reason in index.skipped),
        identity=folder.name,
    )
    gaps = [position for position, _, _ in index.skipped]
    kept_columns = None if columns is None else lambda name: np.delete(columns(name), gaps)
    labels = _read_labels(folder) if index.labelled else None
    shape = (index.count, 3, index.image_size, index.image_size)
    if index.bytes <= RESIDENT_BYTES:
        pixels = torch.from_numpy(np.fromfile(folder / PIXELS, dtype=np.uint8).reshape(shape))
        return ResidentDataset(pixels, about, labels, kept_columns)
    return MappedDataset(folder / PIXELS, index.image_size, about, labels, kept_columns)


def write_cache(
    origin: Reader, folder: Path, image_size: int | None, on_bad_image: OnBadImage, show: bool | None
) -> None:
    """Decode an origin into ``folder``; until that is complete the folder ends in ``.part``."""
    draft = folder.with_name(folder.name + ".part")
    size, chunks = build(origin, draft, image_size, on_bad_image, show)
    labels, classes = _number_labels([label for chunk in chunks for label in chunk.labels], origin)
    skipped = [entry for chunk in chunks for entry in chunk.skipped]
    count = sum(chunk.rows for chunk in chunks)
    if count == 0:
        raise nothing_usable(origin, len(skipped))
    checksums = [(chunk.rows, chunk.checksum) for chunk in chunks]
    content = _Index(VERSION, size, count, labels is not None, classes, checksums, skipped)
    with writing_to(folder):
        if labels is not None:
            np.save(draft / LABELS, labels)
        if skipped:
            (draft / SKIPPED).write_text(
                "".join(f"{name}\t{reason}\n" for _, name, reason in skipped),
                encoding="utf-8",
                errors="backslashreplace",  # file names need not be UTF-8
            )
        (draft / INDEX).write_text(json.dumps(vars(content), indent=1), encoding="utf-8")
        (draft / JOURNAL).unlink()
        os.replace(draft, folder)


def verify(folder: Path) -> None:
    """Read the whole cache and compare its checksums; :class:`DataError` names a damaged one."""
    index = _Index.read(folder)
    if not all(checksums_hold(folder / PIXELS, index.image_size, index.chunks)):
        raise _damaged(folder)


class MappedDataset(Dataset):
    """Images in a file that is mapped into memory; only what is looked at is ever read.

    Args:
        path: file of uint8 pixels, ``(N, 3, S, S)``.
        image_size: S.
    """

    # The kernel counts mapped pages as this process's memory until they are given back. The file stays in the
    # system's page cache, so giving back costs next to nothing.
    _GIVE_BACK_BYTES = 32 << 20

    def __init__(
        self,
        path: Path,
        image_size: int,
        about: DatasetInfo,
        labels: Tensor | None = None,
        columns: Callable[[str], Column] | None = None,
    ) -> None:
        super().__init__(about, image_size, labels, columns)
        with open(path, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._pixels = np.frombuffer(self._map, dtype=np.uint8).reshape(-1, 3, image_size, image_size)
        self._touched = 0

    def __len__(self) -> int:
        return len(self._pixels)

    def images(self, indices: Tensor | Sequence[int]) -> Tensor:
        images = self._pixels.take(np.asarray(indices, dtype=np.int64), axis=0)
        self._touched += images.nbytes
        if self._touched > self._GIVE_BACK_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
            self._touched = 0
        return torch.from_numpy(images)


@dataclass(frozen=True)
class _Index:
    """The content of ``index.json``."""

    version: int
    image_size: int
    count: int
    labelled: bool
    classes: tuple[str, ...]
    chunks: list[tuple[int, int]]
    skipped: list[tuple[int, str, str]]

    @property
    def bytes(self) -> int:
        return self.count * 3 * self.image_size * self.image_size

    @classmethod
    def read(cls, folder: Path) -> _Index:
        try:
            index = cls(**json.loads((folder / INDEX).read_text(encoding="utf-8")))
            whole = index.version == VERSION and (folder / PIXELS).stat().st_size == index.bytes
        except (OSError, ValueError, TypeError):
            whole = False
        if not whole:
            raise _damaged(folder)
        return replace(index, classes=tuple(index.classes))


def _read_labels(folder: Path) -> Tensor:
    try:
        return torch.from_numpy(np.load(folder / LABELS))
    except (OSError, EOFError, ValueError) as error:
        raise _damaged(folder) from error


def _damaged(folder: Path) -> DataError:
    return DataError(f"the image cache {folder} is damaged; delete it and prepare it again")


def _number_labels(labels: list[Label], origin: Reader) -> tuple[Column | None, tuple[str, ...]]:
    """Labels as int64, or None when any image lacks one; named ones are numbered as the class names are, or sorted."""
    if any(label is None or label == -1 for label in labels):
        return None, ()
    classes = origin.class_names()
    if any(isinstance(label, str) for label in labels):
        names = [str(label) for label in labels]
        if not classes:
            others = [str(label) for label in origin.other_labels() if label is not None]
            classes = tuple(sorted({*names, *others}))
        number = {name: position for position, name in enumerate(classes)}
        return np.array([number[name] for name in names], dtype=np.int64), classes
    return np.array(labels, dtype=np.int64), classes
