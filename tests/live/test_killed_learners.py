"""Learners that die at any moment and go on as if nothing had happened."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from frames import TINY, seen_images, tiny_options, write_frames
from safetensors.numpy import load_file

from helpers.command import Command, Process, wait_for
from helpers.settings import tiny_flags
from ocssl.checks import small_learner, small_stream
from ocssl.export import publish
from ocssl.export.encoder import published_version
from ocssl.live.seen import SeenIndex
from ocssl.nn import ConvNet

COUNT = 122  # two more than whole minibatches
LARGE = ["--set", "stream_batch=8", "--set", "batch=16"]  # half as many steps
WRITES_PER_SAVE = 12  # attempts to bring something safely to disk: learner, gate, their place, encoder
LR = 20.0  # the gate finds that it is too large, and learning goes back


def contents(state: Path, frames: Path) -> dict[str, object]:
    """Everything that must not depend on interruptions."""
    (last,) = (state / "checkpoints").glob("[0-9]*")
    (weights,) = (state / "encoder").glob("*.safetensors")
    saved = json.loads((last / "state.json").read_text())
    with SeenIndex(state / "ledger.sqlite", saved["place"]["noted"]) as index:
        learned = [name for name, problem in seen_images(index, f"folder:{frames}") if problem is None]
    (learner,) = (last / "learner").glob("*.safetensors")
    (gate,) = (last / "gate").glob("*.safetensors")
    return {
        "learned": learned,
        "place": saved["place"],
        "encoder": {name: array.tobytes() for name, array in load_file(weights).items()},
        "learner": {name: array.tobytes() for name, array in load_file(learner).items()},
        "facts": json.loads((last / "learner" / "learner.json").read_text())["facts"],
        "gate": {name: array.tobytes() for name, array in load_file(gate).items()},
        "decisions": json.loads((last / "gate" / "gate.json").read_text())["facts"],
    }


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_frames(tmp_path_factory.mktemp("data") / "frames", range(COUNT)).resolve()


def saves(state: Path) -> int:
    """How often a learner has been saved."""
    return max((int(path.name) for path in (state / "checkpoints").glob("[0-9]*")), default=0)


def start(ocssl: Command, frames: Path, state: Path, **conditions: object) -> Process:
    options = ["--save-every", 0.05, "--report-every", 0.5, "--check-every", 16, "--lr", LR, *tiny_options(), *LARGE]
    return ocssl.start("learn", frames, "--state", state, *options, **conditions)


@pytest.fixture(scope="module")
def undisturbed(ocssl: Command, frames: Path) -> dict[str, object]:
    state = ocssl.folder / "undisturbed"
    process = start(ocssl, frames, state)
    assert process.wait() == 0, process.err
    found = contents(state, frames)
    assert found["learned"] == [f"{number:05d}.png" for number in range(COUNT)]
    assert found["facts"]["seen"] == COUNT  # type: ignore[index]
    assert found["decisions"]["halvings"] > 0  # type: ignore[index]
    assert "learning goes back to image" in process.err
    return found


def test_six_kills_at_random_moments_and_each_frame_is_learned_once_bit_for_bit(
    ocssl: Command, frames: Path, tmp_path: Path, undisturbed: dict[str, object]
) -> None:
    state, chance = tmp_path / "killed", random.Random(0)
    kills, rounds, version = 0, 1, 0
    while kills < 6:
        if kills % 2:  # inside a save, at any of its stages
            process = start(ocssl, frames, state, die_at_sync=chance.randint(1, 3 * WRITES_PER_SAVE))
        else:
            process = start(ocssl, frames, state)
            time.sleep(chance.uniform(0.1, 0.8))
            process.kill()
        if process.wait() == -signal.SIGKILL:
            kills += 1
            assert published_version(state / "encoder") >= version
            version = published_version(state / "encoder")
        else:  # it was faster than the kill: begin again
            assert contents(state, frames) == undisturbed
            rounds += 1
            state, version = tmp_path / f"killed-{rounds}", 0
    process = start(ocssl, frames, state)
    assert process.wait() == 0, process.err
    assert contents(state, frames) == undisturbed
    assert not [*state.rglob("draft-*"), *state.rglob("*-journal")]


def test_a_pretrained_start_is_killed_and_goes_on_bit_for_bit_without_its_source(
    ocssl: Command, tmp_path: Path
) -> None:
    frames = write_frames(tmp_path / "frames", range(104)).resolve()
    torch.save(ConvNet(ConvNet.Options(width=8)).state_dict(), file := tmp_path / "w.pth")
    size = ("--stream-batch", 8, "--batch", 16)
    source = (
        "--from",
        file,
        "--backbone",
        "convnet",
        "--image-size",
        8,
        "--set",
        "heads_first=5",
        *tiny_flags(),
        *size,
    )

    def learn(state: Path, *more: object, **conditions: object) -> int:
        options = ("--save-every", 0.01, "--check-every", 20, *more)
        return ocssl.start("learn", frames, "--state", state, *options, **conditions).wait()

    assert learn(tmp_path / "whole", *source) == 0
    wanted = contents(tmp_path / "whole", frames)
    assert wanted["facts"]["config"]["strategy"] == "adapt"  # type: ignore[index]
    assert wanted["decisions"]["quality"] is not None  # type: ignore[index]
    state = tmp_path / "killed"
    assert learn(state, *source, die_at_sync=3 * WRITES_PER_SAVE + 5) == -signal.SIGKILL
    file.unlink()
    for moment in (WRITES_PER_SAVE, 2 * WRITES_PER_SAVE + 7):
        assert learn(state, die_at_sync=moment) == -signal.SIGKILL
    assert learn(state) == 0
    assert contents(state, frames) == wanted


def test_a_taught_learner_goes_on_bit_for_bit_without_its_teacher(ocssl: Command, frames: Path, tmp_path: Path) -> None:
    teacher, moved = tmp_path / "shop", tmp_path / "elsewhere"
    publish(small_learner("er").partial_fit(small_stream(40)), teacher)
    settings = {name: value for name, value in TINY.items() if name not in ("strategy", "image_size")}
    parts = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    words = ["--save-every", 0.1, "--check-every", 20, "--lr", 5.0, *parts, *LARGE]
    whole = ocssl.start("learn", frames, "--state", tmp_path / "whole", "--taught-by", teacher, *words)
    assert whole.wait() == 0, whole.err
    killed = ocssl.start(
        "learn", frames, "--state", tmp_path / "killed", "--taught-by", teacher, *words, die_at_sync=30
    )
    assert killed.wait() == -signal.SIGKILL
    teacher.rename(moved)
    again = ocssl.start("learn", frames, "--state", tmp_path / "killed", *words)
    assert again.wait() == 0, again.err
    found = contents(tmp_path / "whole", frames)
    assert found["facts"]["config"]["strategy"] == "taught"  # type: ignore[index]
    assert contents(tmp_path / "killed", frames) == found


def test_a_request_to_stop_saves_and_a_full_disk_later_stops_no_learning_and_spares_what_was_saved(
    ocssl: Command, frames: Path, tmp_path: Path, undisturbed: dict[str, object]
) -> None:
    state = tmp_path / "full"
    process = start(ocssl, frames, state)
    wait_for(lambda: saves(state) > 2)
    process.kill(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    assert "stopped and saved" in process.err.splitlines()[-1]
    process = start(ocssl, frames, state, largest_file=10_000)
    assert process.wait() == 2
    *lines, last = process.err.splitlines()
    assert lines[0].startswith("going on after ")
    assert "learning goes on" in lines[1]
    assert f"{COUNT} images" in process.err
    assert last.startswith("ocssl: ")
    assert "Traceback" not in process.err
    process = start(ocssl, frames, state)
    assert process.wait() == 0, process.err
    assert contents(state, frames) == undisturbed


def test_a_second_learner_on_the_same_state_is_refused(ocssl: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    waiting = ocssl.start("learn", tmp_path / "empty", "--state", tmp_path / "state", "--follow")
    wait_for(lambda: (tmp_path / "state" / ".lock").exists())
    wait_for(lambda: (tmp_path / "state" / "ledger.sqlite").exists())
    time.sleep(0.2)
    code, _, err = ocssl("learn", tmp_path / "empty", "--state", tmp_path / "state", "--follow")
    assert code == 2
    assert err == f"ocssl: another process is working in '{tmp_path / 'state'}'; let it end, or name another folder\n"
    waiting.kill(signal.SIGTERM)
    assert waiting.wait() == 143
    assert "nothing was learned" in waiting.err


def test_a_followed_folder_is_learned_from_as_files_arrive(ocssl: Command, tmp_path: Path) -> None:
    frames, state = tmp_path / "frames", tmp_path / "state"
    frames.mkdir()
    process = ocssl.start(
        "learn",
        frames,
        "--state",
        state,
        "--follow",
        "--no-gate",
        "--save-every",
        0.05,
        "--report-every",
        0.1,
        *tiny_options(),
    )

    def seen() -> int:
        index = state / "encoder" / "encoder.json"
        return json.loads(index.read_text())["facts"]["seen"] if index.exists() else -1

    write_frames(frames, range(9))
    wait_for(lambda: seen() == 8)
    write_frames(frames, range(9, 16))
    wait_for(lambda: seen() == 16)
    process.kill(signal.SIGTERM)
    assert process.wait() == 143, process.err
    assert "16 images" in process.err
