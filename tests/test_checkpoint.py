"""Saved states: exact, atomic, and refused with the culprit when they are broken, foreign or dangerous."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ocssl
from ocssl import checkpoint
from ocssl.common import files
from ocssl.errors import CheckpointError

TENSORS = {
    "weights": torch.randn(40, 30, generator=torch.Generator().manual_seed(0)),
    "images": torch.arange(256, dtype=torch.uint8).view(4, 64),
    "count": torch.tensor(7),
    "flags": torch.tensor([True, False]),
    "none": torch.empty(0, 3),
}
FACTS = {"step": 3, "name": "ä", "nested": {"share": 0.1, "none": None}, "list": [1, 2]}


@pytest.fixture
def saved(tmp_path) -> Path:
    folder = tmp_path / "state"
    checkpoint.write(folder, "learner", FACTS, TENSORS)
    return folder


def tensors_file(folder: Path) -> Path:
    (file,) = folder.glob("*.safetensors")
    return file


def assert_holds(folder: Path, facts=FACTS, tensors=TENSORS) -> None:
    read_facts, read_tensors = checkpoint.read(folder, "learner")
    assert read_facts == facts
    assert read_tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read_tensors[name].dtype == tensor.dtype
        assert torch.equal(read_tensors[name], tensor)


def refused(folder: Path, *words: str, kind: str = "learner") -> None:
    with pytest.raises(CheckpointError) as caught:
        checkpoint.read(folder, kind)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    for word in words:
        assert word in message


def rewrite(folder: Path, **changes) -> None:
    index = folder / "learner.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), **changes}))


# ------------------------------------------------------------------------------------------------------- round trips


def test_what_was_written_is_read_back_exactly(saved):
    assert_holds(saved)


def test_tensors_that_share_memory_or_are_views_are_saved_too(tmp_path):
    whole = torch.arange(12.0).view(3, 4)
    tensors = {"whole": whole, "again": whole, "transposed": whole.T, "row": whole[1]}
    checkpoint.write(tmp_path / "state", "learner", {}, tensors)
    assert_holds(tmp_path / "state", {}, tensors)


def test_a_later_save_replaces_the_earlier_one_and_leaves_no_litter(saved):
    newer = {"weights": torch.ones(2)}
    checkpoint.write(saved, "learner", {"step": 4}, newer)
    assert_holds(saved, {"step": 4}, newer)
    assert {file.name for file in saved.iterdir()} == {"learner.json", tensors_file(saved).name}


def test_a_part_of_a_state_is_read_by_its_prefix():
    tensors = {"encoder.w": torch.ones(1), "encoder.bn.b": torch.zeros(1), "encoders": torch.ones(2)}
    assert checkpoint.sub_state(tensors, "encoder.") == {"w": tensors["encoder.w"], "bn.b": tensors["encoder.bn.b"]}


def test_missing_folders_are_made(tmp_path):
    checkpoint.write(tmp_path / "a" / "b", "learner", FACTS, TENSORS)
    assert_holds(tmp_path / "a" / "b")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_others_may_read_what_they_may_read_of_any_new_file(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        checkpoint.write(tmp_path / "state", "learner", FACTS, TENSORS)
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "state").iterdir()} == {mode}


# ------------------------------------------------------------------------------------------------- several writers


@pytest.mark.parametrize("syncs", [1, 2, 3])
def test_a_second_writer_waits_for_the_first_and_the_state_is_whole(tmp_path, monkeypatch, syncs):
    """The second comes while the first has its tensors on disk, its draft, or its index."""
    folder, newer, done = tmp_path / "state", {"weights": torch.ones(2)}, []
    second = threading.Thread(target=checkpoint.write, args=(folder, "learner", {"step": 4}, newer))
    sync = checkpoint.sync

    def sync_and_let_the_second_in(path):
        sync(path)
        done.append(path)
        if len(done) == syncs:
            second.start()
            second.join(0.3)

    for module in (checkpoint, files):
        monkeypatch.setattr(module, "sync", sync_and_let_the_second_in)
    checkpoint.write(folder, "learner", FACTS, TENSORS)
    assert done[:3] == [*done[:2], folder]
    second.join()
    assert_holds(folder, {"step": 4}, newer)
    assert len([*folder.iterdir()]) == 2


# ------------------------------------------------------------------------------------------------ broken and foreign


def test_a_place_with_nothing_there_is_refused(tmp_path):
    refused(tmp_path / "nowhere", "is not a saved learner", "learner.json is missing")


def test_a_file_instead_of_a_folder_is_refused_for_reading_and_writing(tmp_path):
    file = tmp_path / "model.pt"
    file.write_bytes(b"PK\x03\x04 weights")
    refused(file, "cannot be read")
    with pytest.raises(CheckpointError, match="exists and is not a saved learner; choose another place"):
        checkpoint.write(file, "learner", FACTS, TENSORS)
    assert file.read_bytes() == b"PK\x03\x04 weights"


def test_a_folder_with_other_things_is_never_written_into(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(CheckpointError, match="exists and is not a saved learner; choose another place"):
        checkpoint.write(tmp_path, "learner", FACTS, TENSORS)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_state_of_another_kind_is_refused(saved):
    refused(saved, "is not a saved run", "run.json is missing", kind="run")
    (saved / "learner.json").rename(saved / "run.json")
    refused(saved, "was not written by ocssl as a run", kind="run")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_truncated_tensors_are_refused_with_the_bytes_that_are_left(saved, share):
    file = tensors_file(saved)
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    refused(saved, file.name, "truncated", f"{int(share * len(content))} of {len(content)} bytes")


@pytest.mark.parametrize("place", [0, 9, -1])
def test_a_single_flipped_byte_is_noticed(saved, place):
    file = tensors_file(saved)
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    refused(saved, file.name, "damaged", "checksum")


def test_missing_tensors_are_refused_by_the_name_of_their_file(saved):
    file = tensors_file(saved)
    file.unlink()
    refused(saved, f"{file.name} is missing")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "not json",
        "{",
        '{"format": "ocssl-learner"',
        "[]",
        "null",
        '"ocssl-learner"',
        "{}",
        '{"format": "another-tool", "version": 1}',
        '{"format": "ocssl-learner"}',
        '{"format": "ocssl-learner", "version": "one"}',
        '{"format": "ocssl-learner", "version": null}',
        '{"format": "ocssl-learner", "version": 1}',
        '{"format": "ocssl-learner", "version": 1, "tensors": []}',
        '{"format": "ocssl-learner", "version": 1, "tensors": {"file": 3}}',
        "[" * 100_000,
    ],
    ids=lambda content: content[:60] or "empty",
)
def test_an_index_that_is_no_index_is_refused(saved, content):
    (saved / "learner.json").write_text(content)
    refused(saved)


def test_a_truncated_index_is_refused_wherever_it_breaks_off(saved):
    index = saved / "learner.json"
    content = index.read_bytes()
    for end in range(0, len(content), 7):
        index.write_bytes(content[:end])
        refused(saved)


@pytest.mark.parametrize("name", ["../../outside.safetensors", "/etc/passwd", "..", "", "nul\0byte"])
def test_an_index_cannot_point_outside_its_folder(saved, name):
    (saved.parent.parent / "outside.safetensors").write_bytes(tensors_file(saved).read_bytes())
    entry = json.loads((saved / "learner.json").read_text())["tensors"]
    rewrite(saved, tensors={**entry, "file": name})
    refused(saved)


def test_a_newer_version_is_refused_with_both_versions(saved):
    rewrite(saved, version=checkpoint.VERSION + 1)
    refused(saved, f"version {checkpoint.VERSION + 1}", f"({checkpoint.VERSION})", "upgrade")


# ---------------------------------------------------------------------------------------------- pickles in disguise


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_in_place_of_the_index_is_refused_and_not_run(saved, tmp_path, protocol):
    (saved / "learner.json").write_bytes(pickle.dumps(Trap(tmp_path / "sprung"), protocol))
    refused(saved, "cannot be read as a saved learner")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("form", ["pickle", "torch"])
def test_a_pickle_in_place_of_the_tensors_is_refused_and_not_run_even_with_the_right_checksum(saved, tmp_path, form):
    file, trap = tensors_file(saved), Trap(tmp_path / "sprung")
    file.write_bytes(pickle.dumps(trap)) if form == "pickle" else torch.save({"weights": trap}, file)
    entry = {"file": file.name, "bytes": file.stat().st_size, "sha256": checkpoint.sha256(file)}
    rewrite(saved, tensors=entry)
    refused(saved, "cannot be read as a saved learner")
    assert not (tmp_path / "sprung").exists()


def test_the_trap_would_have_sprung(tmp_path):
    """Without this the two tests before could pass for the wrong reason."""
    pickle.loads(pickle.dumps(Trap(tmp_path / "sprung")))
    assert (tmp_path / "sprung").exists()


# -------------------------------------------------------------------------------------------------- saves that fail


@pytest.mark.parametrize(
    "litter",
    [
        ["tensors-0badc0ffee00.safetensors"],
        ["tensors-0badc0ffee00.safetensors", ".learner.json.0badc0ffee00"],
        ["tensors-0badc0ffee00.safetensors", ".learner.json.0badc0ff"],  # of earlier versions
        ["tensors-0badc0ffee00.safetensors", "draft-0badc0ffee00.json"],
        ["draft-0badc0ffee00"],
    ],
)
def test_a_save_that_was_killed_leaves_the_earlier_state_and_the_next_one_cleans_up(saved, litter):
    """Killed after part of the tensors, or after the draft of the index: what such a death leaves lies around."""
    for name in litter:
        (saved / name).write_bytes(b"half of somethi")
    assert_holds(saved)
    checkpoint.write(saved, "learner", {"step": 4}, TENSORS)
    assert_holds(saved, {"step": 4})
    assert not any((saved / name).exists() for name in litter)


class KilledError(BaseException):
    """Nothing catches it, so nothing is tidied up."""


@pytest.fixture(scope="module")
def kill_after() -> Callable[[Path, int], None]:
    """Die at the n-th time that something below a folder is opened, renamed or removed. Hooks stay for good, so one."""
    armed: dict[str, Any] = {"folder": None, "left": 0}

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if armed["folder"] is None or event not in ("open", "os.rename", "os.remove", "os.mkdir"):
            return
        if str(arguments[0]).startswith(str(armed["folder"])):
            armed["left"] -= 1
            if armed["left"] < 0:
                armed["folder"] = None
                raise KilledError

    sys.addaudithook(hook)
    return lambda folder, steps: armed.update(folder=folder, left=steps)


def test_a_save_killed_at_any_step_leaves_the_earlier_state_or_the_new_one(saved, kill_after):
    newer, outcomes = {"weights": torch.ones(2)}, []
    for steps in itertools.count():
        checkpoint.write(saved, "learner", FACTS, TENSORS)
        kill_after(saved, steps)
        try:
            checkpoint.write(saved, "learner", {"step": 4}, newer)
        except KilledError:
            step = checkpoint.read(saved, "learner")[0]["step"]
            assert_holds(saved, *((FACTS, TENSORS) if step == 3 else ({"step": 4}, newer)))
            outcomes.append(step)
        else:
            break
    assert set(outcomes) == {3, 4}
    assert outcomes == sorted(outcomes)


def test_who_reads_the_index_during_a_save_reads_the_whole_earlier_one(saved):
    earlier = (saved / "learner.json").read_text()
    with (saved / "learner.json").open() as reader:
        checkpoint.write(saved, "learner", {"step": 4}, TENSORS)
        assert reader.read() == earlier


def test_a_first_save_that_was_killed_is_not_a_state_but_its_place_can_be_used(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "tensors-0badc0ffee00.safetensors").write_bytes(b"half of somethi")
    refused(folder, "is not a saved learner")
    checkpoint.write(folder, "learner", FACTS, TENSORS)
    assert_holds(folder)
    assert len([*folder.iterdir()]) == 2


def test_facts_that_json_cannot_hold_are_refused_and_leave_the_earlier_state(saved):
    with pytest.raises(CheckpointError, match="could not save"):
        checkpoint.write(saved, "learner", {"thing": object()}, {"weights": torch.ones(2)})
    assert_holds(saved)
    assert len([*saved.iterdir()]) == 2


@contextlib.contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """No file of this process can grow beyond some bytes: a real write error, without filling a disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("bytes_left", [0, 1, 100, 2_000, 4_900, 50_000, 100_000])
def test_when_writing_fails_at_any_byte_the_earlier_state_survives(saved, bytes_left):
    """Tensors of almost 5,000 bytes and an index of more than 100,000: either may be the one that fails."""
    before = {file.name for file in saved.iterdir()}
    facts, tensors = {"padding": "x" * 100_000}, {"weights": torch.zeros(40, 30)}
    with files_limited_to(bytes_left), pytest.raises(CheckpointError) as caught:
        checkpoint.write(saved, "learner", facts, tensors)
    assert str(caught.value).startswith(f"could not save to '{saved}': ")
    assert "the earlier state there is untouched" in str(caught.value)
    assert {file.name for file in saved.iterdir()} == before
    assert_holds(saved)
    checkpoint.write(saved, "learner", facts, tensors)
    assert_holds(saved, facts, tensors)
    assert 4_900 > tensors_file(saved).stat().st_size > 4_800


def test_a_first_save_that_fails_says_so_without_speaking_of_an_earlier_one(tmp_path):
    folder = tmp_path / "state"
    with files_limited_to(64), pytest.raises(CheckpointError, match="could not save to") as caught:
        checkpoint.write(folder, "learner", FACTS, TENSORS)
    assert "earlier" not in str(caught.value)
    checkpoint.write(folder, "learner", FACTS, TENSORS)
    assert_holds(folder)


def test_on_a_full_disk_the_earlier_state_survives(tmp_path):
    """The same on a real file system without room, where one may be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let us mount a small disk")
    try:
        checkpoint.write(disk / "state", "learner", FACTS, TENSORS)
        with pytest.raises(CheckpointError, match=r"could not save .*; the earlier state there is untouched"):
            checkpoint.write(disk / "state", "learner", {}, {"weights": torch.zeros(100_000)})
        assert_holds(disk / "state")
        assert len([*(disk / "state").iterdir()]) == 2
    finally:
        subprocess.run(["umount", disk], check=True)


# ----------------------------------------------------------------------------------------------- the learner's own


def small_learner() -> ocssl.Learner:
    return ocssl.Learner(
        strategy="cla-e", backbone="resnet18-w1", image_size=8, stream_batch=2, batch=4, passes=1, memory_size=4,
        hidden_dim=4, output_dim=4, device="cpu",
    )  # fmt: skip


def pictures(n: int) -> torch.Tensor:
    return torch.randint(256, (n, 3, 8, 8), generator=torch.Generator().manual_seed(n), dtype=torch.uint8)


def test_a_learner_whose_save_failed_leaves_one_that_loads_and_goes_on(tmp_path):
    learner = small_learner().partial_fit(pictures(7))
    learner.save(tmp_path / "state")
    features = learner.transform(pictures(3))
    learner.partial_fit(pictures(6))
    with files_limited_to(10_000), pytest.raises(CheckpointError, match="the earlier state there is untouched"):
        learner.save(tmp_path / "state")
    loaded = ocssl.Learner.load(tmp_path / "state")
    assert loaded.pending == 1
    assert (loaded.transform(pictures(3)) == features).all()
    loaded.partial_fit(pictures(1))
    assert loaded.seen == 8


def test_a_learner_refuses_facts_that_do_not_fit_it(tmp_path):
    small_learner().save(tmp_path / "state")
    facts, tensors = checkpoint.read(tmp_path / "state", "learner")
    del tensors["encoder.backbone.conv1.weight"]
    checkpoint.write(tmp_path / "less", "learner", facts, tensors)
    checkpoint.write(tmp_path / "odd", "learner", {"epoch": 3}, tensors)
    checkpoint.write(tmp_path / "misspelt", "learner", {**facts, "parameters": {"strategi": "er"}}, tensors)
    for name in ("less", "odd", "misspelt"):
        with pytest.raises(CheckpointError, match=name) as caught:
            ocssl.Learner.load(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_tensors_that_vanish_while_they_are_read_are_a_checkpoint_error(tmp_path, monkeypatch) -> None:
    checkpoint.write(tmp_path / "state", "learner", {}, {"w": torch.ones(2)})

    def gone(path):
        raise FileNotFoundError("No such file or directory")  # as safetensors raises it, without a file name

    monkeypatch.setattr(checkpoint, "load_file", gone)
    with pytest.raises(CheckpointError, match="its file of tensors is missing"):
        checkpoint.read(tmp_path / "state", "learner")


def test_a_state_that_is_replaced_while_it_is_read_is_read_anew(saved, monkeypatch) -> None:
    check, newer = checkpoint.sha256, {"weights": torch.zeros(2)}

    def replace_and_check(file: Path) -> str:
        monkeypatch.undo()
        checkpoint.write(saved, "learner", {"step": 4}, newer)
        return check(file)

    monkeypatch.setattr(checkpoint, "sha256", replace_and_check)
    assert_holds(saved, {"step": 4}, newer)
