"""Decodes a set of images into one file of pixels: in parallel, in bounded memory, resumable at any point.

A draft is a folder with two growing files: ``images.u8``, the pixels row after row, and ``journal.jsonl``, one line per
chunk of rows with its checksum and labels. After an interruption, every chunk whose checksum holds is kept.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain, takewhile
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from PIL import Image

from ocssl.common.console import progress_bar
from ocssl.common.files import read_file, require_regular, writing
from ocssl.data.reader import Item, Label, Reader
from ocssl.errors import DataError
from ocssl.imaging import BadImage, Fit, Picture, Pixels

OnBadImage = Literal["error", "skip"]
In = TypeVar("In")
Out = TypeVar("Out")

CHUNK_BYTES = 8 << 20
MAX_WORKERS = 16  # each may hold a decoded chunk; more of them would only wait for the interpreter lock
PIXELS, JOURNAL = "images.u8", "journal.jsonl"
INDEX_BYTES = 1 << 30  # of a journal or an index


@dataclass(frozen=True)
class Chunk:
    """One line of the journal.

    Attributes:
        items: images read, usable or not.
        rows: rows of pixels written.
        checksum: CRC-32 of these rows.
        labels: one per row.
        skipped: position, name and reason of each image that was left out.
    """

    items: int
    rows: int
    checksum: int
    labels: list[Label] = field(default_factory=list)
    skipped: list[tuple[int, str, str]] = field(default_factory=list)


def decode_all(
    reader: Reader, folder: Path, image_size: int | None, on_bad_image: OnBadImage, show: bool | None
) -> tuple[int, list[Chunk]]:
    """Decode all images into ``folder``, resuming an earlier attempt.

    Returns:
        The images' side length and the journal.
    """
    with writing_cache(folder):
        folder.mkdir(parents=True, exist_ok=True)
    items = reader.items()
    size = image_size
    if size is None:
        size, looked_at = _first_size(items, on_bad_image)
        if size is None:
            raise nothing_usable(reader, len(looked_at))
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
        for chunk, pixels in _in_order(
            lambda job: _decode_chunk(*job, size, image_size, reader.fit, on_bad_image), jobs
        ):
            _append(folder, chunk, pixels)
            chunks.append(chunk)
            advance(chunk.items)
    read = sum(chunk.items for chunk in chunks)
    if total is not None and read != total:
        raise DataError(f"{reader.describe()} changed while being read: {read} of {total} images came; try again")
    return size, chunks


def checksums_hold(pixels: Path, image_size: int, chunks: Iterable[tuple[int, int]]) -> Iterator[bool]:
    """For each ``(rows, checksum)`` in turn, whether the file's next rows have that checksum."""
    with open(pixels, "rb") as file:
        for rows, checksum in chunks:
            content = file.read(rows * 3 * image_size * image_size)
            yield len(content) == rows * 3 * image_size * image_size and zlib.crc32(content) == checksum


def whole_numbers(*values: object) -> bool:
    """Whether all are whole numbers of at least 0, as counts in a file must be.

    >>> whole_numbers(3, 0), whole_numbers(True), whole_numbers(-1), whole_numbers("3")
    (True, False, False, False)
    """
    return all(type(value) is int and value >= 0 for value in values)


@contextmanager
def writing_cache(folder: Path) -> Iterator[None]:
    """As :func:`ocssl.common.files.writing`, with advice on what to do about a cache that cannot be written."""
    try:
        with writing(folder, DataError):
            yield
    except DataError as error:
        raise DataError(f"{error}; free some space or point OCSSL_CACHE elsewhere") from error


def bad_image_error(name: str, reason: str) -> DataError:
    """The error that stops on an unusable image."""
    return DataError(f"image {name} cannot be used: {reason} (--on-bad-image skip leaves such images out)")


def nothing_usable(reader: Reader, bad: int) -> DataError:
    """The error for a set without a single usable image."""
    if bad:
        return DataError(f"{reader.describe()}: not one image can be used, {bad} are bad")
    return DataError(f"there are no images in {reader.describe()}")


def _decode_chunk(
    start: int, items: list[Item], size: int, wanted: int | None, fit: Fit, on_bad_image: OnBadImage
) -> tuple[Chunk, Pixels]:
    pixels = np.empty((len(items), 3, size, size), dtype=np.uint8)
    labels: list[Label] = []
    skipped: list[tuple[int, str, str]] = []
    for position, item in enumerate(items, start):
        try:
            image = item.decode(wanted, fit)
            side = image.shape[-1]
            if side != size:  # without image_size, all must have the size of the first
                raise BadImage(
                    f"it is {side}×{side} and the first one {size}×{size}: set image_size to resize them all"
                )
            pixels[len(labels)] = image
            labels.append(item.label)
        except BadImage as problem:
            if on_bad_image == "error":
                raise bad_image_error(item.name, str(problem)) from problem
            skipped.append((position, item.name, str(problem)))
    pixels = pixels[: len(labels)]
    return Chunk(len(items), len(labels), zlib.crc32(pixels.data), labels, skipped), pixels


def _first_size(items: Iterable[Item], on_bad_image: OnBadImage) -> tuple[int | None, list[Item]]:
    """The side length of the first usable image, if any, and the items that were looked at to find it."""
    looked_at = []
    for item in items:
        looked_at.append(item)
        try:
            return item.decode().shape[-1], looked_at
        except BadImage as problem:
            if on_bad_image == "error":
                raise bad_image_error(item.name, str(problem)) from problem
    return None, looked_at


def _resume(folder: Path, size: int) -> list[Chunk]:
    """The chunks of an earlier attempt that are whole; everything after them is cut off."""
    pixels, journal = folder / PIXELS, folder / JOURNAL
    chunks: list[Chunk] = []
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


def _whole_lines(journal: Path) -> Iterator[Chunk]:
    for line in read_file(journal, INDEX_BYTES).decode(errors="replace").splitlines():
        try:
            chunk = Chunk(**json.loads(line))
        except (ValueError, TypeError, RecursionError):  # the line that was being written at a power failure
            return
        if not whole_numbers(chunk.items, chunk.rows, chunk.checksum):
            return
        yield chunk


def _append(folder: Path, chunk: Chunk, pixels: Pixels) -> None:
    with writing_cache(folder):
        with open(folder / PIXELS, "ab") as file:
            file.write(pixels.data)
        with open(folder / JOURNAL, "a", encoding="utf-8") as journal:
            journal.write(_line(chunk))


def _line(chunk: Chunk) -> str:
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
        held += _held_bytes(item.picture)
        if len(batch) == size or held >= CHUNK_BYTES:
            yield start, batch
            start, batch, held = start + len(batch), [], 0
    if batch:
        yield start, batch


def _held_bytes(picture: Picture | BadImage) -> int:
    if isinstance(picture, Image.Image):  # may keep its file open as well, and open files are limited
        return max(4 * picture.width * picture.height, CHUNK_BYTES // 16)
    return len(picture) if isinstance(picture, bytes) else getattr(picture, "nbytes", 0)


def _in_order(work: Callable[[In], Out], jobs: Iterable[In]) -> Iterator[Out]:
    """Map with worker threads (Pillow decodes outside the interpreter lock), holding few results at a time."""
    workers = min(os.cpu_count() or 1, MAX_WORKERS)
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[Future[Out]] = deque()
        try:
            for job in jobs:
                pending.append(pool.submit(work, job))
                if len(pending) > workers + 1:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
