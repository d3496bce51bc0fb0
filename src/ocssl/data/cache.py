"""Decoded images on disk, ready to be mapped into memory: training reads no JPEG and memory stays bounded.

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
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ocssl.common.console import warn
from ocssl.common.files import locked
from ocssl.data.cache_writer import (
    JOURNAL,
    PIXELS,
    OnBadImage,
    bad_image_error,
    checksums_hold,
    decode_all,
    nothing_usable,
    writing_cache,
)
from ocssl.data.dataset import ColumnArray, Dataset, DatasetInfo, MappedDataset, ResidentDataset, Skipped
from ocssl.data.reader import Label, Reader, number_of
from ocssl.errors import DataError

VERSION = 2
RESIDENT_BYTES = 1 << 30
"""Sets up to this size live in RAM as one tensor; larger ones stay on disk, mapped into memory."""
INDEX, LABELS, SKIPPED = "index.json", "labels.npy", "skipped.txt"


def cache_root() -> Path:
    """Where decoded images are kept: ``$OCSSL_CACHE``, else ``~/.cache/ocssl``."""
    return Path(os.environ.get("OCSSL_CACHE") or "~/.cache/ocssl").expanduser()


def cache_folder(reader: Reader, name: str, image_size: int | None) -> Path:
    """The folder that holds, or will hold, this set at this size."""
    key = hashlib.sha256(f"{VERSION} {image_size}\n{reader.identity()}".encode()).hexdigest()
    # Not files.slug: caches of earlier versions have these names.
    return cache_root() / f"{re.sub(r'[^A-Za-z0-9]+', '-', name).strip('-')[-40:]}-{key[:16]}"


def is_prepared(folder: Path) -> bool:
    """Whether the cache in ``folder`` is complete."""
    return (folder / INDEX).exists()


def cached(
    reader: Reader,
    info: DatasetInfo,
    *,
    image_size: int | None = None,
    on_bad_image: OnBadImage = "error",
    check: bool = False,
    show: bool | None = None,
) -> Dataset:
    """The data set of a reader, decoded into the cache unless it is there.

    Args:
        check: read the whole cache and compare its checksums.
    """
    folder = cache_folder(reader, info.name, image_size)
    if not is_prepared(folder):
        with writing_cache(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_name(f".{folder.name}"), wait=-1):
            if not is_prepared(folder):  # another process may have decoded it meanwhile
                write_cache(reader, folder, image_size, on_bad_image, show)
    if check:
        verify(folder)
    dataset = open_cache(folder, info, reader.column)
    if dataset.skipped:
        if on_bad_image == "error":
            raise bad_image_error(dataset.skipped[0].name, dataset.skipped[0].reason)
        warn(f"{info.name}: left out {number_of(len(dataset.skipped), 'bad image')}, named in {folder / SKIPPED}")
    return dataset


def open_cache(folder: Path, info: DatasetInfo, columns: Callable[[str], ColumnArray] | None = None) -> Dataset:
    """Open a complete cache: in RAM when it is small, mapped otherwise.

    Args:
        columns: looks up properties of the *original* images, those that were left out included.
    """
    index = _Index.read(folder)
    info = replace(
        info,
        classes=index.classes or info.classes,
        skipped=tuple(Skipped(name, reason) for _, name, reason in index.skipped),
        identity=folder.name,
    )
    gaps = [position for position, _, _ in index.skipped]
    kept_columns = None if columns is None else lambda name: np.delete(columns(name), gaps)
    labels = _read_labels(folder) if index.labelled else None
    if index.bytes <= RESIDENT_BYTES:
        shape = (index.count, 3, index.image_size, index.image_size)
        pixels = torch.from_numpy(np.fromfile(folder / PIXELS, dtype=np.uint8).reshape(shape))
        return ResidentDataset(pixels, info, labels, kept_columns)
    return MappedDataset(folder / PIXELS, index.image_size, info, labels, kept_columns)


def write_cache(
    reader: Reader, folder: Path, image_size: int | None, on_bad_image: OnBadImage, show: bool | None
) -> None:
    """Decode all images of a reader into ``folder``; until it is complete, the folder's name ends in ``.part``."""
    draft = folder.with_name(folder.name + ".part")
    size, chunks = decode_all(reader, draft, image_size, on_bad_image, show)
    labels, classes = _number_labels([label for chunk in chunks for label in chunk.labels], reader)
    skipped = [entry for chunk in chunks for entry in chunk.skipped]
    count = sum(chunk.rows for chunk in chunks)
    if count == 0:
        raise nothing_usable(reader, len(skipped))
    checksums = [(chunk.rows, chunk.checksum) for chunk in chunks]
    index = _Index(VERSION, size, count, labels is not None, classes, checksums, skipped)
    with writing_cache(folder):
        if labels is not None:
            np.save(draft / LABELS, labels)
        if skipped:
            (draft / SKIPPED).write_text(
                "".join(f"{name}\t{reason}\n" for _, name, reason in skipped),
                encoding="utf-8",
                errors="backslashreplace",  # file names need not be UTF-8
            )
        (draft / INDEX).write_text(json.dumps(vars(index), indent=1), encoding="utf-8")
        (draft / JOURNAL).unlink()
        os.replace(draft, folder)


def verify(folder: Path) -> None:
    """Read the whole cache and compare its checksums; :class:`DataError` names a damaged one."""
    index = _Index.read(folder)
    if not all(checksums_hold(folder / PIXELS, index.image_size, index.chunks)):
        raise _damaged(folder)


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


def _number_labels(labels: list[Label], reader: Reader) -> tuple[ColumnArray | None, tuple[str, ...]]:
    """Labels as int64, or None when any image lacks one; class names are numbered in their given order, or sorted."""
    if any(label is None or label == -1 for label in labels):
        return None, ()
    classes = reader.class_names()
    if any(isinstance(label, str) for label in labels):
        names = [str(label) for label in labels]
        if not classes:
            others = [str(label) for label in reader.other_labels() if label is not None]
            classes = tuple(sorted({*names, *others}))
        number = {name: position for position, name in enumerate(classes)}
        return np.array([number[name] for name in names], dtype=np.int64), classes
    return np.array(labels, dtype=np.int64), classes
