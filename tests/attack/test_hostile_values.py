"""Values that claim a length, are of no type, or do not fit: one sentence each."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile import LEARN, Make, images, png, sampled

LISTS = ("lr", "omega", "tau", "passes", "batch", "memory_size", "hidden_dim", "output_dim")
ALIASES = "strategy: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{own} [{', '.join([f'*{before}'] * 9)}]\n"
    for name, before, own in zip(LISTS, "abcdefgh", "bcdefghi", strict=True)
)


YAML = {
    "date": ("lr: 2026-13-45", "line 1: '2026-13-45' is not a date"),
    "digits": (f"lr: {'9' * 5000}", "is not a whole number"),
    "hexadecimal digits": (f"lr: 0x{'f' * 5000}", "is not a whole number"),
    "binary": ("lr: 0b_", "'0b_' is not a whole number"),
    "hexadecimal": ("lr: 0x_", "'0x_' is not a whole number"),
    "code": ("lr: !!python/object/apply:os.system [touch ran]", "python/object/apply"),
    "int": ("\nlr: !!int x", "line 2: 'x' is not a whole number"),
    "float": ("lr: !!float x", "'x' is not a number"),
    "bool": ("lr: !!bool x", "'x' is not a boolean"),
    "timestamp": ("lr: !!timestamp x", "'x' is not a date"),
    "nested": ("[" * 3000, "nested too deeply"),
    "nested deeply": ("lr: " + "[" * 100_000, "nested too deeply"),
    "aliases": (ALIASES, "more than 50,000 values"),
    "alias of itself": ("lr: &a [*a]", "'a' contains itself"),
    "many values": ("seeds: [" + "1, " * 100_000 + "1]", "more than 50,000 values"),
    "long": ("# " + "x" * (5 << 20), "more than 4,194,304 bytes"),
    "a long value": (f"lr: [{'x, ' * 40_000} x]", "lr must be a number"),
}


@pytest.mark.parametrize(
    "command",
    [
        "run --config x.yaml",
        *(
            pytest.param(command, marks=pytest.mark.attack)
            for command in ("sweep x.yaml", "paper run high-simsiam --tuned x.yaml")
        ),
    ],
)
@pytest.mark.parametrize("case", sampled(YAML))
def test_a_hostile_yaml_file_is_one_sentence(make: Make, tmp_path: Path, case, command: str) -> None:
    text, words = case
    (tmp_path / "x.yaml").write_text(text)
    make(tmp_path)(*command.split()).refused(*([words] if command.startswith("run") or "lr must" not in words else []))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("case", sampled({name: case for name, case in YAML.items() if len(case[0]) < 10_000}, 5))
def test_a_hostile_value_after_set_is_one_sentence(make: Make, tmp_path: Path, case) -> None:
    text, words = case
    value = text.strip().removeprefix("lr: ")
    make(tmp_path)("run", "--dataset", "shapes", "--set", f"lr={value}").refused(words.partition(": ")[2] or words)


def _sweep(**given: object) -> str:
    settings = {"dataset": "shapes", "strategy": "cla-e"}
    return json.dumps({"settings": settings, "space": {"lr": [0.1]}, **given})


SWEEPS = {
    "a large grid": (_sweep(space={name: [*range(1, 61)] for name in LISTS}), "at most 100,000 runs"),
    "many trials": (_sweep(search="random", trials=10**12, space={"lr": {"low": 0, "high": 1}}), "at most 100,000"),
    "many seeds": (_sweep(seeds=[*range(40_000)], space={"lr": [0.1, 0.2, 0.3]}), "40,000 seeds"),
    "a grid beyond floats": (_sweep(space={f"x{n}": [*range(60)] for n in range(200)}), "more than 10**15"),
    "few whole numbers": (
        _sweep(search="random", trials=9, space={"passes": {"low": 1, "high": 2, "whole": True}}),
        "the space has 2 configurations",
    ),
    "names": (
        _sweep(search="random", trials=9, space={f"x{n}": [f"v{m}" for m in range(60)] for n in range(8)}),
        "more than 100,000 combinations of names",
    ),
}


@pytest.mark.parametrize("case", sampled(SWEEPS, 3))
def test_a_sweep_that_claims_a_length_is_refused(make: Make, tmp_path: Path, case) -> None:
    text, words = case
    (tmp_path / "x.yaml").write_text(text)
    make(tmp_path)("sweep", "x.yaml").refused(words)


OPTIONS = {
    "passes": (f"learn imgs --state s {LEARN} --passes 2147483648", "passes must be a whole number from 1 to 10,000"),
    "samples": ("data preview shapes -o p.png --samples 1000000000000", "samples must be from 1 to 1000"),
    "views": ("data preview shapes -o p.png --views 2147483648", "views must be from 1 to 1000"),
    "cells": ("data preview shapes -o p.png --views 1000 --samples 1000", "2,001,000 images"),
    "side": ("data preview shapes -o p.png --image-size 2147483648", "image_size must be at most 8192"),
    "large side": ("data preview shapes -o p.png --image-size 8192", "GB of memory"),
    "preview seed": (f"data preview shapes -o p.png --seed {10**30}", "below 2**63"),
    "prepare side": (f"data prepare folder:imgs --image-size {10**30}", "image_size must be at most 8192"),
    "batch and passes": (f"budget --batch {'9' * 400} --passes {'9' * 400}", "10**18"),
    "cbp": (f"budget --cbp {10**30}", "10**18"),
    "demo seed": (f"demo --quick --seed {10**30}", "seed must be"),
    "run passes": ("run --dataset shapes --passes 10001", "passes must be a whole number from 1 to 10,000"),
    "embed batch": (f"embed s imgs -o f.parquet --batch {2**63}", "batch must be at most 65536"),
}


@pytest.mark.parametrize("case", sampled(OPTIONS, 3))
def test_an_option_beyond_its_bounds_is_refused(make: Make, tmp_path: Path, case) -> None:
    words, said = case
    ocssl = make(tmp_path)
    images(tmp_path / "imgs")
    if words.startswith("embed"):
        ocssl("learn", "imgs", "--state", "s", *LEARN.split()).went_well()
    ocssl(*words.split()).refused(said)


def test_a_large_budget_is_computed_not_walked(make: Make, tmp_path: Path) -> None:
    make(tmp_path)("budget", "--cbp", 99_999_999_999_999_999).went_well("1111111111111")


# Data -----------------------------------------------------------------------------------------------------------------


def _tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def _parquet(path: Path, labels: list[int], kind: pa.DataType, names: object = None) -> None:
    table = pa.table({"image": pa.array([png()] * len(labels), pa.binary()), "label": pa.array(labels, kind)})
    features = {"info": {"features": {"label": {"names": names}}}}
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(features)} if names else {}), path)


LABELS = {
    "tar, 2**70": (lambda at: _tar(at / "x.tar", {"0.png": png(), "0.cls": str(2**70).encode()}), "64 bits"),
    "parquet, 2**64 - 1": (lambda at: _parquet(at / "x.parquet", [2**64 - 1], pa.uint64()), "64 bits"),
    "beyond the names": (
        lambda at: _parquet(at / "x.parquet", [0, 99], pa.int64(), ["a", "b"]),
        "the label 99 is beyond the 2 class names",
    ),
}


PREPARED = ("data prepare SET --split train", pytest.param("data preview SET -o p.png", marks=pytest.mark.attack))


@pytest.mark.parametrize("command", PREPARED)
@pytest.mark.parametrize("case", sampled(LABELS, 2))
def test_a_label_that_fits_nothing_is_refused_when_the_set_is_prepared(make: Make, tmp_path: Path, case, command):
    put, words = case
    put(tmp_path)
    [path] = tmp_path.iterdir()
    make(tmp_path)(*command.replace("SET", f"{path.suffix[1:]}:{path}").split()).refused(words)


@pytest.mark.parametrize(
    "command",
    ["data prepare tar:x.tar --split train", "embed STATE x.tar -o f.parquet -q", f"learn x.tar --state s {LEARN}"],
)
def test_a_label_of_many_digits_is_a_text(make: Make, state: Path, tmp_path: Path, command: str) -> None:
    _tar(tmp_path / "x.tar", {"0.png": png(), "0.cls": b"9" * 4000, "1.png": png(), "1.cls": b"9" * 5000})
    make(tmp_path)(*command.replace("STATE", str(state)).split()).went_well("2 images")


def _shared(levels: int) -> list[object]:
    value: list[object] = [0]
    for _ in range(levels):
        value = [value, value]
    return value


ROWS = np.zeros((2, 3072), np.uint8)
CIFAR = {
    "shared lists": ({"data": _shared(28), "fine_labels": [0]}, ["a", "b"], "does not hold CIFAR images"),
    "nan": ({"data": ROWS, "fine_labels": [0, float("nan")]}, ["a", "b"], "does not hold CIFAR images"),
    "lists": ({"data": ROWS, "fine_labels": [[1], [2]]}, ["a", "b"], "does not hold CIFAR images"),
    "meta": ({"data": ROWS, "fine_labels": [0, 1]}, 5, "meta in"),
    "beyond": ({"data": ROWS, "fine_labels": [0, 7]}, ["a", "b"], "the label 7 is beyond the 2 class names"),
    "2**70": ({"data": ROWS, "fine_labels": [0, 2**70]}, [], "64 bits"),
}


@pytest.mark.parametrize("case", sampled(CIFAR, 3))
def test_a_hostile_cifar_file_is_refused(make: Make, tmp_path: Path, case) -> None:
    content, names, words = case
    place = tmp_path / "root" / "cifar-100-python"
    place.mkdir(parents=True)
    for name, held in (("train", content), ("test", content), ("meta", {"fine_label_names": names})):
        (place / name).write_bytes(pickle.dumps(held, 2))
    make(tmp_path)("data", "prepare", "cifar100", "--split", "train", "--data-root", tmp_path / "root").refused(words)


def _index(**changes: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        index = folder / "index.json"
        index.write_text(json.dumps(json.loads(index.read_text()) | changes))

    return change


def _labels(header: str, content: bytes = b"\0" * 16) -> Callable[[Path], object]:
    text = header.encode().ljust(117) + b"\n"
    whole = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content
    return lambda folder: (folder / "labels.npy").write_bytes(whole)


HEADER = "{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}"
DAMAGE: dict[str, Callable[[Path], object]] = {
    "no chunks": _index(chunks=[]),
    **{
        f"{name} {value!r}": _index(**{name: value})
        for name in ("classes", "chunks", "skipped")
        for value in (None, 5, "x")
    },
    "short chunk": _index(chunks=[[2]]),
    "long skipped": _index(skipped=[[0, "a", "b", "c"]]),
    "texts for numbers": _index(chunks=[["2", "3"]]),
    "no count": _index(count=None),
    "no size": _index(image_size=0),
    "nested": lambda folder: (folder / "index.json").write_text("[" * 100_000),
    "labels without end": _labels(HEADER.format("<i8", 10**12)),
    "labels of text": _labels(HEADER.format("<U4", 2), b"\0" * 32),
    "labels of a pickle": _labels(HEADER.format("|O", 2)),
    "labels of no header": lambda folder: (folder / "labels.npy").write_bytes(b"\x93NUMPY\x01\x00\x05\x00((((("),
    "labels beyond the names": _labels(HEADER.format("<i8", 2), b"\x07" * 16),
    "few labels": _labels(HEADER.format("<i8", 2), b"\0" * 8),
}


@pytest.mark.parametrize("damage", sampled(DAMAGE))
def test_a_damaged_cache_is_named(make: Make, tmp_path: Path, damage) -> None:
    ocssl, place = make(tmp_path), f"folder:{tmp_path / 'set'}"
    images(tmp_path / "set" / "train" / "a", 2)
    ocssl("data", "prepare", place, "--split", "train").went_well("2 images")
    [index] = (tmp_path / "cache").glob("*/index.json")
    damage(index.parent)
    for words in (("prepare", place, "--split", "train"), ("preview", place, "-o", "p.png")):
        ocssl("data", *words).refused("is damaged; delete it and prepare it again")
