"""Adaptive search: Optuna proposes, by itself or as the searcher of Ray Tune."""

from __future__ import annotations

import math
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from sweeping import (
    ENVIRONMENT,
    contents,
    finished,
    kill_worker,
    leave_nothing,
    midway,
    start,
    sweep,
    trials_of,
    wait_for,
    write_sweep,
)

from ocssl.common.signals import Interrupted
from ocssl.sweeps.driver import resume_sweep, start_sweep
from ocssl.sweeps.machines import Machines
from ocssl.sweeps.plan import parse_sweep, read_sweep
from ocssl.sweeps.search import Adaptive
from ocssl.sweeps.trials import Book, Run

pytestmark = pytest.mark.scale

SPACE = {"lr": {"low": 0.01, "high": 1.0, "scale": "log"}, "omega": [0.1, 1.0]}
QUIET = Machines(quiet=True)


def test_it_looks_where_it_found_something_and_learns_from_failures(tmp_path: Path) -> None:
    space = {"lr": {"low": 0.001, "high": 10.0, "scale": "log"}}
    searcher = Adaptive(parse_sweep({"search": "adaptive", "trials": 40, "space": space}), Book(tmp_path / "book"))
    away = []
    for trial in searcher.propose():
        distance = abs(math.log10(float(trial.values["lr"])))  # the best learning rate is 1; above 3 all is lost
        away.append(distance)
        lost = trial.values["lr"] > 3
        trial.runs[0] = Run(None, None, "diverged") if lost else Run(100 - 20 * distance, 1, None)
        searcher.learn(trial)
    assert len(away) == 40
    assert sum(away[-10:]) < 0.5 * sum(away[:10])


def test_an_interrupted_search_goes_on_as_it_would_have(tmp_path: Path) -> None:
    quick = {"experiences": 2, "checkpoint_samples": None}
    file = write_sweep(tmp_path / "a.yaml", quick, search="adaptive", trials=5, seeds=[0, 1], space=SPACE)
    plan = read_sweep(file)
    start_sweep(plan, tmp_path / "undisturbed", QUIET, lambda line: None)
    lines = []

    def interrupt(line: str) -> None:
        lines.append(line)
        if len(lines) == 5:  # after one of the two seeds of trial 3; the first trial was a draw, the others are learned
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="go on with: ocssl sweep --resume"):
        start_sweep(plan, tmp_path / "disturbed", QUIET, interrupt)
    resume_sweep(tmp_path / "disturbed", QUIET, lines.append)
    assert contents(tmp_path / "disturbed") == contents(tmp_path / "undisturbed")
    assert len(lines) == len(set(lines)) == 10


@pytest.fixture
def cluster() -> Iterator[tuple[int, str]]:
    """A running Ray cluster: its process and its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["start", "--head", "--block", "--port", port, "--num-cpus", 2, "--object-store-memory", 80 << 20]
    command = [str(Path(sys.executable).with_name("ray")), *map(str, words), "--include-dashboard=false"]
    head = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)
    assert head.stdout
    assert any("runtime started" in line for line in head.stdout)
    yield head.pid, f"127.0.0.1:{port}"
    below = psutil.Process(head.pid).children(recursive=True)
    head.terminate()
    head.communicate(timeout=60)
    leave_nothing(below)


def test_ray_tune_loses_and_repeats_no_trial_though_worker_and_driver_are_killed(
    tmp_path: Path, cluster: tuple[int, str]
) -> None:
    head, address = cluster
    file = write_sweep(tmp_path / "a.yaml", {}, search="adaptive", trials=3, space=SPACE)
    folder, engine = tmp_path / "sweep", ("--engine", "ray", "--address", address)
    driver = start(file, "-o", folder, *engine)
    wait_for(lambda: midway(folder))
    kill_worker(head, "ray::ImplicitFunc")
    wait_for(lambda: '"done"' in (folder / "trials.jsonl").read_text() and midway(folder))
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    before = trials_of(folder)
    sweep("--resume", folder, *engine)
    trials = trials_of(folder)
    assert [(trial["trial"], trial["state"]) for trial in trials] == [(number, "done") for number in (1, 2, 3)]
    assert [trial["values"] for trial in trials[: len(before)]] == [trial["values"] for trial in before]
    assert len(list(folder.glob("trials/*"))) == finished(folder) == 3
