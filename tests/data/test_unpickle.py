"""The reader of official pickles builds arrays and nothing else."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
from pictures import write

from ocssl import data
from ocssl.data.formats.unpickle import load_arrays
from ocssl.errors import DataError


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL))
@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.uint8).reshape(3, 4),
        np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        np.arange(4, dtype=">f4"),
        np.array([True, False]),
    ],
    ids=["bytes", "column-major", "big-endian", "bool"],
)
def test_arrays_survive_in_every_protocol(array, protocol):
    loaded = load_arrays(pickle.dumps({"data": array, "labels": [1, 2], "name": "x"}, protocol), "batch")
    assert loaded["data"].dtype == array.dtype
    np.testing.assert_array_equal(loaded["data"], array)
    assert loaded["labels"] == [1, 2]
    assert loaded["name"] == "x"


def test_what_python_2_wrote_is_read():
    # {'data': numpy.array([1, 2, 250], 'uint8'), 'labels': [7]} as Python 2 pickles it: byte strings, old module names.
    written = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b"
        b"\x87Rq\x05(K\x01K\x03\x85cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff"
        b"\xff\xff\xffK\x00tb\x89U\x03\x01\x02\xfatbU\x06labelsq\x08]q\tK\x07au."
    )
    loaded = load_arrays(written, "batch")
    assert loaded["data"].tolist() == [1, 2, 250]
    assert loaded["labels"] == [7]


class Hostile:
    """Pickles into a call of a shell command."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_a_hostile_pickle_is_refused_before_it_can_act(tmp_path):
    trace = tmp_path / "trace"
    content = pickle.dumps({"data": Hostile(f"touch {trace}")}, 2)
    with pytest.raises(DataError, match=r"refused to load batch: it asks for (posix|nt|os)\.system"):
        load_arrays(content, "batch")
    assert not trace.exists()


def test_a_hostile_cifar_file_is_refused_by_name(tmp_path):
    trace = tmp_path / "trace"
    for name in ("train", "test", "meta"):
        write(tmp_path / "cifar-100-python" / name, pickle.dumps({"data": Hostile(f"touch {trace}")}, 2))
    with pytest.raises(DataError, match=r"refused to load train in .*cifar-100-python: it asks for"):
        data.load("cifar100", root=tmp_path)
    assert not trace.exists()


@pytest.mark.parametrize("function", [eval, exec, getattr, __import__, open, np.load, np.memmap, bytearray, complex])
def test_no_other_function_can_be_reached(function):
    with pytest.raises(DataError, match="which is not part of an array"):
        load_arrays(pickle.dumps({"data": function}), "batch")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pickle.dumps([1, 2]), "not a dictionary"),
        (pickle.dumps({"a": np.array([object, None])}), "which is not part of an array"),
        (pickle.dumps({"a": np.array([None])}), "array of objects"),
        (pickle.dumps({"a": np.array(["text"])}), "array of U4"),
        (pickle.dumps({"a": (1, 2)}), "it holds a tuple"),
        (b"\x80\x02Pabout\n.", "outside of itself|broken"),
        (pickle.dumps({"a": np.zeros(100)})[:-40], "broken"),
        (b"", "broken"),
        (b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R}X\x01\x00\x00\x00abs.", "broken|holds|dictionary"),
    ],
)
def test_anything_else_is_refused_with_a_reason(content, reason):
    with pytest.raises(DataError, match=f"refused to load batch: .*({reason})"):
        load_arrays(content, "batch")


def test_a_dtype_cannot_be_smuggled_in_as_text():
    forged = pickle.dumps({"a": np.arange(3)}, 2).replace(b"i8", b"O8")
    with pytest.raises(DataError, match="array of O8"):
        load_arrays(forged, "batch")
