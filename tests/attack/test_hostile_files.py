"""Pipes, devices, links to themselves and folders where files are expected; and errors of the system."""

from __future__ import annotations

import errno
import itertools
import json
import os
import pickle
from pathlib import Path

import pytest
from hostile import LEARN, NO_FILES, Make, fifo, images, loop, sampled

from ocssl.data.formats.cifar import CIFAR100, CifarReader
from ocssl.errors import DataError

COMMANDS: dict[str, tuple[str, str]] = {
    "embed a tar": ("x.tar", "embed STATE x.tar -o f.parquet"),
    "learn from a parquet file": ("x.parquet", f"learn x.parquet --state s {LEARN}"),
    "prepare a tar": ("x.tar.gz", "data prepare tar:x.tar.gz --split train"),
    "run a YAML file": ("x.yaml", "run --config x.yaml"),
    "sweep a YAML file": ("x.yaml", "sweep x.yaml"),
    "embed a parquet file": ("x.parquet", "embed STATE x.parquet -o f.parquet"),
    "learn from a tar": ("x.tar", f"learn x.tar --state s {LEARN}"),
    "prepare a parquet file": ("x.parquet", "data prepare parquet:x.parquet --split train"),
    "embed a video": ("x.mp4", "embed STATE x.mp4 -o f.parquet"),
    "learn from a video": ("x.mp4", f"learn x.mp4 --state s {LEARN}"),
    "run a paper with tuned values": ("x.yaml", "paper run high-simsiam --tuned x.yaml"),
}
REFUSED = {
    f"{command}, {kind}": (*COMMANDS[command], NO_FILES[kind])
    for command, kind in itertools.product(COMMANDS, NO_FILES)
    if kind != "folder" or "yaml" in COMMANDS[command][0]  # else it is a folder of images
}


@pytest.mark.parametrize("case", sampled(REFUSED))
def test_what_is_no_file_is_refused_at_once(make: Make, state: Path, tmp_path: Path, case) -> None:
    name, words, put = case
    put(tmp_path / name)
    make(tmp_path)(*words.replace("STATE", str(state)).split()).refused()


INFO = {
    f"{name}, {kind}": (name, NO_FILES[kind]) for name in ("x.parquet", "x.tar") for kind in ("fifo", "device", "loop")
}


@pytest.mark.parametrize("case", sampled(INFO, 6))
def test_what_is_no_file_is_told_of(make: Make, tmp_path: Path, case) -> None:
    name, put = case
    put(tmp_path / name)
    make(tmp_path)("data", "info", f"{name[2:]}:{name}").went_well("broken")


CACHED = {
    f"{name}, {kind}": (name, NO_FILES[kind])
    for name, kind in itertools.product(("index.json", "labels.npy"), NO_FILES)
    if (name, kind) != ("index.json", "loop")  # counts as no index: the set is made again
}


@pytest.mark.parametrize("case", sampled(CACHED, 5))
def test_a_cached_file_that_is_none_is_damage(make: Make, tmp_path: Path, case) -> None:
    name, put = case
    ocssl, words = make(tmp_path), ("data", "prepare", f"folder:{tmp_path / 'set'}", "--split", "train")
    images(tmp_path / "set" / "train" / "a", 2)
    ocssl(*words).went_well()
    [index] = (tmp_path / "cache").glob("*/index.json")
    index.with_name(name).unlink()
    put(index.with_name(name))
    ocssl(*words).refused("is damaged; delete it and prepare it again")


def test_a_cached_set_without_its_index_is_made_again(make: Make, tmp_path: Path) -> None:
    ocssl, words = make(tmp_path), ("data", "prepare", f"folder:{tmp_path / 'set'}", "--split", "train")
    images(tmp_path / "set" / "train" / "a", 2)
    ocssl(*words).went_well("2 images")
    [index] = (tmp_path / "cache").glob("*/index.json")
    index.unlink()
    again = ocssl(*words)
    again.went_well("2 images")
    assert "it is made again" in again.err
    aside = index.parent.with_name(f"{index.parent.name}.broken-1")
    assert sorted(path.name for path in aside.iterdir()) == ["images.u8", "labels.npy"]
    quiet = ocssl(*words)
    quiet.went_well("2 images")
    assert quiet.err == ""


@pytest.mark.parametrize("put", [fifo, loop])
def test_a_pipe_below_the_data_root_does_not_stop_the_list(make: Make, tmp_path: Path, put) -> None:
    (tmp_path / "root" / "cifar100").mkdir(parents=True)
    put(tmp_path / "root" / "cifar100" / "train-0.parquet")
    make(tmp_path)("data", "list", "--data-root", tmp_path / "root").went_well("cifar100", "broken")


def test_a_pipe_in_place_of_a_cifar_batch_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta").write_bytes(pickle.dumps({"fine_label_names": ["a"]}, 2))
    fifo(tmp_path / "train")
    with pytest.raises(DataError, match="not a regular file"):
        list(CifarReader(tmp_path, CIFAR100, "train").items())


@pytest.mark.parametrize("words", ["embed STATE NAME -o f.parquet", "learn NAME --state s", "data info folder:NAME"])
def test_a_name_that_no_file_system_takes_is_one_sentence(make: Make, state: Path, tmp_path: Path, words) -> None:
    given = words.replace("STATE", str(state)).replace("NAME", "x" * 5000).split()
    ended = make(tmp_path)(*given)
    if given[0] == "data":
        ended.went_well("broken", "File name too long")
    else:
        ended.refused(f"'{'x' * 40}…' cannot be a path: File name too long")


# Errors of the system -------------------------------------------------------------------------------------------------

FAULT = """
import ocssl.imaging as imaging
real = imaging.read_file

def read_file(path, limit):
    if path.name in ("003.png", "007.png"):
        raise {error}
    return real(path, limit)

imaging.read_file = read_file
"""
CODES = ("EIO", "EMFILE", "ENFILE", "EACCES", "ESTALE", "ENOMEM", "ETIMEDOUT")
FAULTS = {code: f"OSError({getattr(errno, code)}, {os.strerror(getattr(errno, code))!r})" for code in CODES}
FAULTS["MemoryError"] = "MemoryError()"


@pytest.mark.parametrize("error", sampled(FAULTS))
def test_prepare_stops_at_an_error_of_the_system_and_caches_no_gap(make: Make, tmp_path: Path, error) -> None:
    images(tmp_path / "imgs")
    ocssl = make(tmp_path)
    words = ("data", "prepare", f"folder:{tmp_path / 'imgs'}", "--split", "train", "--on-bad-image", "skip")
    ocssl(*words, fault=FAULT.format(error=error)).refused("003.png could not be")
    ocssl(*words).went_well("20 images of 16×16\n")


@pytest.mark.parametrize("error", sampled(FAULTS))
def test_embed_stops_at_an_error_of_the_system_and_writes_no_gap(make: Make, state: Path, tmp_path: Path, error):
    ocssl, words = make(tmp_path), ("embed", state, images(tmp_path / "imgs"), "-o", tmp_path / "f.parquet", "-q")
    ocssl(*words, fault=FAULT.format(error=error)).refused("003.png could not be")
    assert not (tmp_path / "f.parquet").exists()
    ocssl(*words).went_well("20 images")


@pytest.mark.parametrize("error", sampled(FAULTS))
def test_learn_leaves_the_file_for_the_next_look(make: Make, tmp_path: Path, error) -> None:
    ocssl, words = make(tmp_path), ("learn", images(tmp_path / "imgs"), "--state", tmp_path / "s", *LEARN.split())
    first = ocssl(*words, fault=FAULT.format(error=error))
    first.went_well("learned from 18 images")
    assert first.err.count("it was not learned from and waits") == 2
    assert "refused" not in first.err
    ocssl(*words).went_well("learned from 20 images")
    assert all(json.loads(line)["refused"] == 0 for line in (tmp_path / "s" / "metrics.jsonl").read_text().splitlines())
