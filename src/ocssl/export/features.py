"""Features of a whole source in one parquet file, made in parts so that an interruption costs little."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from filelock import FileLock, Timeout

from ocssl.data.reader import Item, Reader
from ocssl.errors import CheckpointError, ConfigError, DataError
from ocssl.export.encoder import FrozenEncoder
from ocssl.imaging import BadImage, decode

PART = 4096  # images per part: what an interruption can cost


@dataclass(frozen=True)
class Embedded:
    """What became of a source: images embedded, and name and problem of those that could not be."""

    count: int
    refused: tuple[tuple[str, str], ...]


def embed(
    encoder: FrozenEncoder,
    origin: Reader,
    path: str | Path,
    *,
    batch: int = 256,
    part: int = PART,
    progress: Callable[[int], object] = lambda images: None,
) -> Embedded:
    """Write ``id``, ``path`` and ``features`` of every usable image of a source into a parquet file.

    ``id`` is the image's position in the source. Finished parts wait beside the file in ``NAME.parts`` and are used
    again when the same call is made after an interruption; the file appears when all is done.

    Args:
        progress: called with the number of images that were dealt with, after each batch.
    """
    if batch < 1 or part < 1:
        raise ConfigError(f"batch and part must be at least 1, not {batch} and {part}")
    target = Path(path)
    parts = target.with_name(f"{target.name}.parts")
    try:
        parts.mkdir(parents=True, exist_ok=True)
        with FileLock(parts / ".lock", timeout=0):
            _check_same(parts, _fingerprint(encoder, origin))
            done = _finished(parts)
            position = sum(count for _, count in done)
            progress(position)
            items = origin.items(position)
            while members := list(islice(items, part)):
                table, refused = _features(encoder, members, position, batch, progress)
                place = _place(parts, len(done))
                _write_part(table, refused, len(members), place)
                done.append((place, len(members)))
                position += len(members)
            found = _join([place for place, _ in done], target)
            shutil.rmtree(parts, ignore_errors=True)  # all that counts is in the file
    except Timeout as error:
        raise ConfigError(f"another process is writing '{target}'; wait until it is done, or choose another") from error
    except OSError as error:
        if isinstance(error, CheckpointError | DataError):
            raise
        raise CheckpointError(f"could not write '{target}': {error.strerror or error}") from error
    return found


def _features(
    encoder: FrozenEncoder, items: list[Item], start: int, batch: int, progress: Callable[[int], object]
) -> tuple[pa.Table, list[tuple[str, str]]]:
    ids, names, rows, refused = [], [], [], []
    for first in range(0, len(items), batch):
        images = []
        for number, item in enumerate(items[first : first + batch], start + first):
            try:
                images.append(_decoded(item, encoder.image_size))
                ids.append(number)
                names.append(_utf8(item.name))
            except BadImage as problem:
                refused.append((_utf8(item.name), str(problem)))
        if images:
            rows.append(encoder.transform(torch.from_numpy(np.stack(images)), batch=batch))
        progress(len(items[first : first + batch]))
    width = encoder.feature_dim
    values = np.concatenate(rows).ravel() if rows else np.empty(0, np.float32)
    features = pa.FixedSizeListArray.from_arrays(pa.array(values), width)
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "path": pa.array(names, pa.string()), "features": features}
    ), refused


def _decoded(item: Item, size: int) -> np.ndarray:
    if isinstance(item.picture, BadImage):
        raise item.picture
    return decode(item.picture, size)


def _write_part(table: pa.Table, refused: list[tuple[str, str]], count: int, place: Path) -> None:
    facts = {"count": count, "refused": refused}
    draft = place.with_suffix(".draft")
    pq.write_table(table.replace_schema_metadata({"ocssl": json.dumps(facts)}), draft)
    _settle(draft, place)


def _settle(draft: Path, place: Path) -> None:
    """Give a file its name once it is on disk, so that a file of this name is whole even after a power cut."""
    with draft.open("rb+") as file:
        os.fsync(file.fileno())
    draft.replace(place)


def _place(parts: Path, number: int) -> Path:
    return parts / f"{number:06d}.parquet"


def _finished(parts: Path) -> list[tuple[Path, int]]:
    """Parts up to the first that cannot be read, and how many images each dealt with, the refused ones included.

    Where a part begins follows from those before it, so what comes after one that cannot be read is made again too.
    """
    done: list[tuple[Path, int]] = []
    while (place := _place(parts, len(done))).exists():
        try:
            done.append((place, _read_part(place)[1]["count"]))
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            break
    for place in set(parts.glob("*.parquet")) - {place for place, _ in done}:
        place.unlink()
    return done


def _read_part(place: Path) -> tuple[pa.Table, dict[str, Any]]:
    table = pq.read_table(place)
    return table.replace_schema_metadata(None), json.loads(table.schema.metadata[b"ocssl"])


def _join(places: list[Path], target: Path) -> Embedded:
    if not places:
        raise DataError("there are no images to embed")
    draft = target.with_name(f".draft-{target.name}")
    count, refused = 0, []
    try:
        with pq.ParquetWriter(draft, pq.read_schema(places[0]).remove_metadata()) as writer:
            for place in places:
                table, facts = _read_part(place)
                refused += [(name, problem) for name, problem in facts["refused"]]
                writer.write_table(table)
                count += len(table)
        _settle(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    return Embedded(count, tuple(refused))


def _utf8(name: str) -> str:
    """A name as parquet takes it: bytes of a file name that are not UTF-8 become escapes such as ``\\udce9``."""
    return name.encode(errors="backslashreplace").decode()


def _fingerprint(encoder: FrozenEncoder, origin: Reader) -> str:
    digest = hashlib.sha256(_utf8(origin.identity()).encode())
    for name, tensor in encoder.state_dict().items():
        digest.update(name.encode() + tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


def _check_same(parts: Path, fingerprint: str) -> None:
    """Parts of another encoder or of other images must not end up in one file."""
    mark = parts / "made-from.txt"
    if not mark.exists():
        draft = mark.with_suffix(".draft")
        draft.write_text(fingerprint)
        _settle(draft, mark)
    elif mark.read_text() != fingerprint:
        raise ConfigError(
            f"'{parts}' holds features of another encoder or of images that changed since; remove it to begin again"
        )
