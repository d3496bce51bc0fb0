"""What a parquet file claims, before anybody reads it: the columns in its footer, and the sizes of their pages.

Footer and page headers are structs of Thrift's compact protocol. pyarrow reads them, too, but some damage of a column's
metadata makes it abort the process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, BinaryIO

HEADER_BYTES = 1 << 16  # of a header; statistics of long values make it long
MAX_PAGES = 1_000_000  # of a column in a row group
LEVELS = 16
MAGIC = b"PAR1"

_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12
_DAMAGE = (AttributeError, IndexError, KeyError, TypeError, ValueError)


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
    """The columns of each row group, as the footer has them; a footer that nobody can read is a ``ValueError``."""
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length + 8 > end:
        raise ValueError("it has no footer")
    file.seek(end - 8 - length)
    try:
        footer, _ = _struct(file.read(length), 0)
        return [[_chunk(column[3]) for column in group[1]] for group in footer[4]]
    except _DAMAGE as error:
        raise ValueError(f"its footer is damaged: {error!r}") from error


def _chunk(facts: dict[int, Any]) -> ColumnChunk:
    start = min(int(facts[9]), int(facts.get(11, facts[9])))
    return ColumnChunk(facts[3][0].decode().partition(".")[0], int(facts[6]), int(facts[7]), start)


def largest_page(file: BinaryIO, chunk: ColumnChunk) -> int:
    """The largest size, in bytes, that a page of a column claims; pages with headers that nobody can read end it."""
    place, largest = chunk.start, 0
    end = place + chunk.packed
    for _ in range(MAX_PAGES):
        if not 0 <= place < end:
            break
        file.seek(place)
        try:
            fields, length = _struct(file.read(HEADER_BYTES), 0)
            size, packed = int(fields[2]), int(fields[3])
        except _DAMAGE:
            break  # pyarrow refuses it, too
        largest = max(largest, size, packed)
        place += length + max(packed, 0)
    return largest


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _struct(data: bytes, at: int, level: int = 0) -> tuple[dict[int, Any], int]:
    """The values of a struct by field, and where it ends."""
    found: dict[int, Any] = {}
    field = 0
    while data[at]:
        step, kind = data[at] >> 4, data[at] & 15
        at += 1
        if step:
            field += step
        else:
            field, at = _integer(data, at)
        if kind in _BOOLEANS:  # the kind is the value
            found[field] = kind == 1
        else:
            found[field], at = _value(data, at, kind, level)
    return found, at + 1


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _value(data: bytes, at: int, kind: int, level: int) -> tuple[Any, int]:
    """A value, and where it ends."""
    if level == LEVELS:
        raise ValueError("nested too deeply")
    if kind in _INTEGERS:
        return _integer(data, at)
    if kind in (*_BOOLEANS, _BYTE):
        return data[at], at + 1
    if kind == _DOUBLE:
        return None, at + 8
    if kind == _BINARY:
        length, at = _varint(data, at)
        return data[at : at + length], at + length
    if kind == _STRUCT:
        return _struct(data, at, level + 1)
    if kind not in _LISTS:
        raise ValueError(f"no type {kind} in a header")
    count, inner = data[at] >> 4, data[at] & 15
    at += 1
    if count == 15:
        count, at = _varint(data, at)
    values = []
    for _ in range(min(count, len(data))):
        value, at = _value(data, at, inner, level + 1)
        values.append(value)
    return values, at
