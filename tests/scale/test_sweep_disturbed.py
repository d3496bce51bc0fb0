"""Sweeps end with the same bytes, whichever engine runs them and whichever process is killed on the way."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest
from sweeping import (
    OPTIONS,
    contents,
    finished,
    gone_on,
    kill_worker,
    leave_nothing,
    midway,
    resume_sweep,
    start,
    sweep,
    trials_of,
    unfinished,
    wait_for,
)
from typer.testing import CliRunner

from ocssl.cli import app
from ocssl.common.signals import Interrupted
from ocssl.engines import make_engine
from ocssl.results.result import read_result

pytestmark = pytest.mark.scale

POOL = ("--workers", "2")
RAY = ("--engine", "ray", "--workers", "2")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The paper's tuning procedure on shapes, one run after another."""
    folder = tmp_path_factory.mktemp("sweeps") / "undisturbed"
    sweep("shapes-tuning", "-o", folder, "-q", *OPTIONS)
    return folder


def test_the_log_holds_every_trial_with_what_its_run_found(undisturbed: Path) -> None:
    trials = trials_of(undisturbed)
    assert [trial["trial"] for trial in trials] == [1, 2, 3, 4, 5, 6]
    assert [trial["values"] for trial in trials] == [
        {"lr": lr, "omega": omega} for lr in (0.03, 0.1, 0.3) for omega in (0.1, 1.0)
    ]
    for trial in trials:
        result = read_result(undisturbed / trial["folder"] / "seed0")
        assert (trial["score"], trial["cbp"], trial["state"]) == (result.final, [result.cbp_spent], "done")
        assert (result.config["lr"], result.config["omega"]) == tuple(trial["values"].values())
        assert result.config["measure_on"] == "validation"


def test_the_best_configuration_is_one_that_run_accepts(undisturbed: Path, tmp_path: Path) -> None:
    best = max(trials_of(undisturbed), key=lambda trial: (trial["score"], -trial["trial"]))
    words = ["run", "-q", "--config", str(undisturbed / "best.yaml"), "-o", str(tmp_path / "run")]
    assert CliRunner().invoke(app, words).exit_code == 0
    config = read_result(tmp_path / "run").config
    assert {"lr": config["lr"], "omega": config["omega"]} == best["values"]
    assert (config["measure_on"], config["evaluate"]) == ("test", "each")


def test_the_table_lists_the_best_first_and_the_plot_is_there(undisturbed: Path) -> None:
    header, _, *rows = (undisturbed / "table.md").read_text().splitlines()
    (column,) = [place for place, title in enumerate(header.split("|")) if title.strip().startswith("validation")]
    scores = [float(row.split("|")[column]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert (undisturbed / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_finished_sweep_is_not_run_again(undisturbed: Path) -> None:
    before = {place: place.stat().st_mtime_ns for place in undisturbed.glob("trials/*/*/*.json")}
    found = contents(undisturbed)
    resume_sweep(undisturbed, make_engine())
    assert contents(undisturbed) == found
    assert {place: place.stat().st_mtime_ns for place in undisturbed.glob("trials/*/*/*.json")} == before


@pytest.mark.parametrize(
    ("engine", "worker", "words"),
    [(POOL, "spawn_main", "signal 9"), (RAY, "ray::_run_once", "WorkerCrashedError")],
    ids=["local", "ray"],
)
def test_a_killed_worker_and_then_a_killed_driver_change_nothing(
    undisturbed: Path, tmp_path: Path, engine: tuple[str, ...], worker: str, words: str
) -> None:
    folder = tmp_path / "disturbed"
    process = start("shapes-tuning", "-o", folder, *OPTIONS, *engine)
    wait_for(lambda: midway(folder))
    kill_worker(process.pid, worker)
    wait_for(lambda: finished(folder) >= 2 and midway(folder))
    below = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    _, err = process.communicate()
    assert f"its worker died: {words}; trying again" in err
    assert finished(folder) < 6
    leave_nothing(below)
    left = unfinished(folder)
    sweep("--resume", folder, *engine)
    assert contents(folder) == contents(undisturbed)
    assert left <= set(gone_on(folder))


def test_a_sweep_asked_to_stop_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "stopped"
    long = ("--set", "samples_per_class=1000")  # so that no run ends by itself while the driver notices the signal
    process = start("shapes-tuning", "-o", folder, "-q", *OPTIONS, *long, *POOL)
    wait_for(lambda: midway(folder))
    begun = unfinished(folder)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert err.splitlines() == [f"ocssl: the sweep was stopped; go on with: ocssl sweep --resume {folder}"]
    assert finished(folder) == 0
    for run in begun:
        assert "stopped by signal" in (run / "log.txt").read_text().splitlines()[-1]


def test_a_sweep_interrupted_between_two_runs_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    folder = tmp_path / "interrupted"
    monkeypatch.setattr("ocssl.engines.jobs.start", interrupted)  # Ctrl-C while a run's images are read
    outcome = CliRunner().invoke(app, ["sweep", "shapes-tuning", "-o", str(folder), "-q", *OPTIONS])
    assert isinstance(outcome.exception, Interrupted)
    assert outcome.exception.exit_code == 128 + signal.SIGINT
    assert f"go on with: ocssl sweep --resume {folder}" in str(outcome.exception)
