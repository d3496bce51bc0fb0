"""Features of all images of a reader in one parquet file, written in parts so that an interruption costs little."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from ocssl.common.files import MARK, atomic_write, check_output, is_draft, locked, read_file, writing
from ocssl.data.reader import Item, Reader
from ocssl.errors import ConfigError, DataError
from ocssl.export.encoder import FrozenEncoder
from ocssl.imaging import BadImage

PART = 4096  # images per part: what an interruption can cost
MADE_FROM = "made-from.txt"
MAX_BATCH = 65_536


@dataclass(frozen=True)
class Embedded:
    """Images embedded, and name and problem of those that could not be."""

    count: int
    refused: tuple[tuple[str, str], ...]


def embed(
    encoder: FrozenEncoder,
    reader: Reader,
    path: str | Path,
    *,
    batch: int = 256,
    part: int = PART,
    progress: Callable[[int], object] = lambda images: None,
    force: bool = False,
) -> Embedded:
    """Write ``id``, ``path`` and ``features`` of every usable image of a reader into a parquet file.

    ``id`` is the image's position. Finished parts lie beside the file in ``NAME.parts``, and the same call uses them
    after an interruption; the file appears when all is done.

    Args:
        progress: called after each batch with its number of images.
        force: replace a file that ocssl did not write, too.
    """
    if batch < 1 or not 1 <= part < 2**31:
        raise ConfigError(f"batch and part must be at least 1, and part less than 2**31, not {batch} and {part}")
    if batch > MAX_BATCH:
        raise ConfigError(f"batch must be at most {MAX_BATCH}, not {batch}")
    target = Path(path)
    check_output(path, "parquet", force=force)
    parts = target.with_name(f"{target.name}.parts")
    with writing(target):
        _check_parts(parts)
    with writing(target), locked(parts):
        _check_same(parts, _fingerprint(encoder, reader))
        done = _finished(parts)
        position = sum(count for _, count in done)
        progress(position)
        items = reader.items(position)
        while True:
            table, count = _features(encoder, islice(items, part), position, batch, progress)
            if not count:
                break
            done.append((_write(table, _part(parts, len(done))), count))
            position += count
        found = _join([place for place, _ in done], target)
        for place in sorted(
            parts.iterdir(), key=lambda place: place.name == MADE_FROM
        ):  # last what says whose they are
            if _is_ours(place):
                place.unlink()
        with contextlib.suppress(OSError):  # what else is there stays
            parts.rmdir()
    return found


def _check_parts(parts: Path) -> None:
    """Refuse a folder with anything in it that does not say to be ours."""
    if not parts.exists() and not parts.is_symlink():
        return
    mark = parts / MADE_FROM
    if parts.is_symlink() or not parts.is_dir():
        raise ConfigError(f"'{parts}' is not a folder of features; move it away, or choose another output")
    known = mark.is_file() and re.fullmatch(rb"(made by ocssl\n)?[0-9a-f]{64}", read_file(mark))
    if not known and not all(_is_ours(place) and place.name.startswith(".") for place in parts.iterdir()):
        raise ConfigError(f"'{parts}' holds files that ocssl did not write; move it away, or choose another output")


def _is_ours(place: Path) -> bool:
    """Whether a file in the folder of parts has a name that only parts, their drafts, the mark and the lock have."""
    if place.is_symlink() or not place.is_file():
        return False
    if place.name == ".lock":
        return not place.stat().st_size
    number = re.fullmatch(r"\.?(\d{6}\.parquet)(\.[0-9a-f]+)?", place.name)
    part = number is not None and (place.name == number[1] or is_draft(place, number[1]))
    return part or place.name == MADE_FROM or is_draft(place, MADE_FROM)


def _features(
    encoder: FrozenEncoder, items: Iterator[Item], start: int, batch: int, progress: Callable[[int], object]
) -> tuple[pa.Table, int]:
    """The table of one part, and its number of images; its metadata name the refused ones.

    Each image is decoded to the encoder's size before the next one is taken, so that only small ones are kept.
    """
    ids, names, rows, refused, count = [], [], [], [], 0
    while True:
        images, before = [], count
        for item in islice(items, batch):
            number, count = start + count, count + 1
            try:
                images.append(item.decode(encoder.image_size))
                ids.append(number)
                names.append(_utf8(item.name))
            except BadImage as problem:
                refused.append((_utf8(item.name), str(problem)))
        if images:
            rows.append(encoder.transform(torch.from_numpy(np.stack(images)), batch=batch))
        if count == before:
            break
        progress(count - before)
    values = np.concatenate(rows).ravel() if rows else np.empty(0, np.float32)
    features = pa.FixedSizeListArray.from_arrays(pa.array(values), encoder.feature_dim)
    columns = {"id": pa.array(ids, pa.int64()), "path": pa.array(names, pa.string()), "features": features}
    return pa.table(columns, metadata={"ocssl": json.dumps({"count": count, "refused": refused})}), count


def _write(table: pa.Table, path: Path) -> Path:
    content = pa.BufferOutputStream()
    pq.write_table(table, content)
    return atomic_write(path, content.getvalue().to_pybytes())


def _part(parts: Path, number: int) -> Path:
    return parts / f"{number:06d}.parquet"


def _finished(parts: Path) -> list[tuple[Path, int]]:
    """Parts up to the first that cannot be read, with the number of images of each, the refused ones included.

    The start of a part follows from those before it, so the parts after an unreadable one are made again too.
    """
    done: list[tuple[Path, int]] = []
    while (place := _part(parts, len(done))).exists():
        try:
            done.append((place, _read_part(place)[1]["count"]))
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            break
    return done


def _read_part(place: Path) -> tuple[pa.Table, dict[str, Any]]:
    table = pq.read_table(place)
    return table.replace_schema_metadata(None), json.loads(table.schema.metadata[b"ocssl"])


def _join(places: list[Path], target: Path) -> Embedded:
    if not places:
        raise DataError("there are no images to embed")
    count = 0
    refused: list[tuple[str, str]] = []

    def write(draft: Path) -> None:
        nonlocal count
        with pq.ParquetWriter(draft, pq.read_schema(places[0]).with_metadata({"ocssl": MARK})) as writer:
            for place in places:
                table, facts = _read_part(place)
                refused.extend((name, problem) for name, problem in facts["refused"])
                writer.write_table(table.replace_schema_metadata({"ocssl": MARK}))
                count += len(table)

    atomic_write(target, write)
    return Embedded(count, tuple(refused))


def _utf8(name: str) -> str:
    """A name as parquet takes it: bytes of a file name that are not UTF-8 become escapes such as ``\\udce9``."""
    return name.encode(errors="backslashreplace").decode()


def _fingerprint(encoder: FrozenEncoder, reader: Reader) -> str:
    digest = hashlib.sha256(_utf8(reader.identity()).encode())
    for name, tensor in encoder.state_dict().items():
        digest.update(name.encode() + tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


def _check_same(parts: Path, fingerprint: str) -> None:
    """Parts of another encoder or of other images must not end up in one file."""
    mark = parts / MADE_FROM
    if not mark.exists():
        atomic_write(mark, f"{MARK}\n{fingerprint}")
    elif not read_file(mark).endswith(fingerprint.encode()):
        raise ConfigError(
            f"'{parts}' holds features of another encoder or of images that changed since; remove it to begin again"
        )
