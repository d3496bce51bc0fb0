"""Decoding a set of pictures once, into one file of pixels: in parallel, in bounded memory, resumable at any point.

A draft is a folder with two growing files: ``images.u8``, the pixels row after row, and ``journal.jsonl``, one line per
chunk of rows with its checksum and labels. After a break, whatever the journal vouches for is kept.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from PIL import Image

from ocssl.common.console import progress_bar
from ocssl.data.origin import Item, Reader
from ocssl.errors import DataError
from ocssl.imaging import BadImage, Picture, Pixels, decode

OnBadImage = Literal["error", "skip"]
Label = int | str | None
Job = TypeVar("Job")
Result = TypeVar("Result")

CHUNK_BYTES = 8 << 20
MAX_WORKERS = 16  # each may hold a decoded chunk; more of them would only wait for the interpreter lock
PIXELS, JOURNAL = "images.u8", "journal.jsonl"


@dataclass(frozen=True)
class Chunk:
    """What the journal says of one stretch of pictures.

    Attributes:
        items: pictures consumed, usable or not.
        rows: rows of pixels written.
        checksum: CRC-32 of these rows.
        labels: one per row.
        skipped: position, name and reason of each picture that was left out.
    """

    items: int
    rows: int
    checksum: int
    labels: list[Label] = field(default_factory=list)
    skipped: list[tuple[int, str, str]] = field(default_factory=list)


def build(
    origin: Reader, folder: Path, image_size: int | None, on_bad_image: OnBadImage, show: bool | None
) -> tuple[int, list[Chunk]]:
    """Decode everything into ``folder``, going on where an earlier attempt stopped.

    Returns:
        The images' side length and the journal.
    """
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
    items = origin.items()
    size = image_size
    if size is None:
        size, looked_at = _first_size(items, on_bad_image)
        if size is None:
            raise nothing_usable(origin, len(looked_at))
        items = chain(looked_at, items)
    chunks = _resume(folder, size)
    done = sum(chunk.items for chunk in chunks)
    if done:
        items = origin.items(done)
    total = origin.count()
    if total is not None:
        _require_space(folder, (total - done) * 3 * size * size)
    per_chunk = max(1, min(1024, CHUNK_BYTES // (3 * size * size)))
    jobs = _batches(items, per_chunk, done)
    with progress_bar("Decoding images", total, show, start=done) as advance:
        for chunk, pixels in _in_order(lambda job: _decode_chunk(*job, size, image_size, on_bad_image), jobs):
            _write(folder, chunk, pixels)
            chunks.append(chunk)
            advance(chunk.items)
    read = sum(chunk.items for chunk in chunks)
    if total is not None and read != total:
        raise DataError(f"{origin.describe()} changed while being read: {read} of {total} images came; try again")
    return size, chunks


def checksums_hold(pixels: Path, image_size: int, chunks: Iterable[tuple[int, int]]) -> Iterator[bool]:
    """For each ``(rows, checksum)`` in turn, whether the file's next rows have that checksum."""
    with open(pixels, "rb") as file:
        for rows, checksum in chunks:
            content = file.read(rows * 3 * image_size * image_size)
            yield len(content) == rows * 3 * image_size * image_size and zlib.crc32(content) == checksum


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn a failure to write below ``folder`` into a sentence about where and what to do."""
    try:
        yield
    except DataError:
        raise
    except OSError as error:
        why = "no space is left" if error.errno == errno.ENOSPC else (error.strerror or str(error))
        raise DataError(
            f"cannot write the image cache {folder}: {why}; free some space or point OCSSL_CACHE elsewhere"
        ) from error


def _decode_chunk(
    start: int, items: list[Item], size: int, wanted: int | None, on_bad_image: OnBadImage
) -> tuple[Chunk, Pixels]:
    pixels = np.empty((len(items), 3, size, size), dtype=np.uint8)
    labels: list[Label] = []
    skipped: list[tuple[int, str, str]] = []
    for position, item in enumerate(items, start):
        try:
            image = _decode_item(item, wanted)
            side = image.shape[-1]
            if side != size:  # no size was asked for, so that of the first picture holds for all
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


def bad_image_error(name: str, reason: str) -> DataError:
    """The error that stops on an unusable picture, naming it."""
    return DataError(f"image {name} cannot be used: {reason} (--on-bad-image skip leaves such images out)")


def nothing_usable(origin: Reader, bad: int) -> DataError:
    """The error for a set without a single usable picture."""
    if bad:
        return DataError(f"{origin.describe()}: not one image can be used, {bad} are bad")
    return DataError(f"there are no images in {origin.describe()}")


def _decode_item(item: Item, wanted: int | None) -> Pixels:
    if isinstance(item.picture, BadImage):
        raise item.picture
    return decode(item.picture, wanted)


def _first_size(items: Iterable[Item], on_bad_image: OnBadImage) -> tuple[int | None, list[Item]]:
    """The side length of the first usable picture, if any, and the items that were looked at to find it."""
    looked_at = []
    for item in items:
        looked_at.append(item)
        try:
            return _decode_item(item, None).shape[-1], looked_at
        except BadImage as problem:
            if on_bad_image == "error":
                raise bad_image_error(item.name, str(problem)) from problem
    return None, looked_at


def _resume(folder: Path, size: int) -> list[Chunk]:
    """The chunks of an earlier attempt that are whole; everything after them is cut off."""
    pixels, journal = folder / PIXELS, folder / JOURNAL
    chunks: list[Chunk] = []
    if pixels.exists() and journal.exists():
        written = list(_whole_lines(journal))
        held = checksums_hold(pixels, size, ((chunk.rows, chunk.checksum) for chunk in written))
        chunks = [chunk for chunk, whole in zip(written, _until_false(held), strict=False) if whole]
    with writing_to(folder):
        journal.write_text("".join(_line(chunk) for chunk in chunks), encoding="utf-8")
        with open(pixels, "ab") as file:
            file.truncate(sum(chunk.rows for chunk in chunks) * 3 * size * size)
    return chunks


def _whole_lines(journal: Path) -> Iterator[Chunk]:
    for line in journal.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            yield Chunk(**json.loads(line))
        except (ValueError, TypeError):  # the line that was being written when the power went
            return


def _until_false(values: Iterable[bool]) -> Iterator[bool]:
    for value in values:
        yield value
        if not value:
            return


def _write(folder: Path, chunk: Chunk, pixels: Pixels) -> None:
    with writing_to(folder):
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
    """Up to ``size`` pictures at a time, and fewer where what they hold in memory makes a chunk."""
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
    if isinstance(picture, Image.Image):  # may keep its file open as well, and a process may open only so many
        return max(4 * picture.width * picture.height, CHUNK_BYTES // 16)
    return len(picture) if isinstance(picture, bytes) else getattr(picture, "nbytes", 0)


def _in_order(work: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
    """Map with worker threads (Pillow decodes outside the interpreter lock), holding few results at a time."""
    workers = min(os.cpu_count() or 1, MAX_WORKERS)
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[Future[Result]] = deque()
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
