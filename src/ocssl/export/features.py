"""Features of all images of a reader in one file, written in parts so that an interruption costs little.

A parquet file says in its metadata which encoder made it, and is made anew only for images that are new or changed.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from ocssl.common.files import MARK, atomic_write, check_output, is_draft, locked, read_file, writing
from ocssl.data.reader import Item, Reader, in_order
from ocssl.errors import ConfigError, DataError, OcsslError
from ocssl.export.encoder import FrozenEncoder
from ocssl.image_batch import check_batch
from ocssl.imaging import BadImage, Pixels, file_stamp
from ocssl.plugins import describe, modules_of

PART = 4096  # images per part: what an interruption can cost
MADE_FROM = "made-from.txt"
MAX_BATCH = 65_536
MAX_DECODERS = 8  # each may hold an image of the largest size
KINDS = {".parquet": "parquet", ".csv": "csv", ".npy": "npy"}
"""What is written, by the suffix of its name."""
COLUMNS = "id,path"
"""What the first line of a csv file begins with; a column for each feature follows."""


@dataclass(frozen=True)
class Embedded:
    """Images embedded, name and problem of those that could not be, and how many features were there already."""

    count: int
    refused: tuple[tuple[str, str], ...]
    kept: int = 0


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
    """Write ``id``, ``path``, ``stamp`` and ``features`` of every usable image of a reader into a file.

    ``id`` is the image's position, ``stamp`` changes when its file does. Finished parts lie beside the file in
    ``NAME.parts``, and the same call uses them after an interruption; the file appears when all is done. The features
    of unchanged files are taken from the parquet file that is there, if the same encoder made it.

    Args:
        path: ends in ``.parquet``; in ``.csv`` for text, without stamps, a column for each feature; or in ``.npy`` for
            the features alone, ``(n, d)`` float32.
        progress: called after each batch with its number of images.
        force: replace a file that ocssl did not write, too.
    """
    if check_batch(batch) > MAX_BATCH:
        raise ConfigError(f"batch must be at most {MAX_BATCH}, not {batch}")
    if not 1 <= part < 2**31:
        raise ConfigError(f"part must be at least 1 and less than 2**31, not {part}")
    target = Path(path)
    check_features(target, force=force)
    parts = target.with_name(f"{target.name}.parts")
    with writing(target):
        _check_parts(parts)
    with writing(target), locked(parts):
        digest = encoder_digest(encoder)
        _check_same(parts, hashlib.sha256(f"{digest}\n{_utf8(reader.identity())}".encode()).hexdigest())
        (done, position), earlier = _finished(parts), _earlier(target, digest)
        progress(position)
        try:
            items = reader.items(position)
            while True:
                table, count = _features(encoder, islice(items, part), position, batch, progress, earlier)
                if not count:
                    break
                done.append(_write(table, _part(parts, len(done))))
                position += count
            found = _join(done, target, _made_by(encoder, digest))
        except OcsslError:
            if not any(pq.read_metadata(place).num_rows for place in done):
                _remove(parts)  # there is nothing in it to go on with
            raise
        _remove(parts)
    return found


def _remove(parts: Path) -> None:
    """Remove our files from the folder of parts, and the folder if nothing else is in it."""
    ours = filter(_is_ours, parts.iterdir())
    for place in sorted(ours, key=lambda place: place.name == MADE_FROM):  # the mark last: it says whose they are
        place.unlink()
    with contextlib.suppress(OSError):
        parts.rmdir()


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


_Rows = dict[tuple[str, str], np.ndarray]
"""Features by name and stamp of their image."""


def _earlier(target: Path, digest: str) -> _Rows:
    """The rows of the file that is there, where the same encoder made it and where images have stamps."""
    if target.suffix != ".parquet" or not target.is_file():
        return {}
    try:
        table = pq.read_table(target)
        if json.loads((table.schema.metadata or {})[b"encoder"])["sha256"] != digest:
            return {}
        rows = zip(table["path"].to_pylist(), table["stamp"].to_pylist(), _matrix(table), strict=True)
        return {(name, stamp): features for name, stamp, features in rows if stamp}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException):
        return {}


def _features(
    encoder: FrozenEncoder,
    items: Iterator[Item],
    start: int,
    batch: int,
    progress: Callable[[int], object],
    earlier: _Rows,
) -> tuple[pa.Table, int]:
    """The table of one part, and its number of images; its metadata name the refused ones."""

    def found(item: Item) -> tuple[str, str, np.ndarray | None, Pixels | BadImage | None]:
        """Name and stamp of an image, its earlier features, or its pixels at the encoder's size."""
        name, stamp = _utf8(item.name), file_stamp(item.picture)
        try:
            if (features := earlier.get((name, stamp))) is not None:
                return name, stamp, features, None
            return name, stamp, None, item.decode(encoder.image_size, encoder.fit, encoder.pixel_range)
        except BadImage as problem:
            return name, stamp, None, problem

    rows: list[dict[str, Any]] = []
    refused: list[tuple[str, str]] = []
    count = kept = 0
    while together := list(in_order(found, islice(items, batch), MAX_DECODERS)):
        new = [pixels for *_, pixels in together if isinstance(pixels, np.ndarray)]
        computed = iter(encoder.transform(torch.from_numpy(np.stack(new)), batch=batch) if new else ())
        for number, (name, stamp, features, pixels) in enumerate(together, start + count):
            if isinstance(pixels, BadImage):
                refused.append((name, str(pixels)))
            else:
                known = next(computed) if features is None else features
                rows.append({"id": number, "path": name, "stamp": stamp, "features": known})
        count += len(together)
        kept += sum(features is not None for _, _, features, _ in together)
        progress(len(together))
        del together, new  # before the next images are decoded
    kinds = {
        "id": pa.int64(),
        "path": pa.string(),
        "stamp": pa.string(),
        "features": pa.list_(pa.float32(), encoder.feature_dim),
    }
    facts = {"ocssl": json.dumps({"count": count, "refused": refused, "kept": kept})}
    return pa.Table.from_pylist(rows, pa.schema(kinds, facts)), count


def _write(table: pa.Table, path: Path) -> Path:
    content = pa.BufferOutputStream()
    pq.write_table(table, content)
    return atomic_write(path, content.getvalue().to_pybytes())


def _part(parts: Path, number: int) -> Path:
    return parts / f"{number:06d}.parquet"


def _finished(parts: Path) -> tuple[list[Path], int]:
    """Parts up to the first that cannot be read, and the number of their images, the refused ones included.

    The start of a part follows from those before it, so the parts after an unreadable one are made again too.
    """
    done: list[Path] = []
    position = 0
    while (place := _part(parts, len(done))).exists():
        try:
            position += _facts(pq.read_table(place).schema)["count"]
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            break
        done.append(place)
    return done, position


def _facts(part: pa.Schema) -> dict[str, Any]:
    """The number of images of a part, as ``count``, those ``kept``, and name and problem of each ``refused``."""
    facts: dict[str, Any] = json.loads(part.metadata[b"ocssl"])
    return facts


def _join(places: list[Path], target: Path, made_by: dict[str, Any]) -> Embedded:
    """Write the rows of all parts into one file."""
    if not places:
        raise DataError("there are no images to embed")
    schemas = [pq.read_schema(place) for place in places]
    facts = [_facts(schema) for schema in schemas]
    refused = tuple((name, problem) for fact in facts for name, problem in fact["refused"])
    used = sum(fact["count"] for fact in facts) - len(refused)
    if not used:
        name, problem = refused[0]
        raise DataError(f"there is no usable image: {name}: {problem}")
    metadata = {"ocssl": MARK, "encoder": json.dumps(made_by)}
    tables = (pq.read_table(place).replace_schema_metadata(metadata) for place in places)  # one in memory at a time

    def write_parquet(draft: Path) -> None:
        with pq.ParquetWriter(draft, schemas[0].with_metadata(metadata)) as writer:
            for table in tables:
                writer.write_table(table)

    def write_array(draft: Path) -> None:
        with draft.open("wb") as file:
            np.save(file, np.concatenate([_matrix(table) for table in tables]))

    def write_csv(draft: Path) -> None:
        with draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            width = schemas[0].field("features").type.list_size
            writer.writerow([*COLUMNS.split(","), *(f"f{i}" for i in range(width))])
            for table in tables:
                rows = zip(table["id"].to_pylist(), table["path"].to_pylist(), _matrix(table), strict=True)
                writer.writerows([number, path, *features.astype(str)] for number, path, features in rows)

    atomic_write(target, {".npy": write_array, ".csv": write_csv}.get(target.suffix, write_parquet))
    return Embedded(used, refused, sum(fact.get("kept", 0) for fact in facts))  # earlier parts do not say


def _matrix(table: pa.Table) -> np.ndarray:
    """The features of a table, ``(n, d)``."""
    column = table["features"].combine_chunks()
    flat: np.ndarray = column.flatten().to_numpy()
    return flat.reshape(len(table), column.type.list_size)


def _utf8(name: str) -> str:
    """A name as parquet takes it: bytes of a file name that are not UTF-8 become escapes such as ``\\udce9``."""
    return name.encode(errors="backslashreplace").decode()


def check_features(path: Path, *, inputs: Iterable[str | Path] = (), force: bool = False) -> None:
    """Refuse a place for features: a suffix that is not known, or what :func:`check_output` refuses."""
    if path.suffix not in KINDS:
        raise ConfigError(f"features are written as {', '.join(KINDS)}; '{path.name}' has none of these endings")
    check_output(path, KINDS[path.suffix], inputs=inputs, force=force, columns=COLUMNS)


def encoder_digest(encoder: FrozenEncoder) -> str:
    """SHA-256 of what decides an encoder's features: weights, how images are prepared, and a plugin's code."""
    mean, std = encoder.mean.flatten().tolist(), encoder.std.flatten().tolist()
    digest = hashlib.sha256(repr((encoder.image_size, mean, std, encoder.fit, encoder.pixel_range)).encode())
    for name, tensor in encoder.state_dict().items():
        digest.update(name.encode() + tensor.cpu().numpy().tobytes())
    for plugin in describe(modules_of(f"backbone {encoder.facts.get('backbone')}", type(encoder.backbone).__mro__)):
        digest.update(str(plugin.digest).encode())
    return digest.hexdigest()


def _made_by(encoder: FrozenEncoder, digest: str) -> dict[str, Any]:
    """What a file says of the encoder of all of its rows."""
    known = {name: encoder.facts.get(name) for name in ("version", "seen", "cbp", "backbone", "weights")}
    return {"sha256": digest, "image_size": encoder.image_size, "fit": encoder.fit, **known}


def _check_same(parts: Path, fingerprint: str) -> None:
    """Parts of another encoder or of other images must not end up in one file; where none is finished, begin anew."""
    mark = parts / MADE_FROM
    if not any(parts.glob("*.parquet")):
        atomic_write(mark, f"{MARK}\n{fingerprint}")
    elif not read_file(mark).endswith(fingerprint.encode()):
        raise ConfigError(
            f"'{parts}' holds features of another encoder or of images that changed since; remove it to begin again"
        )
