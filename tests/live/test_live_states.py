"""States of live learners: their files, settings that hold, states of earlier versions, and disks that are full."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from frames import TINY, assert_alike, by_hand, frame, learned, own_network, quiet_learn, write_frames

from ocssl import Learner
from ocssl.common.files import unseal
from ocssl.data.dataset import IMAGENET_MEAN, IMAGENET_STD
from ocssl.errors import CheckpointError, ConfigError, DataError
from ocssl.export.encoder import published_version
from ocssl.live import autotune as tuning
from ocssl.live import learn
from ocssl.live.state import StateFolder


def test_the_same_settings_go_on_whatever_kind_of_sequence_they_come_in(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    for mean in ([0.5, 0.5, 0.5], (0.5, 0.5, 0.5), np.full(3, 0.5)):
        assert quiet_learn(frames, tmp_path / "state", mean=mean, image_size=None).mean == (0.5, 0.5, 0.5)
    with pytest.raises(ConfigError, match="was begun with mean"):
        quiet_learn(frames, tmp_path / "state", mean=[0.5, 0.5, 0.4])


def test_the_home_folder_may_be_written_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(write_frames(tmp_path / "frames", range(6)))
    quiet_learn("~/frames", "~/robot")
    assert (tmp_path / "robot" / "encoder").is_dir()
    assert not Path("~").exists()


def test_what_others_put_into_a_state_does_not_keep_it_from_going_on(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    quiet_learn(frames, state)
    (state / "features.parquet").touch()
    (state / ".DS_Store").touch()
    assert quiet_learn(frames, state).seen == 4
    assert (state / "features.parquet").exists()


def test_the_files_of_a_state_are_those_that_the_documentation_names(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    quiet_learn(frames, state)
    names = {path.name for path in state.iterdir() if not path.name.startswith(".")}
    assert names == {"checkpoints", "encoder", "ledger.sqlite", "metrics.jsonl"}
    (saved,) = (state / "checkpoints").iterdir()
    assert {path.name for path in saved.iterdir()} == {"gate", "learner", "state.json"}
    place = {"noted": 4, "positions": {f"folder:{frames.resolve()}": 4}, "identities": {}}
    size = (state / "metrics.jsonl").stat().st_size
    assert unseal(json.loads((saved / "state.json").read_text())) == {"place": place, "metrics_bytes": size}
    rows = sqlite3.connect(state / "ledger.sqlite").execute("SELECT source, name, number, problem FROM arrivals")
    assert [*rows] == [(f"folder:{frames.resolve()}", f"{n:05d}.png", n + 1, None) for n in range(4)]


OF_VERSION_0_1 = {
    **TINY, "strategy": "cla-e", "method": None, "memory": None, "lr": 0.1, "omega": None, "tau": 0.999, "seed": 0,
    "augmentation": None, "variant": "clean", "options": None, "method_options": None, "memory_options": None,
    "joint_views": None, "sync_norm": True, "momentum": 0.9, "weight_decay": 1e-4, "stem": "auto", "precision": "auto",
    "execution": "auto", "mean": list(IMAGENET_MEAN), "std": list(IMAGENET_STD),
}  # fmt: skip


@pytest.mark.parametrize("own", [False, True])
def test_a_state_of_version_0_1_goes_on(tmp_path: Path, own: bool) -> None:
    frames, state = write_frames(tmp_path / "frames", range(10)), tmp_path / "state"
    backbone = {"backbone": own_network(0)} if own else {}
    then = {"lr": 0.1, "joint_views": True}  # the defaults of that version
    quiet_learn(frames, state, **backbone, **then)
    (index,) = state.glob("checkpoints/*/learner/learner.json")
    saved = json.loads(index.read_text())
    del saved["facts"]["config"], saved["checksum"]
    saved["facts"]["parameters"] = OF_VERSION_0_1 | ({"backbone": None} if own else {})
    index.write_text(json.dumps(saved))
    shutil.rmtree(index.parents[1] / "gate")
    write_frames(frames, range(10, 14))
    whole = Learner(
        mean=IMAGENET_MEAN, std=IMAGENET_STD, **{**TINY, **then, **({"backbone": own_network(0)} if own else {})}
    )
    for numbers in (range(10), range(10, 14)):
        whole.partial_fit(np.stack([frame(number) for number in numbers])).flush()
    assert_alike(quiet_learn(frames, state, **backbone), whole)


def test_metrics_that_were_taken_away_are_not_missed(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    quiet_learn(frames, state)
    (state / "metrics.jsonl").unlink()
    write_frames(frames, range(4, 8))
    assert_alike(quiet_learn(frames, state), by_hand(list(range(8))))
    assert (state / "metrics.jsonl").read_text().startswith('{"seen": 8,')


def test_a_state_whose_ledger_is_lost_is_not_taught_everything_again(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    quiet_learn(frames, state)
    (state / "ledger.sqlite").unlink()
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"ledger\.sqlite' is missing, .* of 4 images .* put back the one"):
            quiet_learn(frames, state)


def test_a_ledger_that_is_older_than_the_learner_is_refused(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    quiet_learn(frames, state)
    older = (state / "ledger.sqlite").read_bytes()
    write_frames(frames, range(4, 7))
    assert quiet_learn(frames, state).seen == 7
    newer = (state / "ledger.sqlite").read_bytes()
    (state / "ledger.sqlite").write_bytes(older)
    with pytest.raises(CheckpointError, match=r"ledger\.sqlite' knows 4 of 7 images that were learned from; put back"):
        quiet_learn(frames, state)
    (state / "ledger.sqlite").write_bytes(newer)
    assert quiet_learn(frames, state).seen == 7


def test_an_index_of_the_encoder_that_cannot_be_read_is_to_be_moved_away(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    quiet_learn(frames, state)
    (state / "encoder" / "encoder.json").write_text("")
    with pytest.raises(CheckpointError, match="exists and is not a saved encoder; move it away, and the same command"):
        quiet_learn(frames, state)
    (state / "encoder").rename(tmp_path / "elsewhere")
    quiet_learn(frames, state)
    assert published_version(state / "encoder") == 1


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1])
def test_times_that_never_come_are_refused(tmp_path: Path, seconds: float) -> None:
    for name in ("save_every", "report_every"):
        with pytest.raises(ConfigError, match=f"{name} must be a number of at least 0, not {seconds}"):
            quiet_learn(tmp_path / "frames", tmp_path / "state", **{name: seconds})
    assert not (tmp_path / "state").exists()


def test_a_folder_with_other_things_in_it_does_not_become_a_state(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    with pytest.raises(ConfigError, match="is not the state of a learner"):
        quiet_learn(frames, frames)


def test_checkpoints_that_may_not_be_read_are_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    quiet_learn(frames, state)
    checkpoints, real = state / "checkpoints", Path.iterdir

    def refuse(folder: Path) -> Iterator[Path]:
        if folder == checkpoints:
            raise PermissionError(13, "Permission denied", str(folder))
        return real(folder)

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(ConfigError, match=f"^cannot read '{checkpoints}': Permission denied$"):
        quiet_learn(frames, state)


@pytest.mark.parametrize("name", [".", "checkpoints", "encoder"])
def test_a_state_that_may_not_be_written_is_refused_before_anything_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    quiet_learn(frames, state)
    write_frames(frames, range(4, 8))
    locked, real = state / name, os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != locked and real(path, mode))
    monkeypatch.setattr(Learner, "partial_fit", None)
    with pytest.raises(
        ConfigError, match=f"^'{locked}' cannot be written; make it writable, or choose another --state$"
    ):
        quiet_learn(frames, state)


def test_a_failed_save_is_told_and_tried_again_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    frames = write_frames(tmp_path / "frames", range(24))
    real, calls = StateFolder.save, []

    def sometimes_full(self: StateFolder, *arguments: object) -> None:
        calls.append(1)
        if 2 <= len(calls) <= 4:
            raise CheckpointError("could not save: no space left on device")
        real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(StateFolder, "save", sometimes_full)
    learner = quiet_learn(frames, tmp_path / "state", save_every=0, report_every=100)
    assert sum(line.startswith("could not save: no space") for line in warnings) == 3
    assert_alike(learner, by_hand(list(range(24))))
    assert len(learned(tmp_path / "state", f"folder:{frames.resolve()}")) == 24


def test_a_disk_that_is_full_at_a_restart_keeps_nobody_from_learning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    quiet_learn(frames, tmp_path / "state")
    write_frames(frames, range(4, 8))
    real, calls = StateFolder.save, []

    def full_at_first(self: StateFolder, *arguments: object) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise CheckpointError("could not save: no space left on device")
        real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(StateFolder, "save", full_at_first)
    assert quiet_learn(frames, tmp_path / "state").seen == 8
    assert any(line.startswith("could not save: no space left on device; learning goes on") for line in warnings)
    assert_alike(quiet_learn(frames, tmp_path / "state"), by_hand(list(range(8))))


def test_a_last_save_that_fails_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    quiet_learn(frames, tmp_path / "state")
    write_frames(frames, range(4, 8))

    def full(self: StateFolder, *arguments: object) -> None:
        raise CheckpointError("no space left on device")

    with monkeypatch.context() as during:
        during.setattr(StateFolder, "save", full)
        with pytest.raises(
            CheckpointError, match="no space left on device; the save before is intact: correct this, and"
        ):
            quiet_learn(frames, tmp_path / "state")
    assert_alike(quiet_learn(frames, tmp_path / "state"), by_hand(list(range(8))))


def test_a_full_disk_is_told_with_the_room_that_a_save_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    real = Learner.save

    def full(*_: object) -> None:
        raise CheckpointError("could not save: No space left on device (os error 28)")

    monkeypatch.setattr(Learner, "save", full)
    with pytest.raises(CheckpointError, match=r"\(os error 28\); at least 1 MB are needed$"):
        quiet_learn(frames, state)
    monkeypatch.setattr(Learner, "save", real)
    quiet_learn(frames, state)
    needed = [p.stat().st_size for place in ("checkpoints", "encoder") for p in (state / place).rglob("*.*")]
    monkeypatch.setattr(Learner, "save", full)
    with pytest.raises(
        CheckpointError, match=rf"\(os error 28\); about {-(-sum(needed) // 10**6)} MB are needed; the save"
    ):
        quiet_learn(frames, state)
    assert "MB are needed; learning goes on and saving is tried again" in warnings[-1]


def test_a_start_with_nothing_new_publishes_no_new_version(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(8)), tmp_path / "state"
    quiet_learn(frames, state)
    before = [published_version(state / "encoder"), *sorted(path.name for path in (state / "encoder").iterdir())]
    (state / "encoder" / "draft-0badc0ffee00").mkdir()  # what a kill leaves while an encoder is published
    (state / "encoder" / "tensors-0badc0ffee00.safetensors").touch()
    quiet_learn(frames, state)
    assert [published_version(state / "encoder"), *sorted(p.name for p in (state / "encoder").iterdir())] == before
    (state / "encoder" / "encoder.json").unlink()
    quiet_learn(frames, state)
    assert published_version(state / "encoder") == 1  # what is missing is published again


def test_an_encoder_that_could_not_be_published_is_published_by_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames, state = write_frames(tmp_path / "frames", range(8)), tmp_path / "state"
    quiet_learn(frames, state)
    (state / "encoder" / "encoder.json").unlink()

    def full_disk(*_: object, **__: object) -> int:
        monkeypatch.undo()
        raise CheckpointError("the disk is full")

    monkeypatch.setattr("ocssl.live.state.publish", full_disk)
    quiet_learn(frames, state)
    assert published_version(state / "encoder") == 1


def test_a_reference_that_is_not_there_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "_seconds", lambda learner: pytest.fail("measured"))
    frames = write_frames(tmp_path / "frames", range(3))
    for reference, why in ((tmp_path / "nowhere", "there is nothing at"), (frames, "needs at least")):
        with pytest.raises(DataError, match=why):
            learn(frames, tmp_path / "state", info=lambda line: None, reference=str(reference), weights="none")
