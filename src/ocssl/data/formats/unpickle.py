"""Reading pickled arrays without running anything a pickle could contain.

A pickle is a program; loading one from the internet runs it. Here the only names a pickle may use are those that make
up a numpy array, and even these stand for inert records, from which arrays are then built under our own control.
"""

from __future__ import annotations

import pickle
import re
from io import BytesIO
from typing import Any

import numpy as np

from ocssl.errors import DataError


class _Record:
    """Remembers what the pickle says of an object."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _ArrayRecord(_Record):
    """Stands where the pickle has an array."""


class _DtypeRecord(_Record):
    """Stands where the pickle has a dtype."""


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _ArrayRecord,
    ("numpy._core.multiarray", "_reconstruct"): _ArrayRecord,
    ("numpy", "ndarray"): _ArrayRecord,
    ("numpy", "dtype"): _DtypeRecord,
    ("_codecs", "encode"): lambda text, encoding: text.encode("latin1"),  # Python 3's bytes in the old protocols
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise DataError(f"it asks for {module}.{name}, which is not part of an array") from None

    def persistent_load(self, identity: Any) -> Any:
        raise DataError("it refers to objects outside of itself")


def load_arrays(content: bytes, name: str) -> dict[str, Any]:
    """A pickled dictionary whose values are arrays, numbers, texts and lists of these; errors call it ``name``.

    >>> load_arrays(pickle.dumps({"data": np.arange(3, dtype=np.uint8)}, protocol=2), "batch")
    {'data': array([0, 1, 2], dtype=uint8)}
    >>> load_arrays(pickle.dumps({"data": print}), "batch")
    Traceback (most recent call last):
    ...
    ocssl.errors.DataError: refused to load batch: it asks for builtins.print, which is not part of an array
    """
    try:
        loaded = _ArraysOnly(BytesIO(content), encoding="latin1").load()  # text of Python 2, that is
        if not isinstance(loaded, dict):
            raise DataError("it is not a dictionary")
        built: dict[int, Any] = {}
        return {_text(key): _build(value, built) for key, value in loaded.items()}
    except DataError as error:
        raise DataError(f"refused to load {name}: {error}") from None
    # A broken pickle raises whatever its broken opcode runs into.
    except Exception as error:
        raise DataError(f"refused to load {name}: it is broken ({error})") from error


def _build(value: Any, built: dict[int, Any]) -> Any:
    """The value; a list that the pickle has in several places is built once."""
    if isinstance(value, _ArrayRecord):
        return _build_array(value)
    if isinstance(value, list):
        if id(value) not in built:
            built[id(value)] = [_build(element, built) for element in value]
        return built[id(value)]
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, (str, int, float)):
        return value
    raise DataError(f"it holds a {type(value).__name__}")


def _build_array(record: _ArrayRecord) -> Any:
    _, shape, dtype, column_major, buffer = record.state
    if isinstance(buffer, str):  # Python 2 wrote byte strings as text
        buffer = buffer.encode("latin1")
    if not isinstance(dtype, _DtypeRecord) or not isinstance(buffer, bytes):
        raise DataError("it holds an array of objects")
    code, byte_order = _text(dtype.arguments[0]), _text(dtype.state[1])
    if not re.fullmatch(r"[biuf][1248]", code) or byte_order not in ("<", ">", "|"):
        raise DataError(f"it holds an array of {code}")
    kind = np.dtype(byte_order + code)
    return np.frombuffer(buffer, dtype=kind).reshape(shape, order="F" if column_major else "C")


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)
