"""Decodes a set of images into the cache: in parallel, in bounded memory, resumable at any point.

A draft is a folder with two growing files: ``images.u8``, the pixels row after row, and ``journal.jsonl``, one line per
chunk of rows with its checksum and labels. After an interruption, every chunk whose checksum holds is kept.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain, count, takewhile
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as pydantic_dataclass

from ocssl.common.console import number_of, progress_bar, shown, warn
from ocssl.common.files import locked, read_file, require_regular, writing
from ocssl.data.cache import (
    INDEX_BYTES,
    LABELS,
    PIXELS,
    SKIPPED,
    VERSION,
    CacheIndex,
    Decoding,
    WholeNumber,
    cache_folder,
    checksums_hold,
    is_prepared,
    open_cache,
    verify,
)
from ocssl.data.dataset import ColumnArray, Dataset, DatasetInfo
from ocssl.data.reader import Item, Label, Reader, in_order
from ocssl.errors import DataError
from ocssl.imaging import BadImage, Pixels

CHUNK_BYTES = 8 << 20
MAX_WORKERS = 16  # each may hold a decoded chunk; more of them would only wait for the interpreter lock
JOURNAL = "journal.jsonl"


def cached(reader: Reader, info: DatasetInfo, decoding: Decoding, *, check: bool, show: bool | None) -> Dataset:
    """The data set of a reader, decoded into the cache unless it is there; ``check`` compares its checksums."""
    folder = cache_folder(info.name, reader.identity(), decoding)
    if not is_prepared(folder):
        with writing_cache(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.with_name(f".{folder.name}"), wait=-1):
            if not is_prepared(folder):  # another process may have decoded it meanwhile
                _set_aside(folder)
                write_cache(reader, folder, decoding, show)
    if check:
        verify(folder)
    dataset = open_cache(folder, info, reader.column)
    if dataset.skipped:
        if decoding.on_bad_image == "error":
            raise _bad_image(dataset.skipped[0].name, dataset.skipped[0].reason)
        warn(f"{info.name}: left out {number_of(len(dataset.skipped), 'bad image')}, named in {folder / SKIPPED}")
    return dataset


def write_cache(reader: Reader, folder: Path, decoding: Decoding, show: bool | None) -> None:
    """Decode all images of a reader into ``folder``; until it is complete, the folder's name ends in ``.part``."""
    draft = folder.with_name(folder.name + ".part")
    size, chunks = _decode_all(reader, draft, decoding, show)
    labels, classes = _number_labels([label for chunk in chunks for label in chunk.labels], reader)
    skipped = [entry for chunk in chunks for entry in chunk.skipped]
    rows = sum(chunk.rows for chunk in chunks)
    if rows == 0:
        raise _nothing_usable(reader, len(skipped))
    checksums = [(chunk.rows, chunk.checksum) for chunk in chunks]
    index = CacheIndex(VERSION, size, rows, labels is not None, classes, checksums, skipped, decoding.pixel_range)
    with writing_cache(folder):
        if labels is not None:
            np.save(draft / LABELS, labels)
        if skipped:
            (draft / SKIPPED).write_text(
                "".join(f"{name}\t{reason}\n" for _, name, reason in skipped),
                encoding="utf-8",
                errors="backslashreplace",  # file names need not be UTF-8
            )
        index.write(draft)
        (draft / JOURNAL).unlink()
        os.replace(draft, folder)


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class _Chunk:
    """One line of the journal; a value of another type is a ``ValueError``.

    Attributes:
        items: images read, usable or not.
        rows: rows of pixels written.
        checksum: CRC-32 of these rows.
        labels: one per row.
        skipped: position, name and reason of each image that was left out.
    """

    items: WholeNumber
    rows: WholeNumber
    checksum: WholeNumber
    labels: list[Any]
    skipped: list[tuple[WholeNumber, str, str]]


def _decode_all(reader: Reader, folder: Path, decoding: Decoding, show: bool | None) -> tuple[int, list[_Chunk]]:
    """Decode all images into ``folder``, resuming an earlier attempt.

    Returns:
        The images' side length and the journal.
    """
    with writing_cache(folder):
        folder.mkdir(parents=True, exist_ok=True)
    items = reader.items()
    size = decoding.image_size
    if size is None:
        size, looked_at = _first_size(items, decoding)
        if size is None:
            raise _nothing_usable(reader, len(looked_at))
        items = chain(looked_at, items)
    chunks = _resume(folder, size)
    done = sum(chunk.items for chunk in chunks)
    if done:
        items = reader.items(done)
    total = reader.count()
    if total is not None:
        _require_space(folder, (total - done) * 3 * size * size)
    per_chunk = max(1, min(1024, CHUNK_BYTES // (3 * size * size)))
    jobs = _batches(items, per_chunk, done)
    with progress_bar("Decoding images", total, show, start=done) as advance:
        for chunk, pixels in in_order(lambda job: _decode_chunk(*job, size, decoding), jobs, MAX_WORKERS):
            _append(folder, chunk, pixels)
            chunks.append(chunk)
            advance(chunk.items)
    read = sum(chunk.items for chunk in chunks)
    if total is not None and read != total:
        raise DataError(f"{reader.describe()} changed while being read: {read} of {total} images came; try again")
    return size, chunks


@contextmanager
def writing_cache(folder: Path) -> Iterator[None]:
    """As :func:`ocssl.common.files.writing`, with advice on what to do about a cache that cannot be written."""
    try:
        with writing(folder, DataError):
            yield
    except DataError as error:
        raise DataError(f"{error}; free some space or point OCSSL_CACHE elsewhere") from error


def _bad_image(name: str, reason: str) -> DataError:
    """The error that stops on an unusable image."""
    return DataError(f"image {name} cannot be used: {reason} (--on-bad-image skip leaves such images out)")


def _nothing_usable(reader: Reader, bad: int) -> DataError:
    """The error for a set without a single usable image."""
    if bad:
        return DataError(f"{reader.describe()}: not one image can be used, {bad} are bad")
    return DataError(f"there are no images in {reader.describe()}")


def _set_aside(folder: Path) -> None:
    """Move what lies at the place of a cache and is not one, such as a cache without its index."""
    if os.path.lexists(folder):
        places = (folder.with_name(f"{folder.name}.broken-{number}") for number in count(1))
        aside = next(place for place in places if not os.path.lexists(place))
        with writing_cache(folder):
            folder.rename(aside)
        warn(f"the image cache {folder} has no index; it is made again, and what was there is now {aside.name}")


def _decode_chunk(start: int, items: list[Item], size: int, decoding: Decoding) -> tuple[_Chunk, Pixels]:
    pixels = np.empty((len(items), 3, size, size), dtype=np.uint8)
    labels: list[Label] = []
    skipped: list[tuple[int, str, str]] = []
    for position, item in enumerate(items, start):
        try:
            image = item.decode(decoding.image_size, decoding.fit, decoding.pixel_range)
            side = image.shape[-1]
            if side != size:  # without image_size, all must have the size of the first
                raise BadImage(
                    f"it is {side}×{side} and the first one {size}×{size}: set image_size to resize them all"
                )
            pixels[len(labels)] = image
            labels.append(item.label)
        except BadImage as problem:
            if decoding.on_bad_image == "error":
                raise _bad_image(item.name, str(problem)) from problem
            skipped.append((position, item.name, str(problem)))
    pixels = pixels[: len(labels)]
    return _Chunk(len(items), len(labels), zlib.crc32(pixels.data), labels, skipped), pixels


def _first_size(items: Iterable[Item], decoding: Decoding) -> tuple[int | None, list[Item]]:
    """The side length of the first usable image, if any, and the items that were looked at to find it."""
    looked_at = []
    for item in items:
        looked_at.append(item)
        try:
            return item.decode(pixel_range=decoding.pixel_range).shape[-1], looked_at
        except BadImage as problem:
            if decoding.on_bad_image == "error":
                raise _bad_image(item.name, str(problem)) from problem
    return None, looked_at


def _resume(folder: Path, size: int) -> list[_Chunk]:
    """The chunks of an earlier attempt that are whole; everything after them is cut off."""
    pixels, journal = folder / PIXELS, folder / JOURNAL
    chunks: list[_Chunk] = []
    if pixels.exists() and journal.exists():
        try:
            require_regular(pixels)
            written = list(_whole_lines(journal))
        except OSError as error:
            raise DataError(f"the unfinished image cache {folder} is damaged ({error.strerror}); delete it") from error
        held = checksums_hold(pixels, size, ((chunk.rows, chunk.checksum) for chunk in written))
        chunks = [chunk for chunk, _ in takewhile(lambda pair: pair[1], zip(written, held, strict=True))]
    with writing_cache(folder):
        journal.write_text("".join(_line(chunk) for chunk in chunks), encoding="utf-8")
        with open(pixels, "ab") as file:
            file.truncate(sum(chunk.rows for chunk in chunks) * 3 * size * size)
    return chunks


def _whole_lines(journal: Path) -> Iterator[_Chunk]:
    for line in read_file(journal, INDEX_BYTES).decode(errors="replace").splitlines():
        try:
            yield _Chunk(**json.loads(line))
        except (ValueError, TypeError, RecursionError):  # the line that was being written at a power failure
            return


def _append(folder: Path, chunk: _Chunk, pixels: Pixels) -> None:
    with writing_cache(folder):
        with open(folder / PIXELS, "ab") as file:
            file.write(pixels.data)
        with open(folder / JOURNAL, "a", encoding="utf-8") as journal:
            journal.write(_line(chunk))


def _line(chunk: _Chunk) -> str:
    return json.dumps(asdict(chunk)) + "\n"


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DataError(
            f"the image cache {folder} needs {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free; "
            "free some space, choose a smaller image_size or point OCSSL_CACHE elsewhere"
        )


def _batches(items: Iterator[Item], size: int, start: int) -> Iterator[tuple[int, list[Item]]]:
    """Up to ``size`` images at a time, and fewer where what they hold in memory makes a chunk."""
    batch: list[Item] = []
    held = 0
    for item in items:
        batch.append(item)
        held += item.held_bytes
        if len(batch) == size or held >= CHUNK_BYTES:
            yield start, batch
            start, batch, held = start + len(batch), [], 0
    if batch:
        yield start, batch


def _number_labels(labels: list[Label], reader: Reader) -> tuple[ColumnArray | None, tuple[str, ...]]:
    """Labels as int64, or None when any image lacks one; class names are numbered in their given order, or sorted."""
    if without := sum(label is None or label == -1 for label in labels):
        if without < len(labels):
            some = f"{without:,} of {number_of(len(labels), 'image')}"
            warn(f"{reader.describe()}: {some} have no label (or -1), so the labels of the others are left out, too")
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
