"""Arrays of numbers in MATLAB files of version 5, such as SVHN's; nothing else of the format is read.

A file is 128 bytes and then elements, each a type, a size and so many bytes. A matrix is an element of elements: flags,
dimensions, name, numbers. It may lie inside a compressed element.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ocssl.common.files import read_file

MAX_BYTES = 1 << 30  # of a file, and of what it unpacks to
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATRIX, COMPRESSED = 14, 15


def read_matrices(path: Path, names: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    """The matrices of these names; a file that lacks one, or that is none, is a ``ValueError``."""
    content = memoryview(read_file(path, MAX_BYTES))
    if len(content) < 128 or bytes(content[126:128]) != b"IM" or content[125] != 1:
        raise ValueError("it is no MATLAB file of version 5")
    found = {}
    for kind, data in _elements(content[128:]):
        if kind == COMPRESSED:
            (kind, data), *_ = _elements(memoryview(_unpacked(data)))
        if kind == MATRIX:
            name, matrix = _matrix(data)
            if name in names:
                found[name] = matrix
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"it has no matrix '{missing[0]}'")
    return found


def _unpacked(data: memoryview) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(data, MAX_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacker.eof:
        raise ValueError("a compressed matrix is truncated or too large")
    return content


def _elements(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Type and content of each element; those after a tag that does not fit are an error."""
    at = 0
    while at < len(data):
        if at + 8 > len(data):
            raise ValueError("it ends inside a tag")
        kind, size = struct.unpack_from("<II", data, at)
        at += 8
        if kind >> 16:  # a small one: its size is in the upper half of its type, and its content ends the tag
            kind, size = kind & 0xFFFF, kind >> 16
            content = data[at - 4 : at]
        else:
            content = data[at:]
            at += size if kind == COMPRESSED else size + -size % 8
        if size > len(content):
            raise ValueError("an element is longer than the file")
        yield kind, content[:size]


def _matrix(data: memoryview) -> tuple[str, npt.NDArray[Any]]:
    parts = list(_elements(data))
    if len(parts) < 4 or parts[1][0] != 5 or len(parts[1][1]) % 4 or parts[3][0] not in NUMBERS:
        return "", np.empty(0)  # a text, a cell, a struct: no numbers
    name = bytes(parts[2][1]).decode("ascii", "replace")
    shape = struct.unpack(f"<{len(parts[1][1]) // 4}i", parts[1][1])
    dtype = np.dtype(f"<{NUMBERS[parts[3][0]]}")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(parts[3][1]):
        raise ValueError(f"matrix '{name}' has other dimensions than numbers")
    return name, np.frombuffer(parts[3][1], dtype).reshape(shape, order="F")
