"""The demo: equal budgets, honest references, reproducible numbers, and the command that shows them."""

from __future__ import annotations

import json
from threading import get_ident

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from ocssl.cli import app
from ocssl.data.shapes import CLASSES
from ocssl.errors import OcsslError
from ocssl.runs.demo import DemoPlan, DemoReport, Moment, draw_figure, race
from ocssl.runs.demo.report import Entry, SeedResult

TINY = DemoPlan(
    stream=90, experiences=18, probes=3, stream_batch=5, batch=10, memory_size=40, width=2, train=54, val=36, test=36
)


@pytest.fixture(scope="module")
def moments() -> list[Moment]:
    return []


@pytest.fixture(scope="module")
def result(moments) -> SeedResult:
    return race(TINY, seed=3, watch=moments.append)


def test_every_strategy_is_probed_along_the_stream(result, moments):
    assert [entry.name for entry in result.entries] == ["finetune", "ER", "CLA-E"]
    for entry in result.entries:
        probed = {each.seen: each.accuracy for each in moments if each.name == entry.name and each.accuracy is not None}
        assert list(probed) == [30, 60, 90]
        assert tuple(probed.values()) == entry.curve


def test_watchers_hear_of_every_minibatch(moments, result):
    for entry in result.entries:
        assert [moment.seen for moment in moments if moment.name == entry.name] == list(range(5, 91, 5))


def test_all_strategies_spend_the_same_budget_but_for_the_first_fill_of_the_memory(result):
    spent = {entry.name: entry.cbp for entry in result.entries}
    assert spent["finetune"] == 2 * 90 * TINY.batch // TINY.stream_batch
    assert spent["ER"] == spent["CLA-E"]
    assert 0 <= spent["finetune"] - spent["ER"] <= 2 * 2 * TINY.batch


def test_the_full_plan_gives_equal_budgets():
    plan = DemoPlan()
    per_minibatch = {name: each["batch"] * each["passes"] for name, each in plan.contenders().items()}
    assert set(per_minibatch.values()) == {plan.batch}
    assert plan.stream % (plan.probes * plan.stream_batch) == 0  # probes fall between minibatches


def test_every_class_arrives_and_the_order_is_told(result):
    assert sorted(result.class_order) == sorted(CLASSES)


def test_the_same_seed_gives_the_same_race_whatever_the_threads_do(result):
    before = torch.get_num_threads()
    again = race(TINY, seed=3, watch=lambda moment: None)
    assert torch.get_num_threads() == before
    assert again.references == result.references
    assert [entry.curve for entry in again.entries] == [entry.curve for entry in result.entries]


def test_settings_of_the_report_are_complete(result):
    settings = result.entries[2].settings
    assert settings["strategy"] == "cla-e"
    assert settings["backbone"] == "NarrowResNet(width=2)"
    assert {"lr", "omega", "tau", "memory_size", "seed", "augmentation"} <= set(settings)
    json.dumps(settings)


def test_a_failing_watcher_ends_the_race_at_once():
    calls: list[int] = []

    def fail(moment: Moment) -> None:
        calls.append(get_ident())
        raise RuntimeError("the terminal is gone")

    with pytest.raises(RuntimeError, match="the terminal is gone"):
        race(TINY, seed=0, watch=fail)
    assert len(calls) <= 3  # one per strategy; none went on


def made_up(seed: int, cla: float) -> SeedResult:
    entries = (
        Entry("finetune", (10.0, 20.0), 100, 1.0, {}),
        Entry("ER", (20.0, 30.0), 100, 1.0, {}),
        Entry("CLA-E", (30.0, cla), 100, 1.0, {}),
    )
    return SeedResult(seed, {"raw pixels": 8.0, "untrained encoder": 12.0}, entries, CLASSES)


@pytest.fixture
def report() -> DemoReport:
    return DemoReport((made_up(0, 40.0), made_up(1, 50.0)), (10, 20), {}, {}, {})


def test_a_report_averages_over_seeds_and_tells_the_lead_of_each(report):
    assert report.mean_curves()["CLA-E"] == (30, 45)
    assert report.mean_references() == {"raw pixels": 8, "untrained encoder": 12}
    assert report.lead("CLA-E", "finetune") == (20, 30)
    assert report.lead("CLA-E", "untrained encoder") == (28, 38)


def test_a_report_can_be_read_back(report, tmp_path):
    report.save(tmp_path / "demo.json")
    stored = json.loads((tmp_path / "demo.json").read_text())
    assert stored["results"][1]["entries"][2]["curve"] == [30, 50]
    assert stored["points"] == [10, 20]


def test_a_report_that_cannot_be_written_is_one_clear_error(report, tmp_path):
    with pytest.raises(OcsslError, match="could not be written"):
        report.save(tmp_path / "missing" / "demo.json")


def test_the_figure_is_a_picture(report, tmp_path):
    pytest.importorskip("matplotlib")
    draw_figure(report, tmp_path / "demo.png")
    with Image.open(tmp_path / "demo.png") as picture:
        assert picture.format == "PNG"
        assert picture.width > 1000
        assert len(picture.convert("RGB").getcolors(maxcolors=2**24)) > 100  # lines, words and images are there


def test_the_command_prints_a_table_and_leaves_a_plot_and_the_numbers(tmp_path):
    pytest.importorskip("matplotlib")
    answer = CliRunner().invoke(app, ["demo", "--quick", "--seed", "4", "--output", str(tmp_path / "new")])
    assert answer.exit_code == 0, answer.output
    for name in ("raw pixels", "untrained encoder", "finetune", "ER", "CLA-E", "Seed 4"):
        assert name in answer.output
    stored = json.loads((tmp_path / "new" / "demo.json").read_text())
    assert [each["seed"] for each in stored["results"]] == [4]
    assert "torch" in stored["versions"]
    assert (tmp_path / "new" / "demo.png").stat().st_size > 10_000


def test_a_seed_that_cannot_be_is_refused(tmp_path):
    outcome = CliRunner().invoke(app, ["demo", "--quick", "--seed", "-1", "--output", str(tmp_path)])
    assert outcome.exit_code == 2
    assert "'--seed'" in outcome.output


def test_a_folder_that_cannot_be_is_refused_before_anything_is_trained(tmp_path):
    (tmp_path / "file").write_text("")
    answer = CliRunner().invoke(app, ["demo", "--output", str(tmp_path / "file" / "below")])
    assert isinstance(answer.exception, OcsslError)
    assert "cannot be made" in str(answer.exception)
