"""The demo: three ordinary runs of equal cost, a table and a figure; interrupted or repeated, it resumes."""

from __future__ import annotations

import shutil
import signal
import threading
import time

import pytest
import torch
from PIL import Image

from ocssl.cli.demo import QUICK, RUNS, SETTINGS, STREAM, _bars
from ocssl.data.shapes import CLASSES
from ocssl.engines import Job
from ocssl.results import read_result
from ocssl.runs.data import load_splits, make_schedule
from ocssl.runs.naming import run_name
from ocssl.runs.presets import resolve


def runs_in(folder):
    """The results in a demo's folder by strategy."""
    results = [read_result(run) for run in sorted((folder / "runs").iterdir())]
    return {result.strategy: result for result in results}


@pytest.fixture(scope="module")
def command(ocssl_module):
    """A quick demo that nothing disturbed: exit code, standard output, standard error."""
    return ocssl_module("demo", "--quick", "--seed", 4, "--output", ocssl_module.folder / "demo")


@pytest.fixture(scope="module")
def folder(ocssl_module, command):
    code, _, err = command
    assert code == 0, err
    return ocssl_module.folder / "demo"


@pytest.fixture(scope="module")
def results(folder):
    return runs_in(folder)


@pytest.mark.parametrize("changes", [{}, QUICK])
def test_every_run_trains_on_sixty_images_for_ten_that_arrive_one_class_after_another(changes):
    configs = [resolve({**SETTINGS, **run, **changes}) for run in RUNS]
    assert {(config.learner.stream_batch, config.learner.batch * config.learner.passes) for config in configs} == {
        (10, 60)
    }
    train = load_splits(configs[0].change(image_size=16), torch.device("cpu")).train  # labels are the same in any size
    schedule = make_schedule(configs[0], train)
    length = STREAM // 20 if changes else STREAM
    assert schedule.borders == tuple(range(length // 18, length + 1, length // 18))
    assert sorted(schedule.experiences) == [(label,) for label in range(len(CLASSES))]


def test_the_command_prints_a_table_and_leaves_a_figure(command, folder, results):
    _, out, err = command
    for words in (
        "raw pixels",
        "untrained encoder",
        "finetuning",
        "ER w/ FIFO",
        "CLA-E",
        "colour histogram",
        "k-NN at the end\n",
    ):
        assert words in out
    cla, finetune, er = results["cla-e"], results["finetune"], results["er"]
    assert f"{cla.avg:.1f}" in out
    leads = cla.final - cla.references["untrained"], cla.final - finetune.final, cla.final - er.final
    said = "Seed 4: CLA-E against the untrained encoder {:+.1f} points, finetuning {:+.1f}, ER {:+.1f}."
    assert said.format(*leads) in out
    assert "A rehearsal: these numbers say nothing of the strategies." in out
    assert "Replay shows" not in out
    assert f"CLA-E, seed 4: 180 images, {cla.final:.1f} %" in err
    assert err.count("180/180") == 3, "every bar ends at its end"
    assert len(max(out.splitlines()[6:], key=len)) < 100
    with Image.open(folder / "demo.png") as picture:
        assert picture.format == "PNG"
        assert picture.width > 1000
        assert len(picture.convert("RGB").getcolors(maxcolors=2**24)) > 100  # lines, words and images are there


def test_the_runs_are_ordinary_and_start_from_the_same_weights_on_the_same_stream(results):
    assert list(results) == ["cla-e", "er", "finetune"]
    assert {(result.seed, result.method, len(result.curve)) for result in results.values()} == {(4, "simclr", 18)}
    assert len({result.fingerprint for result in results.values()}) == 1
    assert len({tuple(result.references.items()) for result in results.values()}) == 1
    assert set(results["er"].references) == {"untrained", "pixels", "histogram"}


def test_all_strategies_spend_the_same_budget_but_for_the_first_fill_of_the_memory(results):
    spent = {name: result.cbp_spent for name, result in results.items()}
    assert spent["finetune"] == results["finetune"].cbp_planned == results["er"].cbp_planned == 2 * 6 * 180
    assert spent["er"] == spent["cla-e"]
    assert 0 <= spent["finetune"] - spent["er"] <= 2 * 6 * 60


def test_other_commands_read_its_folder(ocssl_module, folder):
    code, out, err = ocssl_module("compare", *sorted((folder / "runs").iterdir()))
    assert code == 0, err
    assert "CLA-E" in out
    code, out, err = ocssl_module("report", folder, "-o", ocssl_module.folder / "report", "--format", "markdown")
    assert (code, err) == (0, "")


def test_a_bar_waits_for_metrics_that_cannot_be_read(tmp_path, monkeypatch):
    """A resumed run cuts damaged metrics soon."""
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    (tmp_path / "metrics.jsonl").write_text("garbage\n")
    with _bars([Job("run", {}, tmp_path)], images=10):
        pass
    assert not raised


@pytest.mark.slow
def test_more_seeds_are_averaged_and_finished_runs_are_not_repeated(ocssl, tmp_path, folder):
    shutil.copytree(folder, tmp_path / "demo")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("demo/runs/*/result.json")}
    code, out, err = ocssl("demo", "--quick", "--seed", 4, "--seed", 5, "--output", tmp_path / "demo")
    assert code == 0, err
    assert {path: path.stat().st_mtime_ns for path in before} == before
    found = [read_result(run) for run in tmp_path.glob("demo/runs/*cla-e*")]
    assert {result.seed for result in found} == {4, 5}
    assert "(mean over seeds)" in out
    assert "Seed 4:" in out
    assert "Seed 5:" in out
    row = next(line for line in out.splitlines() if line.startswith("CLA-E")).split()
    assert row[6] == f"{sum(result.final for result in found) / 2:.1f}"


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_an_interrupted_demo_resumes_and_ends_with_the_same_numbers(ocssl, tmp_path, folder, results, number):
    """Two of its three runs are over."""
    for attempt in range(5):
        output = tmp_path / f"demo{attempt}"
        shutil.copytree(folder / "runs", output / "runs", ignore=shutil.ignore_patterns("*cla-e*"))
        before = {path: path.stat().st_mtime_ns for path in output.glob("runs/*/result.json")}
        assert len(before) == 2
        arguments = ("demo", "--quick", "--seed", 4, "--output", output)
        process = ocssl.start(*arguments)
        deadline = time.monotonic() + 120
        while not list(output.glob("runs/*cla-e*/metrics.jsonl")):
            assert time.monotonic() < deadline, process.err
            time.sleep(0.01)
        process.kill(number)
        ended = process.wait()
        if ended or len(list(output.glob("runs/*/result.json"))) < 3:
            break  # else it was faster than the signal: begin again
    assert ended == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert len(list(output.glob("runs/*/result.json"))) < 3
    code, _, err = ocssl(*arguments)
    assert code == 0, err
    assert {path: path.stat().st_mtime_ns for path in before} == before
    again = runs_in(output)
    assert {name: (result.curve, result.references) for name, result in again.items()} == {
        name: (result.curve, result.references) for name, result in results.items()
    }


def test_without_matplotlib_there_is_the_table_and_a_hint(ocssl, tmp_path, folder):
    shutil.copytree(folder / "runs", tmp_path / "demo" / "runs")
    code, out, err = ocssl("demo", "--quick", "--seed", 4, "--output", tmp_path / "demo", hidden=["matplotlib"])
    assert code == 0, err
    assert "CLA-E" in out
    assert "no plot" in err
    assert "ocssl[plot]" in err
    assert not (tmp_path / "demo" / "demo.png").exists()


def test_a_run_that_fails_is_named_in_one_sentence(ocssl, tmp_path):
    finetune = run_name(resolve({**SETTINGS, **RUNS[0], **QUICK, "seed": 4}))
    (tmp_path / "demo" / "runs" / finetune).mkdir(parents=True)
    (tmp_path / "demo" / "runs" / finetune / "notes.txt").touch()
    code, _, err = ocssl("demo", "--quick", "--seed", 4, "--output", tmp_path / "demo")
    assert code != 0
    assert err.splitlines()[-1].startswith("ocssl: finetuning, seed 4: '")
    assert "Traceback" not in err


def test_a_seed_that_cannot_be_is_refused(ocssl):
    code, _, err = ocssl("demo", "--quick", "--seed", -1)
    assert code == 2
    assert "'--seed'" in err


def test_a_folder_that_cannot_be_is_refused_before_anything_is_trained(ocssl, tmp_path):
    (tmp_path / "file").write_text("")
    code, out, err = ocssl("demo", "--output", tmp_path / "file" / "below")
    assert code != 0
    assert out == ""
    assert err == f"ocssl: cannot write '{tmp_path / 'file' / 'below'}': Not a directory\n"
