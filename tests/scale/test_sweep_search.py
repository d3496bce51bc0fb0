"""Searches propose the same trials, whatever ends first and whenever the sweep is killed."""

from __future__ import annotations

import itertools
import math
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from sweeping import (
    ENVIRONMENT,
    FakeEngine,
    contents,
    kill_worker,
    leave_nothing,
    midway,
    resume_sweep,
    run_sweep,
    start,
    sweep,
    trials_of,
    wait_for,
    write_sweep,
)

from ocssl.common.signals import Interrupted
from ocssl.engines import make_engine
from ocssl.errors import ConfigError
from ocssl.sweeps.driver import run_sweeps
from ocssl.sweeps.log import TrialLog
from ocssl.sweeps.plan import Sweep, parse_sweep, read_sweep

scale = pytest.mark.scale

SPACE = {"lr": {"low": 0.01, "high": 1.0, "scale": "log"}, "omega": [0.1, 1.0]}
MIXED = {
    "strategy": ["er", "cla-e"],
    "lr": {"low": 0.001, "high": 10.0, "scale": "log"},
    "omega": {"low": 0.1, "high": 3.0},
    "passes": {"low": 1, "high": 3, "whole": True},
}
LISTS = {"strategy": ["er", "cla-e", "cla-r"], "omega": [0.1, 0.3, 1.0]}


def score(config: Mapping[str, Any]) -> float:
    """Best at lr 1; above 3 every run fails."""
    away = abs(math.log10(config.get("lr", 0.5)))
    return 0.0 if config.get("lr", 0.5) > 3 else 80 - 20 * away - config["seed"] + config.get("omega", 0.0)


def search(plan: Sweep, folder: Path, engine: FakeEngine) -> TrialLog | None:
    """Start or resume a sweep; None where its driver was killed."""
    try:
        if (folder / "sweep.yaml").exists():
            return resume_sweep(folder, engine, lambda line: None)
        return run_sweep(plan, folder, engine, lambda line: None)
    except Interrupted:
        return None


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "given",
    [
        {"search": "grid", "space": LISTS},
        {"search": "random", "space": MIXED, "trials": 5},
        pytest.param({"search": "tpe", "space": MIXED, "trials": 9, "seeds": [0, 4]}, marks=scale),
        pytest.param({"search": "tpe", "space": LISTS, "trials": 7}, marks=scale),
    ],
    ids=["grid", "random", "tpe", "tpe over lists"],
)
def test_a_search_killed_at_any_moment_ends_as_if_nothing_had_happened(
    given: dict[str, Any], workers: int, tmp_path: Path
) -> None:
    plan = parse_sweep(given)
    search(plan, tmp_path / "undisturbed", FakeEngine(score, workers))
    wanted = contents(tmp_path / "undisturbed")
    trials = trials_of(tmp_path / "undisturbed")
    assert len({str(trial["values"]) for trial in trials}) == len(trials) == (plan.trials or 7)
    assert all(("omega" in trial["values"]) != (trial["values"].get("strategy") == "er") for trial in trials)
    runs = len(trials) * len(plan.seeds)
    for stop in range(runs):
        folder, first = tmp_path / str(stop), FakeEngine(score, workers, order=stop, stop_after=stop)
        assert search(plan, folder, first) is None
        second = FakeEngine(score, workers, order=99)
        search(plan, folder, second)
        assert contents(folder) == wanted
        failed = sum(len(plan.seeds) for trial in trials if trial["state"] == "failed") if plan.search != "tpe" else 0
        assert runs <= len(first.names) + len(second.names) <= runs + failed


def test_sweeps_share_workers_and_end_as_they_would_alone(tmp_path: Path) -> None:
    plans = {name: parse_sweep({"space": {"lr": rates}}) for name, rates in (("a", [0.1, 0.2, 0.3]), ("b", [0.4, 5.0]))}
    for name, plan in plans.items():
        run_sweep(plan, tmp_path / "alone" / name, FakeEngine(score), lambda line: None)
    for stop in (None, 0, 1, 2, 3, 4):
        folders = {tmp_path / str(stop) / name: plan for name, plan in plans.items()}
        engine, lines = FakeEngine(score, 5, order=stop or 0, stop_after=stop), list[str]()
        if stop is None:
            logs = run_sweeps(folders, engine, lines.append)
            assert {path.name: len(log.trials) for path, log in logs.items()} == {"a": 3, "b": 2}
            assert "b, trial 2 (lr 5), seed 0: failed: diverged" in " ".join(lines)
        else:
            with pytest.raises(Interrupted, match=r"--resume \S+/a; ocssl sweep --resume \S+/b$"):
                run_sweeps(folders, engine, lines.append)
            run_sweeps(folders, FakeEngine(score, 2, order=99), lines.append)
        for name in plans:
            assert contents(tmp_path / str(stop) / name) == contents(tmp_path / "alone" / name)


def test_sweeps_in_folders_of_one_name_do_not_take_each_others_results(tmp_path: Path) -> None:
    plans = {tmp_path / name / "er": parse_sweep({"space": {"lr": [lr]}}) for name, lr in (("a", 0.1), ("b", 0.4))}
    lines: list[str] = []
    logs = run_sweeps(plans, FakeEngine(score, 2), lines.append)
    assert {path: [trial.values for trial in log.trials] for path, log in logs.items()} == {
        tmp_path / "a" / "er": [{"lr": 0.1}],
        tmp_path / "b" / "er": [{"lr": 0.4}],
    }
    assert all(any(line.startswith(f"{path}, trial 1") for line in lines) for path in plans)


def test_a_sweep_whose_runs_all_fail_does_not_keep_another_from_its_end(tmp_path: Path) -> None:
    plans = {tmp_path / name: parse_sweep({"space": {"lr": [lr]}}) for name, lr in (("bad", 5.0), ("good", 0.1))}
    with pytest.raises(ConfigError, match=r"bad, every configuration failed \(1\), the first because: diverged"):
        run_sweeps(plans, FakeEngine(score, 2), lambda line: None)
    assert [(path / "best.yaml").exists() for path in plans] == [False, True]


@pytest.mark.parametrize("search", ["grid", pytest.param("tpe", marks=scale)])
def test_a_search_that_ran_out_of_time_goes_on_as_if_nothing_had_happened(
    search: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = {"lr": [0.1, 0.2, 0.3], "omega": [0.1, 0.3, 1.0]}
    plan = parse_sweep({"search": search, "space": space} | ({"trials": 7} if search == "tpe" else {}))
    whole = run_sweep(plan, tmp_path / "whole", FakeEngine(lambda config: config["lr"]), print)
    ticks = itertools.count()
    monkeypatch.setattr("ocssl.sweeps.driver.time", SimpleNamespace(monotonic=lambda: next(ticks)))
    none = run_sweep(plan, tmp_path / "late", FakeEngine(lambda config: config["lr"]), print, stop_at=0)
    assert (none.best(), (tmp_path / "late" / "best.yaml").exists()) == (None, False)
    ticks = itertools.count()
    some = resume_sweep(tmp_path / "late", FakeEngine(lambda config: config["lr"]), print, stop_at=4)
    assert sum(trial.state == "done" for trial in some.trials) == 4
    assert not (tmp_path / "late" / "best.yaml").exists()
    rest = FakeEngine(lambda config: config["lr"])
    assert resume_sweep(tmp_path / "late", rest, print).trials == whole.trials
    assert len(rest.names) == len(whole.trials) - 4
    assert contents(tmp_path / "late") == contents(tmp_path / "whole")


@scale
def test_tpe_that_waits_for_scores_when_its_time_ends_is_not_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = parse_sweep({"search": "tpe", "space": {"lr": [0.1, 0.2, 0.3, 0.4, 0.5]}, "trials": 4, "seeds": [0, 1]})
    for stop_at in range(1, 12):
        ticks = itertools.count()
        monkeypatch.setattr("ocssl.sweeps.driver.time", SimpleNamespace(monotonic=ticks.__next__))
        folder = tmp_path / str(stop_at)
        log = run_sweep(plan, folder, FakeEngine(lambda config: config["lr"], 2), print, stop_at=stop_at)
        is_whole = [trial.state for trial in log.trials] == ["done"] * 4
        assert (log.out_of_time, (folder / "best.yaml").exists()) == (not is_whole, is_whole)
        monkeypatch.undo()
        rest = resume_sweep(folder, FakeEngine(lambda config: config["lr"], 2), print)
        assert (len(rest.trials), rest.out_of_time, (folder / "best.yaml").exists()) == (4, False, True)


@scale
def test_tpe_looks_where_it_found_something_and_learns_from_failures(tmp_path: Path) -> None:
    space = {"lr": {"low": 0.001, "high": 10.0, "scale": "log"}}
    log = search(parse_sweep({"search": "tpe", "trials": 40, "space": space}), tmp_path / "sweep", FakeEngine(score))
    assert log is not None
    away = [abs(math.log10(float(trial.values["lr"]))) for trial in log.trials]
    assert any(trial.state == "failed" for trial in log.trials)
    assert len(away) == 40
    assert sum(away[-10:]) < 0.5 * sum(away[:10])


@scale
def test_tpe_with_more_workers_keeps_them_busy(tmp_path: Path) -> None:
    begun: list[int] = []

    class Watched(FakeEngine):
        def run(self, jobs: Any, total: int | None = None) -> Iterator[Any]:
            for done in super().run(jobs):
                begun.append(len(trials_of(tmp_path / "sweep")) - len(self.names))
                yield done

    search(parse_sweep({"search": "tpe", "trials": 12, "space": MIXED}), tmp_path / "sweep", Watched(score, 4))
    assert max(begun) == 3, "with the one that has just ended, four trials were open"
    assert sum(begun) / len(begun) > 1


@scale
def test_an_interrupted_search_goes_on_as_it_would_have(tmp_path: Path) -> None:
    quiet = make_engine(quiet=True)
    quick = {"experiences": 2, "checkpoint_samples": None}
    plan = read_sweep(write_sweep(tmp_path / "a.yaml", quick, search="tpe", trials=5, seeds=[0, 1], space=SPACE))
    run_sweep(plan, tmp_path / "undisturbed", quiet, lambda line: None)
    lines = []

    def interrupt(line: str) -> None:
        lines.append(line)
        if len(lines) == 5:  # after one of the two seeds of trial 3; the first trial was a draw, the others are learned
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="go on with: ocssl sweep --resume"):
        run_sweep(plan, tmp_path / "disturbed", quiet, interrupt)
    resume_sweep(tmp_path / "disturbed", quiet, lines.append)
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


@scale
def test_tpe_on_a_running_cluster_ends_the_same_though_worker_and_driver_are_killed(
    tmp_path: Path, cluster: tuple[int, str]
) -> None:
    head, address = cluster
    file = write_sweep(tmp_path / "a.yaml", {}, search="tpe", trials=5, space=SPACE)
    folder, engine = tmp_path / "sweep", ("--engine", "ray", "--address", address)
    sweep(file, "-o", tmp_path / "undisturbed", *engine)
    driver = start(file, "-o", folder, *engine)
    wait_for(lambda: midway(folder))
    kill_worker(head, "ray::_run_once")
    wait_for(lambda: '"done"' in (folder / "trials.jsonl").read_text() and midway(folder))
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    assert any(trial["state"] == "open" for trial in trials_of(folder))
    sweep("--resume", folder, *engine)
    assert contents(folder) == contents(tmp_path / "undisturbed")
    assert len(list(folder.glob("trials/*"))) == 5
