"""Runs that die at any moment and go on as if nothing had happened."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from helpers.command import TINY, Command, Process, as_options, wait_for

OPTIONS = as_options(TINY | {"strategy": "cla-r", "samples_per_class": 12, "checkpoint_samples": 24})
WRITES_PER_CHECKPOINT = 6


def contents(run: Path) -> dict[str, object]:
    """Everything about a run that must not depend on interruptions."""
    result = json.loads((run / "result.json").read_text())
    for name in ("train_seconds", "eval_seconds", "seconds_at", "prepare_seconds", "started", "finished", "code"):
        del result[name]  # times, and the commit that a checkout happens to be at
    last = max((run / "checkpoints").glob("[0-9]*"))
    tensors = load_file(next((last / "learner").glob("*.safetensors")))
    return {
        "result": result,
        "metrics": (run / "metrics.jsonl").read_bytes(),
        "encoder": (run / "encoder.safetensors").read_bytes(),
        "learner": {name: array.tobytes() for name, array in tensors.items()},
        "facts": json.loads((last / "learner" / "learner.json").read_text())["facts"],
    }


@pytest.fixture(scope="module")
def finished(ocssl_module: Command) -> Path:
    """The run when nobody disturbs it."""
    code, _, err = ocssl_module("run", "--quiet", "-o", "undisturbed", *OPTIONS)
    assert code == 0, err
    return ocssl_module.folder / "undisturbed"


@pytest.fixture(scope="module")
def undisturbed(finished: Path) -> dict[str, object]:
    """What it ends with."""
    return contents(finished)


def go_on(ocssl: Command, run: Path, **conditions: object) -> Process:
    """Start the run, or go on with it if it got far enough to exist."""
    if (run / "config.yaml").exists():
        return ocssl.start("run", "--quiet", "--resume", run, **conditions)
    return ocssl.start("run", "--quiet", "-o", run, *OPTIONS, **conditions)


def test_kills_at_random_moments_change_no_bit(ocssl: Command, tmp_path: Path, undisturbed: dict[str, object]) -> None:
    run, chance = tmp_path / "killed", random.Random(0)
    kills = drafts = 0
    while kills < 8:
        if kills % 2:  # inside the writing of a checkpoint, at any of its stages
            process = go_on(ocssl, run, die_at_sync=chance.randint(1, 2 * WRITES_PER_CHECKPOINT))
        else:
            process = go_on(ocssl, run)
            time.sleep(chance.uniform(0, 0.6))
            process.kill()
        if process.wait() == -signal.SIGKILL:
            kills += 1
        else:  # it was faster than the kill: begin another run of the same kind
            assert contents(run) == undisturbed
            run = tmp_path / f"killed-{kills}"
        drafts += any(run.glob("checkpoints/draft-*"))
    process = go_on(ocssl, run)
    assert process.wait() == 0, process.err
    assert contents(run) == undisturbed
    assert drafts >= 2  # so many kills fell into the writing of a checkpoint
    assert not list(run.glob("checkpoints/draft-*"))


def test_a_run_asked_to_stop_saves_and_says_how_to_go_on(
    ocssl: Command, tmp_path: Path, undisturbed: dict[str, object]
) -> None:
    run = tmp_path / "stopped"
    for number, checkpoint in ((signal.SIGTERM, "000002"), (signal.SIGINT, "000004")):
        process = go_on(ocssl, run)
        wait_for(lambda checkpoint=checkpoint: (run / "checkpoints" / checkpoint).exists())
        process.kill(number)
        assert process.wait() == 128 + number
        assert f"ocssl run --resume {run}" in process.err
        assert len(process.err.splitlines()) == 1
    code, _, err = ocssl("run", "--quiet", "--resume", run)
    assert code == 0, err
    assert contents(run) == undisturbed


def test_a_disk_that_fills_up_stops_the_run_and_spares_what_was_saved(
    ocssl: Command, tmp_path: Path, undisturbed: dict[str, object]
) -> None:
    run = tmp_path / "full"
    process = ocssl.start("run", "--quiet", "-o", run, *OPTIONS)
    wait_for(lambda: (run / "checkpoints" / "000002").exists())
    process.kill()
    process.wait()
    before = sorted((run / "checkpoints").glob("[0-9]*"))[-1]
    code, _, err = ocssl("run", "--quiet", "--resume", run, largest_file=20_000)
    assert code == 2
    assert len(err.splitlines()) == 1
    assert "could not save" in err
    assert str(before) in err
    assert f"ocssl run --resume {run}" in err
    assert not list(run.glob("checkpoints/draft-*"))
    code, _, err = ocssl("run", "--quiet", "--resume", run)
    assert code == 0, err
    assert contents(run) == undisturbed


def test_a_run_that_cannot_be_saved_when_asked_to_stop_says_so_and_how_to_go_on(ocssl: Command, tmp_path: Path) -> None:
    run = tmp_path / "full"
    once = ("--samples-per-class", "900", "--set", "checkpoint_samples=1000000", "--set", "log_every=1")
    process = ocssl.start("run", "--quiet", "-o", run, *OPTIONS, *once, largest_file=20_000)
    wait_for(lambda: (run / "metrics.jsonl").exists())
    process.kill(signal.SIGINT)
    assert process.wait() == 2
    assert "could not save" in process.err
    assert f"there was no checkpoint yet; correct that, then: ocssl run --resume {run}" in process.err
    assert "could not save" in (run / "log.txt").read_text()


def test_a_finished_run_is_not_run_again(ocssl: Command, finished: Path, undisturbed: dict[str, object]) -> None:
    code, out, err = ocssl("run", "--resume", finished)
    assert (code, "finished already" in err) == (0, True)
    assert f"{json.loads((finished / 'result.json').read_text())['final']:.2f}" in out
    assert contents(finished) == undisturbed
