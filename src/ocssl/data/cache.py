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
import io
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ocssl.common.console import shown, warn
from ocssl.common.files import locked, read_file
from ocssl.data.cache_writer import (
    INDEX_BYTES,
    JOURNAL,
    PIXELS,
    OnBadImage,
    bad_image_error,
    checksums_hold,
    decode_all,
    nothing_usable,
    whole_numbers,
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
    squash = "squash\n" if reader.fit == "squash" else ""
    key = hashlib.sha256(f"{VERSION} {image_size}\n{squash}{reader.identity()}".encode()).hexdigest()
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
                _set_aside(folder)
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
    labels = _read_labels(folder, index) if index.labelled else None
    if index.bytes <= RESIDENT_BYTES:
        shape = (index.count, 3, index.image_size, index.image_size)
        pixels = torch.from_numpy(np.fromfile(folder / PIXELS, dtype=np.uint8).reshape(shape))
        return ResidentDataset(pixels, info, labels, kept_columns)
    return MappedDataset(folder / PIXELS, index.image_size, info, labels, kept_columns)


def _set_aside(folder: Path) -> None:
    """Move what lies at the place of a cache and is not one, such as a cache without its index."""
    if os.path.lexists(folder):
        places = (folder.with_name(f"{folder.name}.broken-{number}") for number in count(1))
        aside = next(place for place in places if not os.path.lexists(place))
        with writing_cache(folder):
            folder.rename(aside)
        warn(f"the image cache {folder} has no index; it is made again, and what was there is now {aside.name}")


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
            index = cls(**json.loads(read_file(folder / INDEX, INDEX_BYTES)))
            whole = _is_whole(index) and (folder / PIXELS).stat().st_size == index.bytes
        except (OSError, ValueError, TypeError, RecursionError):
            whole = False
        if not whole:
            raise _damaged(folder)
        return replace(index, classes=tuple(index.classes))


def _is_whole(index: Any) -> bool:
    """Whether every value is of its type, and the rows of the chunks add up to the count."""
    return (
        index.version == VERSION
        and whole_numbers(index.image_size, index.count)
        and index.image_size > 0
        and isinstance(index.labelled, bool)
        and isinstance(index.classes, list)
        and all(isinstance(name, str) for name in index.classes)
        and _are_rows(index.chunks, int, int)
        and _are_rows(index.skipped, int, str, str)
        and 0 < index.count == sum(rows for rows, _ in index.chunks)
    )


def _are_rows(values: object, *kinds: type) -> bool:
    """Whether this is a list of lists with one value of each kind; whole numbers are at least 0."""
    return isinstance(values, list) and all(
        isinstance(row, list)
        and len(row) == len(kinds)
        and all(type(value) is kind for kind, value in zip(kinds, row, strict=True))
        and whole_numbers(*(value for value in row if not isinstance(value, str)))
        for row in values
    )


def _read_labels(folder: Path, index: _Index) -> Tensor:
    """The labels; nothing that the file claims is believed before it is compared with the index."""
    try:
        content = read_file(folder / LABELS, 8 * index.count + 4096)
        file = io.BytesIO(content)
        np.lib.format.read_magic(file)
        shape, _, kind = np.lib.format.read_array_header_1_0(file)
        labels = np.frombuffer(content, np.int64, offset=file.tell())
    except Exception as error:  # numpy parses the header as Python, which raises anything
        raise _damaged(folder) from error
    if shape != (index.count,) or kind != np.int64 or len(labels) != index.count:
        raise _damaged(folder)
    if index.classes and not 0 <= labels.min() <= labels.max() < len(index.classes):
        raise _damaged(folder)
    return torch.from_numpy(labels.copy())


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
        if unknown := next((name for name in names if name not in number), None):
            raise DataError(f"{reader.describe()}: the label {shown(unknown)} is not among the class names")
        return np.array([number[name] for name in names], dtype=np.int64), classes
    for label in labels:
        if not isinstance(label, int) or not -(2**63) <= label < 2**63:
            raise DataError(f"{reader.describe()}: the label {shown(label)} is not a whole number of 64 bits")
        if classes and not 0 <= label < len(classes):
            raise DataError(f"{reader.describe()}: the label {label} is beyond the {len(classes)} class names")
    return np.array(labels, dtype=np.int64), classes
