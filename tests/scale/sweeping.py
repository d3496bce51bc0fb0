"""The real command on a sweep that takes seconds, an engine that only pretends, and ways to disturb both."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import yaml

from helpers import command
from ocssl.engines import Engine, Job, JobResult
from ocssl.sweeps.driver import read_started, run_sweeps
from ocssl.sweeps.log import TrialLog
from ocssl.sweeps.plan import Sweep

SMALL: dict[str, object] = {
    "samples_per_class": 10,
    "image_size": 8,
    "checkpoint_minutes": 0,
    "checkpoint_samples": 40,
    "probe": {"max_epochs": 8},
    "device": "cpu",
}
"""What makes the shipped sweep over shapes quick, with a checkpoint every fifth step."""
SHAPES: dict[str, object] = SMALL | {
    "dataset": "shapes",
    "backbone": "convnet-w4",
    "hidden_dim": 16,
    "output_dim": 32,
    "stream_batch": 8,
    "batch": 16,
    "passes": 1,
    "memory_size": 24,
    "knn": False,
    "references": False,
}
"""A run of its own."""
OPTIONS = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]


ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "120",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ADDRESS": "127.0.0.1:1",  # nothing is there: without --address a cluster must be started
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # a secret that only these tests' clusters know
}
"""One thread for each run, whatever runs it."""
wait_for = partial(command.wait_for, seconds=300.0)


def run_sweep(
    sweep: Sweep,
    folder: Path,
    engine: Engine,
    info: Callable[[str], None] = print,
    *,
    stop_at: float = float("inf"),
) -> TrialLog:
    """Begin a sweep, or go on with it, and complete it."""
    return run_sweeps({folder: sweep}, engine, info, stop_at=stop_at)[folder]


def resume_sweep(
    folder: Path, engine: Engine, info: Callable[[str], None] = print, *, stop_at: float = float("inf")
) -> TrialLog:
    """Complete the sweep in a folder."""
    return run_sweep(read_started(folder), folder, engine, info, stop_at=stop_at)


def start(*arguments: object) -> subprocess.Popen[str]:
    """Begin ``ocssl sweep``."""
    words = [sys.executable, "-m", "ocssl", "sweep", *map(str, arguments)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


def sweep(*arguments: object) -> str:
    """A sweep from beginning to end; what it printed."""
    process = start(*arguments)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return out + err


def contents(folder: Path) -> dict[str, str]:
    """Everything about a sweep that must not depend on who ran it and what happened on the way."""
    return {name: (folder / name).read_text() for name in ("table.md", "trials.jsonl", "best.yaml", "sweep.yaml")}


def trials_of(folder: Path) -> list[dict[str, Any]]:
    """The trials that a sweep has logged."""
    return [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]


def write_sweep(place: Path, settings: dict[str, object], **keys: object) -> Path:
    """A sweep file over runs on shapes."""
    place.write_text(yaml.safe_dump({"settings": SHAPES | {"strategy": "cla-e"} | settings, **keys}))
    return place


def finished(folder: Path) -> int:
    """How many runs of a sweep are over."""
    return len(list(folder.glob("trials/*/*/result.json")))


def unfinished(folder: Path) -> set[Path]:
    """The runs that have a checkpoint and are not over."""
    begun = {place.parents[1] for place in folder.glob("trials/*/*/checkpoints/0*")}
    return {run for run in begun if not (run / "result.json").exists()}


def midway(folder: Path) -> bool:
    """Whether a run has a checkpoint and is not over."""
    return bool(unfinished(folder))


def kill_worker(root: int, title: str) -> None:
    """Kill a process below another one, known by its command line."""
    below = psutil.Process(root).children(recursive=True)
    worker = next(process for process in below if title in " ".join(process.cmdline()))
    worker.send_signal(signal.SIGKILL)


def leave_nothing(processes: list[psutil.Process]) -> None:
    """Wait until processes are gone whose driver is; only Ray's agents may be late and are sent away."""
    agents = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")

    def title(process: psutil.Process) -> str | None:
        """Its command line; None once it is over, which may happen between any two questions."""
        try:
            over = not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
            return None if over else " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            return None

    def left() -> list[str]:
        return [words for process in processes if (words := title(process)) is not None]

    wait_for(lambda: all(words.startswith(agents) for words in left()), seconds=120)
    for process in processes:
        if title(process) is not None:
            process.kill()


def gone_on(folder: Path) -> list[Path]:
    """The runs that went on from a checkpoint instead of beginning again."""
    logs = {log.parent: log.read_text() for log in folder.glob("trials/*/*/log.txt")}
    return [run for run, log in logs.items() if re.search("resumed at image [1-9]", log)]


class FakeEngine:
    """Ends jobs in a random order, several at once, without running anything.

    Args:
        score: of a job's settings.
        stop_after: the driver is killed after so many jobs.
    """

    def __init__(
        self, score: Callable[[Any], float], max_parallel: int = 1, order: int = 0, stop_after: int | None = None
    ) -> None:
        self.max_parallel = max_parallel
        self.names: list[str] = []
        self._score = score
        self._order = np.random.default_rng(order)
        self._left = -1 if stop_after is None else stop_after

    def run(self, jobs: Iterable[Job | None], total: int | None = None) -> Iterator[JobResult]:
        source, running = iter(jobs), list[Job]()
        while True:
            while len(running) < self.max_parallel and (job := next(source, None)) is not None:
                running.append(job)
            if not running:
                return
            if self._left == 0:
                raise KeyboardInterrupt
            self._left -= 1
            job = running.pop(int(self._order.integers(len(running))))
            self.names.append(job.name)
            found = self._score(job.config)
            result: Any = SimpleNamespace(final=found, avg=found, cbp_spent=600)
            yield JobResult(job, result, None, 1) if found else JobResult(job, None, "diverged", 1)
