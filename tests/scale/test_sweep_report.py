"""What a sweep says it found."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
from sweeping import SHAPES, FakeEngine, resume_sweep, run_sweep, write_sweep
from typer.testing import CliRunner

from ocssl.cli import app
from ocssl.common.yaml import from_file
from ocssl.engines import make_engine
from ocssl.errors import CheckpointError, ConfigError, MissingExtraError
from ocssl.results.render.markdown import to_markdown
from ocssl.runs.presets import resolve
from ocssl.sweeps.log import Trial, TrialLog
from ocssl.sweeps.plan import Sweep, parse_sweep, read_sweep
from ocssl.sweeps.report import at_edges, best_yaml, is_logarithmic, plot_scores, trial_table

QUIET = make_engine(quiet=True)
PRETENDING = FakeEngine(lambda config: 50 - config["lr"])


@pytest.fixture
def plan() -> Sweep:
    return parse_sweep(
        {"settings": {"strategy": "cla-e"}, "space": {"lr": [0.1, 0.3], "omega": [0.3, 1.0]}, "seeds": [0, 1]}
    )


@pytest.fixture
def log(plan: Sweep, tmp_path: Path) -> TrialLog:
    """Four trials of two seeds: one fails in one of them, one is not over."""
    log = TrialLog(tmp_path / "trials.jsonl")
    scores: list[list[float | None]] = [[30.0, 40.0], [90.0, None], [36.0, 36.0], [50.0]]
    for values, found in zip(plan.listed(), scores, strict=True):
        (trial,) = log.add([values], plan.seeds)
        for seed, score in zip(plan.seeds, found, strict=False):
            log.record(trial, seed, **({"score": score, "cbp": 600} if score else {"reason": "the loss became NaN"}))
    return log


def test_scores_are_means_over_seeds_and_failed_or_open_trials_never_win(log: TrialLog) -> None:
    assert [(trial.state, trial.score) for trial in log.trials] == [
        ("done", 35.0),
        ("failed", None),
        ("done", 36.0),
        ("open", None),
    ]
    best = log.best()
    assert best is not None
    assert best.number == 3


def test_of_equal_trials_the_earlier_wins(plan: Sweep, log: TrialLog) -> None:
    log.record(log.trials[0], 1, 42.0, 600)
    best = log.best()
    assert best is not None
    assert (best.number, best.score) == (1, 36.0)
    assert "# The same score: trial 3.\n" in best_yaml(plan, log, log.trials[0])
    log.record(log.trials[0], 1, 43.0, 600)
    assert "same score" not in best_yaml(plan, log, log.trials[0])


def test_the_log_is_read_as_it_was_written(log: TrialLog, tmp_path: Path) -> None:
    assert TrialLog(tmp_path / "trials.jsonl").trials == log.trials
    file, trial = tmp_path / "trials.jsonl", Trial.new(1, {"lr": 0.1}, [0]).model_copy(update={"cbp": [600]})
    file.write_text(trial.model_dump_json(by_alias=True) + "\n")
    assert TrialLog(file).best() is None, "what was spent is no score"
    assert TrialLog(file).trials[0].missing == [0]
    file.write_text('{"trial": 1}\n')
    with pytest.raises(CheckpointError, match="is not a list of trials"):
        TrialLog(tmp_path / "trials.jsonl")


def test_the_table_says_what_there_is_to_say(plan: Sweep, log: TrialLog) -> None:
    assert to_markdown(trial_table(plan, log)).splitlines() == [
        "| trial | run | lr | omega | validation final % | seeds | CBP | state |",
        "| --- | --- | --: | --: | --: | --: | --: | --- |",
        "| 3 | CLA-E | 0.3 | 0.3 | 36.00 ± 0.00 | 2 | 600 | done |",
        f"| 1 | CLA-E | 0.1 | 0.3 | 35.00 ± {statistics.stdev([30, 40]):.2f} | 2 | 600 | done |",
        "| 2 | CLA-E | 0.1 | 1 | – | – | 600 | failed: the loss became NaN |",
        "| 4 | CLA-E | 0.3 | 1 | – | – | 600 | open |",
    ]


def test_the_table_has_a_proposal_that_was_refused(tmp_path: Path) -> None:
    """A search by TPE knows its configurations only while it runs; one that cannot run must not cost it its end."""
    varied = {"batch": {"low": 20, "high": 80, "whole": True}, "stream_batch": {"low": 10, "high": 60, "whole": True}}
    plan = parse_sweep({"search": "tpe", "trials": 2, "settings": {"strategy": "er"}, "space": varied})
    log = TrialLog(tmp_path / "trials.jsonl")
    refused, done = log.add([{"batch": 30, "stream_batch": 50}, {"batch": 50, "stream_batch": 30}], plan.seeds)
    log.record(refused, 0, reason="the batch is too small")
    log.record(done, 0, 30.0, 600)
    assert to_markdown(trial_table(plan, log)).splitlines()[2:] == [
        "| 2 | ER w/ reservoir | 50 | 30 | 30.00 | 600 | done |",
        "| 1 | – | 30 | 50 | – | – | failed: the batch is too small |",
    ]


def test_the_best_configuration_is_measured_on_test_images_with_a_seed_of_ones_own(
    plan: Sweep, log: TrialLog, tmp_path: Path
) -> None:
    (tmp_path / "best.yaml").write_text(best_yaml(plan, log, log.trials[2]))
    given = from_file(tmp_path / "best.yaml")
    assert given == {"strategy": "cla-e", "lr": 0.3, "omega": 0.3}
    assert resolve(given).measure_on == "test"


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        ([0.003, 0.3], True),
        ([0.1, 0.2, 0.3], False),
        ({"low": 0.1, "high": 0.2, "scale": "log"}, True),
        ({"low": 0.01, "high": 10.0}, False),
        (["fifo", "reservoir"], False),
    ],
)
def test_the_axis_is_logarithmic_when_the_values_say_so(space: object, expected: bool) -> None:
    name = "memory" if "fifo" in space else "lr"  # type: ignore[operator]
    plan = parse_sweep({"search": "random", "trials": 2, "settings": {"strategy": "er"}, "space": {name: space}})
    assert is_logarithmic(plan, name) is expected


@pytest.mark.parametrize(
    ("search", "space", "labels"),
    [
        ("grid", {"memory": ["fifo", "reservoir"], "lr": [0.01, 0.1]}, ["memory fifo", "memory reservoir", "lr"]),
        ("random", {"memory": ["fifo", "reservoir"]}, ["fifo", "reservoir", "trials", "memory"]),
        ("grid", {"joint_views": [False, True]}, ["false", "true", "score", "joint_views"]),
    ],
)
def test_scores_are_drawn_whatever_varies(
    search: str, space: dict[str, Any], labels: list[str], tmp_path: Path
) -> None:
    trials = {} if search == "grid" else {"trials": 2}
    plan = parse_sweep({"search": search, "settings": {"strategy": "er"}, "space": space, **trials})
    log = TrialLog(tmp_path / "trials.jsonl")
    for values in plan.listed():
        log.record(log.add([values], [0])[0], 0, 10.0, 600)
    plot_scores(plan, log, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    plot_scores(plan, log, tmp_path / "plot.svg")
    drawn = (tmp_path / "plot.svg").read_text()
    assert all(f"<!-- {label} -->" in drawn for label in labels)


def test_diverged_trials_are_recorded_and_never_win_and_if_all_diverge_that_is_said(tmp_path: Path) -> None:
    quick = {"experiences": 2, "strategy": "er"}
    lines: list[str] = []
    plan = read_sweep(write_sweep(tmp_path / "a.yaml", quick, space={"lr": [1e30, 0.1]}))
    log = run_sweep(plan, tmp_path / "some", QUIET, lines.append)
    assert [trial.state for trial in log.trials] == ["failed", "done"]
    assert "failed: the loss became NaN or infinite" in lines[0]
    assert "lr: 0.1" in (tmp_path / "some" / "best.yaml").read_text()
    plan = read_sweep(write_sweep(tmp_path / "b.yaml", quick, space={"lr": [1e30]}))
    with pytest.raises(ConfigError, match=r"every configuration failed \(1\), the first because: the loss became NaN"):
        run_sweep(plan, tmp_path / "none", QUIET)
    assert "failed" in (tmp_path / "none" / "table.md").read_text()
    assert not (tmp_path / "none" / "best.yaml").exists()


def test_a_sweep_whose_file_was_changed_is_not_gone_on_with(tmp_path: Path) -> None:
    plan = parse_sweep({"settings": SHAPES | {"experiences": 2, "strategy": "er"}, "space": {"lr": [0.1, 0.2]}})
    run_sweep(plan, tmp_path / "sweep", QUIET, lambda line: None)
    file, log = tmp_path / "sweep" / "sweep.yaml", tmp_path / "sweep" / "trials.jsonl"
    whole, kept = file.read_text(), log.read_text()
    for before, after in (
        ("- 0.1\n", "- 0.05\n"),
        ("  - 0.1\n", ""),
        ("seeds:\n- 0\n", "seeds:\n- 0\n- 1\n"),
        ("passes: 1", "passes: 2"),
        ("score: final", "score: avg"),
    ):
        assert before in whole
        file.write_text(whole.replace(before, after))
        with pytest.raises(
            ConfigError, match=r"sweep\.yaml' was changed since trial 1 \(lr 0\.1\) began; change it back"
        ):
            resume_sweep(tmp_path / "sweep", QUIET)
        assert log.read_text() == kept
    file.write_text(whole.replace("- 0.2\n", "- 0.2\n  - 0.3\n").replace("device: cpu", "device: auto"))
    resumed = resume_sweep(tmp_path / "sweep", QUIET, lambda line: None)
    assert [(trial.values["lr"], trial.state) for trial in resumed.trials] == [
        (0.1, "done"),
        (0.2, "done"),
        (0.3, "done"),
    ]


def test_scores_of_one_kind_are_not_taken_for_another(tmp_path: Path) -> None:
    """With ``evaluate: each`` runs have Final and Avg, so their settings do not tell which one was the score."""
    settings = SHAPES | {"experiences": 2, "strategy": "er", "evaluate": "each"}
    run_sweep(parse_sweep({"settings": settings, "space": {"lr": [0.1]}}), tmp_path / "sweep", QUIET)
    file = tmp_path / "sweep" / "sweep.yaml"
    file.write_text(file.read_text().replace("score: final", "score: avg"))
    with pytest.raises(ConfigError, match=r"sweep\.yaml' was changed since trial 1"):
        resume_sweep(tmp_path / "sweep", QUIET)


def test_a_grid_may_be_widened_on_any_side_and_only_what_is_new_is_tried(tmp_path: Path) -> None:
    space = {"lr": [0.1, 0.2], "passes": [1, 2]}
    settings = {name: value for name, value in SHAPES.items() if name != "passes"} | {"experiences": 2}
    plan = parse_sweep({"settings": settings | {"strategy": "er"}, "space": space})
    first = run_sweep(plan, tmp_path / "sweep", PRETENDING, lambda line: None)
    kept = {trial.number: (trial.values, trial.scores) for trial in first.trials}
    file = tmp_path / "sweep" / "sweep.yaml"
    file.write_text(file.read_text().replace("- 0.1\n", "- 0.05\n  - 0.1\n"))
    lines: list[str] = []
    second = resume_sweep(tmp_path / "sweep", PRETENDING, lines.append)
    assert {trial.number: (trial.values, trial.scores) for trial in second.trials[:4]} == kept
    assert [trial.values for trial in second.trials[4:]] == [{"lr": 0.05, "passes": 1}, {"lr": 0.05, "passes": 2}]
    assert [line.partition(",")[0] for line in lines] == ["trial 5 (lr 0.05", "trial 6 (lr 0.05"]


def test_a_grid_may_try_single_configurations_besides_and_they_are_no_whole_row(tmp_path: Path) -> None:
    space, extra = {"lr": [0.1, 0.2], "memory_size": [24, 32]}, [{"lr": 0.4, "memory_size": 24}]
    settings = {name: value for name, value in SHAPES.items() if name != "memory_size"} | {"experiences": 2}
    plan = parse_sweep({"settings": settings | {"strategy": "er"}, "space": space})
    run_sweep(plan, tmp_path / "sweep", PRETENDING, lambda line: None)
    wider = plan.model_copy(update={"extra": extra})
    (tmp_path / "sweep" / "sweep.yaml").write_text(wider.to_yaml())
    lines: list[str] = []
    log = resume_sweep(tmp_path / "sweep", PRETENDING, lines.append)
    assert [trial.values for trial in log.trials[4:]] == extra
    assert [line.partition(",")[0] for line in lines] == ["trial 5 (lr 0.4"]
    assert at_edges(plan, log.trials[2]) == [
        "lr 0.2 is the largest value that was tried",
        "memory_size 24 is the smallest value that was tried",
    ]
    assert at_edges(wider, log.trials[2]) == ["memory_size 24 is the smallest value that was tried"]
    assert at_edges(wider, log.trials[4])[0] == "lr 0.4 is the largest value that was tried"


def test_a_sweep_over_strategies_leaves_omega_out_where_it_is_not_read(tmp_path: Path) -> None:
    space = {"strategy": ["er", "cla-e"], "omega": [0.1, 1.0]}
    plan = parse_sweep({"settings": SHAPES | {"experiences": 2}, "space": space})
    log = run_sweep(plan, tmp_path / "sweep", QUIET, lambda line: None)
    assert [(trial.values, trial.state) for trial in log.trials] == [
        ({"strategy": "er"}, "done"),
        ({"strategy": "cla-e", "omega": 0.1}, "done"),
        ({"strategy": "cla-e", "omega": 1.0}, "done"),
    ]
    assert len(list((tmp_path / "sweep").glob("trials/*/*/result.json"))) == 3
    row = next(row for row in trial_table(plan, log).rows if row.values[1].text == "er")
    assert (row.values[0].text, row.values[2].plain()) == ("ER w/ reservoir", "–")
    assert "omega" not in best_yaml(plan, log, log.trials[0])
    assert at_edges(plan, log.trials[0]) == []
    plot_scores(plan, log, tmp_path / "plot.svg")
    drawn = (tmp_path / "plot.svg").read_text()
    assert all(f"<!-- {label} -->" in drawn for label in ("strategy er", "strategy cla-e", "omega"))


def test_lines_go_from_left_to_right_whatever_was_tried_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.axes import Axes

    drawn: list[list[float]] = []
    ticks: list[list[float]] = []
    plot, set_xticks = Axes.plot, Axes.set_xticks

    def spy(axes: Axes, *given: Any, **options: Any) -> Any:
        drawn.append(list(given[0]))
        return plot(axes, *given, **options)

    def spy_ticks(axes: Axes, places: Any, *given: Any, **options: Any) -> Any:
        ticks.append(list(places))
        return set_xticks(axes, places, *given, **options)

    monkeypatch.setattr(Axes, "plot", spy)
    monkeypatch.setattr(Axes, "set_xticks", spy_ticks)
    plan = parse_sweep({"settings": {"strategy": "er"}, "space": {"lr": [0.1, 0.3]}, "extra": [{"lr": 0.03}]})
    log = TrialLog(tmp_path / "trials.jsonl")
    for values in plan.listed():
        log.record(log.add([values], [0])[0], 0, 10.0, 600)
    plot_scores(plan, log, tmp_path / "plot.png")
    assert drawn[0] == [0.03, 0.1, 0.3]
    assert ticks[0] == [0.03, 0.1, 0.3]


def test_a_best_value_at_the_end_of_its_list_is_told(tmp_path: Path) -> None:
    plan = parse_sweep({"settings": {"strategy": "cla-e"}, "space": {"lr": [0.3, 0.1, 1.0], "omega": [0.3, 1.0, 3]}})
    log = TrialLog(tmp_path / "trials.jsonl")
    best = log.add([{"lr": 0.3, "omega": 3}], [0])[0]
    log.record(best, 0, 50.0, 600)
    assert at_edges(plan, best) == ["omega 3 is the largest value that was tried"]
    assert "# omega 3 is the largest value that was tried.\n" in best_yaml(plan, log, best)
    within = log.add([{"lr": 0.3, "omega": 1.0}], [0])[0]
    log.record(within, 0, 51.0, 600)
    assert at_edges(plan, within) == []
    assert "tried" not in best_yaml(plan, log, within)


@pytest.mark.parametrize(
    "space", [{"memory": ["fifo", "reservoir"]}, {"joint_views": [False, True]}, {"lr": [0.1]}], ids=str
)
def test_words_switches_and_single_values_have_no_end(space: dict[str, list[object]]) -> None:
    plan = parse_sweep({"settings": {"strategy": "er"}, "space": space})
    assert [at_edges(plan, Trial.new(1, values, [0])) for values in plan.listed()] == [[]] * len(plan.listed())


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("average_power", [0.0, 9.0], [False, True]),
        ("tau", [0.9, 1.0], [True, False]),
        ("passes", [1, 3], [False, True]),
        ("probe.max_epochs", [1, 50], [False, True]),
        ("validation_fraction", [0.1, 0.2], [True, True]),
    ],
)
def test_beyond_the_bound_of_a_setting_there_is_nothing_to_look_for(
    name: str, values: list[float], told: list[bool]
) -> None:
    plan = parse_sweep({"settings": {"strategy": "cla-e", "average": 0.9}, "space": {name: values}})
    assert [bool(at_edges(plan, Trial.new(1, {name: value}, [0]))) for value in values] == told


def test_folders_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    plan = parse_sweep({"settings": SHAPES, "space": {"lr": [0.1]}})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="exists and is not empty; choose another --output"):
        run_sweep(plan, tmp_path / "full", QUIET)
    (tmp_path / "full" / "sweep.yaml").write_text(plan.to_yaml())
    outcome = CliRunner().invoke(app, ["sweep", "shapes-tuning", "-o", str(tmp_path / "full")])
    assert isinstance(outcome.exception, ConfigError)
    assert "go on with it" in str(outcome.exception)
    with pytest.raises(ConfigError, match="is not a sweep"):
        resume_sweep(tmp_path, QUIET)


def test_a_missing_package_is_named_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = parse_sweep({"search": "tpe", "trials": 2, "settings": SHAPES, "space": {"lr": [0.1, 0.2]}})
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"need the package 'optuna': pip install 'ocssl\[scale\]'"):
        run_sweep(plan, tmp_path / "sweep", QUIET)
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ["sweep", "shapes-tuning", "--engine", "ray", "-o", str(tmp_path / "sweep")]
    outcome = CliRunner().invoke(app, words)
    assert isinstance(outcome.exception, MissingExtraError)
    assert "need the package 'ray': pip install 'ocssl[scale]'" in str(outcome.exception)
    assert not (tmp_path / "sweep").exists()


def test_a_value_that_all_configurations_share_is_not_at_an_edge() -> None:
    plan = parse_sweep({"space": {"lr": [0.3], "omega": [0.1]}, "extra": [{"lr": 0.3, "omega": 1.0}]})
    assert at_edges(plan, Trial.new(2, plan.listed()[1], [0])) == ["omega 1 is the largest value that was tried"]
