"""Parquet shards as the Hugging Face Hub writes them: a column of encoded images, perhaps one of labels."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ocssl.common.console import number_of
from ocssl.common.files import require_regular
from ocssl.data.dataset import ColumnArray
from ocssl.data.formats.pages import column_chunks, largest_page
from ocssl.data.reader import OTHER, Item, Reader, describe_files
from ocssl.errors import ConfigError, DataError
from ocssl.imaging import BadImage

DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, IndexError, OverflowError, TypeError)
"""What pyarrow raises for damaged files."""
LABEL_COLUMNS = ("fine_label", "label", "labels", "cls", "class")
ROWS_AT_ONCE = 32
MAX_PAGE_BYTES = 512 << 20  # of one page, which pyarrow reads as a whole, whatever it holds
BYTES_AT_ONCE = 64 << 20  # of the rows that are in memory at once, unless a single one has more
BOMB_BYTES, BOMB_RATIO = 256 << 20, 100  # encoded images hardly compress: a column that grows so much is a bomb


class ParquetReader(Reader):
    """Parquet files of one split, read in order of their names.

    The image column is the first whose type is binary or Hugging Face's ``{bytes, path}``; the label column the first
    of ``fine_label``, ``label``, ``labels``, ``cls``, ``class`` that holds whole numbers or texts. Class names come
    from the Hub's metadata.

    Args:
        other_split: returns the files of the other split; called when the labels are texts, which must be numbered.
    """

    def __init__(self, files: Sequence[Path], other_split: Callable[[], Sequence[Path]] = list) -> None:
        self.files = [Path(os.path.realpath(file)) for file in sorted(files)]  # by the names of links, too
        schema = _open(self.files[0]).schema_arrow
        image_column = next((field.name for field in schema if _holds_images(field.type)), None)
        if image_column is None:
            raise DataError(f"{self.files[0]} has no column of encoded images; it has {', '.join(schema.names)}")
        self.image_column: str = image_column
        self.label_column = next((name for name in LABEL_COLUMNS if _holds_labels(schema, name)), None)
        self._class_names = _class_names(schema, self.label_column)
        self._has_named_labels = self.label_column is not None and _is_text(schema.field(self.label_column).type)
        self._other_split = other_split

    @cached_property
    def _other(self) -> ParquetReader | None:
        files = self._other_split() if self._has_named_labels else ()
        return ParquetReader(files) if files else None

    def describe(self) -> str:
        return f"{number_of(len(self.files), 'parquet file')} in {self.files[0].parent}"

    def identity(self) -> str:
        own = f"parquet {self.image_column} {self.label_column}\n{describe_files(self.files)}"
        return own + (f"{OTHER}{self._other.identity()}" if self._other else "")

    def class_names(self) -> tuple[str, ...]:
        return self._class_names

    def other_labels(self) -> Iterable[int | str | None]:
        other = self._other
        return other.column(other.label_column).tolist() if other and other.label_column else ()

    def count(self) -> int:
        return sum(_open(file).metadata.num_rows for file in self.files)

    def items(self, start: int = 0) -> Iterator[Item]:
        for file in self.files:
            rows = _open(file).metadata.num_rows
            if start < rows:
                yield from self._rows(file, start)
            start = max(start - rows, 0)

    def column(self, name: str) -> ColumnArray:
        for file in self.files:
            if name not in _open(file).schema_arrow.names:
                raise ConfigError(f"{file.name} has no column '{name}' to order by")
        return np.concatenate([_whole_column(file, name) for file in self.files])

    def _rows(self, file: Path, start: int) -> Iterator[Item]:
        columns = [self.image_column, *([self.label_column] if self.label_column else [])]
        row, content = 0, _open(file)
        if missing := [name for name in columns if name not in content.schema_arrow.names]:
            raise DataError(f"{file} has no column '{missing[0]}', which {self.files[0].name} has; keep the sets apart")
        names = _class_names(content.schema_arrow, self.label_column)
        if names and self._class_names and names != self._class_names:
            raise DataError(f"{file} has other class names than {self.files[0].name}; keep the sets apart")
        try:
            for batch in content.iter_batches(_rows_at_once(file, columns), columns=columns):
                skipped = min(max(start - row, 0), len(batch))
                for position, values in enumerate(batch.slice(skipped).to_pylist(), row + skipped):
                    yield self._item(values, f"{file}:{position}")
                row += len(batch)
        except DAMAGE as error:
            raise _unreadable(file, f"cannot be read after row {row}", error) from error

    def _item(self, values: dict[str, Any], place: str) -> Item:
        image = values[self.image_column]
        content = image.get("bytes") if isinstance(image, dict) else image
        label = values[self.label_column] if self.label_column else None
        return Item(place, BadImage("its row holds no image bytes") if content is None else content, label)


def _open(file: Path) -> pq.ParquetFile:
    try:
        require_regular(file)
        content = pq.ParquetFile(file, pre_buffer=False)  # else the whole file is read ahead into memory
        content.schema_arrow  # noqa: B018 - a damaged schema fails here
    except DAMAGE as error:
        raise _unreadable(file, "is not a readable parquet file", error) from error
    return content


def _unreadable(file: Path, what: str, error: Exception) -> DataError:
    return error if isinstance(error, DataError) else DataError(f"{file} {what}: {' '.join(str(error).split())[:300]}")


def _whole_column(file: Path, name: str) -> ColumnArray:
    """Every value of a column; equal texts are one object, so that repeated ones take little memory."""
    content, known, found = _open(file), dict[Any, Any](), list[Any]()
    try:
        for batch in content.iter_batches(_rows_at_once(file, [name], 1 << 16), columns=[name]):
            values = batch.column(0).to_numpy(zero_copy_only=False)
            if values.dtype == object:
                for place, value in enumerate(values):
                    if isinstance(value, str | bytes):  # others, such as lists, cannot be compared
                        values[place] = known.setdefault(value, value)
            found.append(values)
    except DAMAGE as error:
        raise _unreadable(file, "cannot be read", error) from error
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _rows_at_once(file: Path, columns: Sequence[str], most: int = ROWS_AT_ONCE) -> int:
    """Rows to read at once, so that they fit into :data:`BYTES_AT_ONCE` although each may be the largest of its group.

    A group stores equal values once, so its rows together can take many times its size. A page is read as a whole: one
    whose header says that it is larger than :data:`MAX_PAGE_BYTES` is refused.
    """
    largest, wanted = 1, {column.partition(".")[0] for column in columns}
    with file.open("rb") as pages:
        for group in column_chunks(pages):
            chunks = [chunk for chunk in group if chunk.column in wanted]
            size = sum(chunk.size for chunk in chunks)
            if size > max(BOMB_BYTES, BOMB_RATIO * sum(chunk.packed for chunk in chunks)):
                raise DataError(
                    f"{file} is a decompression bomb: {size:,} bytes of one column lie in a much smaller file"
                )
            page = max((largest_page(pages, chunk) for chunk in chunks), default=0)
            if page > MAX_PAGE_BYTES:
                raise DataError(
                    f"{file} has a page of {page:,} bytes; {MAX_PAGE_BYTES:,} are allowed: write it with a smaller "
                    "write_batch_size, and without such images"
                )
            largest = max(largest, size)
    return max(1, min(most, BYTES_AT_ONCE // largest))


def _holds_images(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return bool(kind.get_field_index("bytes") >= 0)
    return _values(kind) in ("binary", "large_binary", "binary_view")


def _holds_labels(schema: pa.Schema, name: str) -> bool:
    if name not in schema.names:
        return False
    kind = schema.field(name).type
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or _is_text(kind))


def _is_text(kind: pa.DataType) -> bool:
    return _values(kind) in ("string", "large_string", "string_view")


def _values(kind: pa.DataType) -> str:
    """The name of the type of a column's values, which a dictionary may hold."""
    return str(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _class_names(schema: pa.Schema, label_column: str | None) -> tuple[str, ...]:
    """The names of a ``ClassLabel`` feature, from the metadata that the Hub's tools store with the schema."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        names = features[label_column]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return ()
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()
