"""Headers of parquet pages: how large a page says that it is, before anybody reads it.

A page begins with a struct of Thrift's compact protocol: fields 2 and 3 are its size without and with compression.
"""

from __future__ import annotations

from typing import Any, BinaryIO

HEADER_BYTES = 1 << 16  # of a header; statistics of long values make it long
MOST_PAGES = 1_000_000  # of a column in a row group
LEVELS = 16

_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, (9, 10), 12


def largest_page(file: BinaryIO, chunk: Any) -> int:
    """The largest size, in bytes, that a page of a column claims; pages with headers that nobody can read end it.

    Args:
        chunk: the metadata of one column of a row group, as pyarrow has it.
    """
    starts = [chunk.data_page_offset, *([chunk.dictionary_page_offset] if chunk.has_dictionary_page else [])]
    place, largest = min(starts), 0
    end = place + chunk.total_compressed_size
    for _ in range(MOST_PAGES):
        if not 0 <= place < end:
            break
        file.seek(place)
        try:
            fields, length = _struct(file.read(HEADER_BYTES), 0)
            size, packed = int(fields[2]), int(fields[3])
        except (IndexError, KeyError, ValueError):
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


def _struct(data: bytes, at: int, level: int = 0) -> tuple[dict[int, int], int]:
    """The whole numbers of a struct by field, and where it ends."""
    found: dict[int, int] = {}
    field = 0
    while data[at]:
        step, kind = data[at] >> 4, data[at] & 15
        at += 1
        if step:
            field += step
        else:
            number, at = _varint(data, at)
            field = (number >> 1) ^ -(number & 1)
        if kind in _INTEGERS:
            number, at = _varint(data, at)
            found[field] = (number >> 1) ^ -(number & 1)
        else:
            at = _skip(data, at, kind, level)
    return found, at + 1


def _skip(data: bytes, at: int, kind: int, level: int) -> int:
    """Where a value ends."""
    if level == LEVELS:
        raise ValueError("nested too deeply")
    if kind in _BOOLEANS:
        return at
    if kind == _BYTE:
        return at + 1
    if kind in _INTEGERS:
        return _varint(data, at)[1]
    if kind == _DOUBLE:
        return at + 8
    if kind == _BINARY:
        length, at = _varint(data, at)
        return at + length
    if kind in _LISTS:
        count, inner = data[at] >> 4, data[at] & 15
        at += 1
        if count == 15:
            count, at = _varint(data, at)
        for _ in range(min(count, len(data))):
            at = _skip(data, at, inner, level + 1)
        return at
    if kind == _STRUCT:
        return _struct(data, at, level + 1)[1]
    raise ValueError(f"no type {kind} in a page's header")
