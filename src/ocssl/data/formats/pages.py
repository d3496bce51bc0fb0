"""What a parquet file claims to hold: the columns in its footer, and the sizes of their pages.

Footer and page headers are structs of Thrift's compact protocol. pyarrow reads them, too, but some damage of a column's
metadata makes it abort the process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO

HEADER_BYTES = 1 << 16  # of a header; statistics of long values make it long
MAX_PAGES = 1_000_000  # of a column in a row group
LEVELS = 16
MAGIC = b"PAR1"

_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12
_DAMAGE = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)


@dataclass(frozen=True)
class ColumnChunk:
    """A column of a row group.

    Attributes:
        column: the name, without those of inner fields.
        size: bytes without compression.
        packed: bytes in the file.
        start: where its first page begins.
    """

    column: str
    size: int
    packed: int
    start: int


def column_chunks(file: BinaryIO) -> list[list[ColumnChunk]]:
    """The columns of each row group, as the footer has them; one that cannot be read is a ``ValueError``."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length + 8 > end:
        raise ValueError("it has no footer")
    file.seek(end - 8 - length)
    try:
        footer = _struct(BytesIO(file.read(length)))
        return [[_chunk(column[3]) for column in group[1]] for group in footer[4]]
    except _DAMAGE as error:
        raise ValueError(f"its footer is damaged: {error!r}") from error


def _chunk(facts: dict[int, Any]) -> ColumnChunk:
    start = min(int(facts[9]), int(facts.get(11, facts[9])))
    return ColumnChunk(facts[3][0].decode().partition(".")[0], int(facts[6]), int(facts[7]), start)


def largest_page(file: BinaryIO, chunk: ColumnChunk) -> int:
    """The largest size, in bytes, that a page of a column claims, up to a header that cannot be read."""
    place, largest = chunk.start, 0
    end = place + chunk.packed
    for _ in range(MAX_PAGES):
        if not 0 <= place < end:
            break
        file.seek(place)
        header = BytesIO(file.read(HEADER_BYTES))
        try:
            fields = _struct(header)
            size, packed = int(fields[2]), int(fields[3])
        except _DAMAGE:
            break  # pyarrow refuses it, too
        largest = max(largest, size, packed)
        place += header.tell() + max(packed, 0)
    return largest


def _bytes(data: BytesIO, count: int) -> bytes:
    found = data.read(count)
    if len(found) < count:
        raise ValueError("it ends too early")
    return found


def _byte(data: BytesIO) -> int:
    return _bytes(data, 1)[0]


def _varint(data: BytesIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = _byte(data)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise ValueError("a number of more than 64 bits")


def _integer(data: BytesIO) -> int:
    number = _varint(data)
    return (number >> 1) ^ -(number & 1)


def _struct(data: BytesIO, level: int = 0) -> dict[int, Any]:
    """The values of a struct by field."""
    found: dict[int, Any] = {}
    field = 0
    while head := _byte(data):
        step, kind = head >> 4, head & 15
        field = field + step if step else _integer(data)
        found[field] = kind == 1 if kind in _BOOLEANS else _value(data, kind, level)  # the kind of a boolean says it
    return found


def _value(data: BytesIO, kind: int, level: int) -> Any:
    if level == LEVELS:
        raise ValueError("nested too deeply")
    if kind in _INTEGERS:
        return _integer(data)
    if kind in (*_BOOLEANS, _BYTE):
        return _byte(data)
    if kind == _DOUBLE:
        return _bytes(data, 8)
    if kind == _BINARY:
        return _bytes(data, _varint(data))
    if kind == _STRUCT:
        return _struct(data, level + 1)
    if kind not in _LISTS:
        raise ValueError(f"no type {kind} in a header")
    head = _byte(data)
    count, inner = head >> 4, head & 15
    return [_value(data, inner, level + 1) for _ in range(_varint(data) if count == 15 else count)]
