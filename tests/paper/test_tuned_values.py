"""Values of lr and ω tuned by us: read from files and sweeps, kept with results, refused where they do not fit."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from helpers.cli import Ocssl
from helpers.results import PUBLISHED, smoke_rows
from ocssl.engines import make_engine
from ocssl.errors import ConfigError
from ocssl.paper.tuned import keep_values, read_values
from ocssl.results import find_table, read_result, read_results
from ocssl.results.tuned import TunedFor, read_tuned, tuned_path
from ocssl.sweeps.driver import run_sweeps
from ocssl.sweeps.log import TrialLog
from ocssl.sweeps.plan import parse_sweep, read_sweep

HIGH: TunedFor = "high-simsiam", "cifar100", "clean"
CLA_E = {"dataset": "cifar100", "method": "simsiam", "budget": "high", "strategy": "cla-e", "lr": 0.1, "omega": 1.0}


def test_values_of_our_own_fill_a_column_of_their_own(
    tmp_path: Path, ocssl: Ocssl, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tuned.yaml").write_text("er-fifo: {lr: 0.07}\ncla-e: {lr: 0.05, omega: 0.5}\n")
    code, said = ocssl("paper", "run", "smoke", "--seeds", "0", "--tuned", "tuned.yaml", "-q")
    assert code == 0, said
    found = smoke_rows(tmp_path / "results")
    cla_e, er = found["cla-e"].tuned, found["er-fifo"].tuned
    assert cla_e is not None
    assert er is not None
    assert (list(cla_e.runs), list(er.runs), found["cla-e"].ours.runs) == ([0], [0], {})
    config = cla_e.runs[0].result.config
    assert (config["lr"], config["omega"]) == (0.05, 0.5)
    monkeypatch.setenv("COLUMNS", "200")
    assert "tuned by us: lr 0.05, ω 0.5" in ocssl("paper", "show", "smoke")[1]
    (tmp_path / "tuned.yaml").write_text("cla-e: {lr: 0.06}\n")
    code, said = ocssl("paper", "run", "smoke", "--seeds", "0", "--tuned", "tuned.yaml", "-q")
    assert code == 2
    assert "remove that line to tune anew" in said


def test_the_best_configuration_of_a_sweep_is_the_line_of_its_row(tmp_path: Path) -> None:
    file = tmp_path / "best.yaml"
    common = "dataset: cifar100\nmethod: simsiam\nbudget: high\n"
    file.write_text(f"# Best of 28\n{common}strategy: cla-e\nlr: 0.1\nomega: 1.0\n")
    assert read_values(file, HIGH) == {"cla-e": {"lr": 0.1, "omega": 1.0}}
    file.write_text(f"{common}strategy: er\nmemory: fifo\nlr: 0.03\n")
    assert read_values(file, HIGH) == {"er-fifo": {"lr": 0.03}}
    file.write_text(f"{common}stream: iid\nlr: 0.03\n")
    assert read_values(file, HIGH) == {"iid": {"lr": 0.03}}
    low = "dataset: cifar100\nmethod: simsiam\nbudget: low\njoint_views: false\nstrategy: cassle\nlr: 0.1\n"
    file.write_text(f"{low}from_start: true\n")
    assert read_values(file, ("views", "cifar100", "clean")) == {"cassle": {"lr": 0.1, "from_start": True}}
    file.write_text(f"{low}from_start: false\n")  # as it is without
    assert read_values(file, ("views", "cifar100", "clean")) == {"cassle": {"lr": 0.1}}
    file.write_text(f"{common}strategy: er\nmemory: minred\nlr: 0.03\n")
    with pytest.raises(ConfigError, match="no row of table 'high-simsiam'"):
        read_values(file, HIGH)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"protocol": "authors"}, "cla-e, the nearest, has protocol clean, not authors"),
        ({"dataset": "imagenet100"}, "cla-e, the nearest, has dataset cifar100, not imagenet100"),
        ({"method": "simclr"}, "cla-e, the nearest, has method simsiam, not simclr"),
        ({"budget": "low"}, "cla-e, the nearest, has batch 138, not 30"),
        ({"passes": 6}, "cla-e, the nearest, has passes 3, not 6"),
        ({"memory": "reservoir"}, "cla-e, the nearest, has memory fifo, not reservoir"),
        ({"backbone": "convnet-w8"}, "cla-e, the nearest, has backbone resnet18, not convnet"),
        ({"samples_per_class": 50}, "cla-e, the nearest, has samples_per_class None, not 50"),
        ({"lr": "fast"}, "'best.yaml' is not the configuration of a run: lr must be a number of at least 0"),
        ({"lr": -3.0}, "of at least 0"),
        ({"lr": math.nan}, "lr"),
        ({"strategy": "er", "memory": "fifo"}, "omega"),
        ({"stratgey": "er"}, "'best.yaml' is not the configuration of a run: unknown setting 'stratgey'"),
    ],
)
def test_a_configuration_tuned_for_something_else_is_refused(
    tmp_path: Path, ocssl: Ocssl, change: dict[str, object], said: str
) -> None:
    (tmp_path / "best.yaml").write_text(yaml.safe_dump(CLA_E | change))
    code, printed = ocssl("paper", "run", "high-simsiam", "--tuned", "best.yaml", "--seeds", "0", "--dry-run")
    assert code == 2
    assert said in printed


def test_where_and_how_fast_a_sweep_ran_does_not_matter(tmp_path: Path) -> None:
    how = {"execution": "compiled", "device": "cuda:3", "data_root": "elsewhere", "knn": False, "seed": 5}
    judged = {"measure_on": "validation", "evaluate": "final", "references": False, "keep_checkpoints": 1}
    (tmp_path / "best.yaml").write_text(yaml.safe_dump(CLA_E | how | judged))
    assert read_values(tmp_path / "best.yaml", HIGH) == {"cla-e": {"lr": 0.1, "omega": 1.0}}


def test_a_value_that_is_what_a_row_is_about_is_not_tuned(tmp_path: Path) -> None:
    which: TunedFor = "omega", "cifar100", "clean"
    (tmp_path / "best.yaml").write_text(yaml.safe_dump(CLA_E))
    assert read_values(tmp_path / "best.yaml", which) == {"cla-e-omega1.0": {"lr": 0.1, "omega": 1.0}}
    (tmp_path / "rows.yaml").write_text("cla-e-omega1.0: {omega: 3.0}\n")
    with pytest.raises(ConfigError, match=r"gives cla-e-omega1\.0 omega 3, but the row is about 1"):
        read_values(tmp_path / "rows.yaml", which)


@pytest.mark.parametrize("row", ["er-fifo", "cla-r", "cla-e"])
def test_what_the_published_sweeps_found_is_what_their_trials_say_and_a_table_takes(tmp_path: Path, row: str) -> None:
    folder = PUBLISHED / "tuning" / "high-simsiam-clean" / row
    sweep, log = read_sweep(folder / "sweep.yaml"), TrialLog(folder / "trials.jsonl")
    assert len(log.trials) == len(sweep.listed())
    assert all(trial.values in sweep.listed() for trial in log.trials)
    for trial in log.trials:
        results = [read_result(folder / trial.folder / f"seed{seed}" / "result.json") for seed in trial.seeds]
        assert trial.scores == [result.final for result in results]
        assert {result.config["measure_on"] for result in results} == {"validation"}
        (tmp_path / "best.yaml").write_text(yaml.safe_dump(sweep.configuration(trial.values)))
        assert read_values(tmp_path / "best.yaml", HIGH) == {row: trial.values}
    best = max(log.trials, key=lambda trial: trial.score or 0.0)
    assert read_values(folder / "best.yaml", HIGH) == {row: best.values}


def test_the_published_values_are_those_that_the_sweeps_chose() -> None:
    for row, values in read_results(PUBLISHED).tuned[HIGH].items():
        assert read_values(PUBLISHED / "tuning" / "high-simsiam-clean" / row / "best.yaml", HIGH) == {row: values}


def test_what_a_sweep_writes_is_what_a_table_takes(tmp_path: Path, ocssl: Ocssl) -> None:
    settings = {**find_table("smoke").row("cla-e").settings, "dataset": "shapes", "execution": "eager"}
    sweep = parse_sweep({"settings": settings, "space": {"lr": [0.07]}})
    run_sweeps({tmp_path / "sweep": sweep}, make_engine(quiet=True), lambda line: None)
    words = ("paper", "run", "smoke", "--seeds", "0", "--dry-run", "--tuned", "sweep/best.yaml")
    code, said = ocssl(*words)
    assert code == 0, said
    assert "0 of 1 runs are done" in said
    (tmp_path / "tuned.yaml").write_text("cla-e: {lr: 0.08}\n")
    code, said = ocssl(*words, "--tuned", "tuned.yaml")
    assert code == 2
    assert "'sweep/best.yaml' and 'tuned.yaml' give cla-e different values; leave one of them out" in said
    (tmp_path / "tuned.yaml").write_text("er-fifo: {lr: 0.08}\ncla-e: {lr: 0.07}\n")
    code, said = ocssl(*words, "--tuned", "tuned.yaml")
    assert code == 0, said
    assert "0 of 2 runs are done" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cla-ee: {lr: 0.1}", "did you mean 'cla-e'?"),
        ("random: {lr: 0.1}", "gives random values, but nothing is trained there"),
        ("cla-e: {tau: 0.1}", "numbers of at least 0 for lr or omega"),
        ("cla-e: {}", "numbers of at least 0 for lr or omega"),
        ("cla-e: fast", "numbers of at least 0 for lr or omega"),
        ("cla-e: {lr: -3}", "numbers of at least 0 for lr or omega, or true or false for from_start, not {'lr': -3}"),
        ("cla-e: {lr: .nan}", "numbers of at least 0 for lr or omega"),
        ("er-fifo: {omega: 1.0}", "gives er-fifo omega, which its strategy does not read"),
        ("cla-e: {from_start: true}", "gives cla-e from_start, which its strategy does not read"),
        ("- 1", "must hold settings as 'name: value' lines, not list"),
    ],
)
def test_a_file_of_tuned_values_that_makes_no_sense_is_refused(
    tmp_path: Path, ocssl: Ocssl, text: str, said: str
) -> None:
    (tmp_path / "tuned.yaml").write_text(text)
    code, printed = ocssl("paper", "run", "smoke", "--tuned", "tuned.yaml")
    assert code == 2
    assert said in printed
    (tmp_path / "results" / "tuned").mkdir(parents=True)
    (tmp_path / "results" / "tuned" / "smoke@shapes@clean.yaml").write_text(text)
    shown = ocssl("paper", "show", "smoke")[1]
    assert said in shown
    assert "smoke@shapes@clean.yaml'" in shown


def test_rows_without_tuned_values_cannot_be_run_with_them(tmp_path: Path, ocssl: Ocssl) -> None:
    (tmp_path / "tuned.yaml").write_text("er-fifo: {lr: 0.2}\n")
    code, said = ocssl("paper", "run", "smoke", "--tuned", "tuned.yaml", "--methods", "cla-e")
    assert (code, said) == (2, "ocssl: none of these rows has tuned values; they are for er-fifo\n")
    assert not (tmp_path / "results").exists()


def test_a_file_of_tuned_values_that_cannot_be_read_is_named_once(tmp_path: Path, ocssl: Ocssl) -> None:
    words = ("paper", "run", "smoke", "--tuned", "tuned.yaml")
    assert ocssl(*words) == (2, "ocssl: cannot read 'tuned.yaml': No such file or directory\n")
    (tmp_path / "tuned.yaml").write_bytes(b"\xff\xfe\x00")
    assert ocssl(*words) == (2, "ocssl: cannot read 'tuned.yaml': it is not text\n")


def test_processes_that_tune_rows_of_one_table_lose_none(tmp_path: Path) -> None:
    rows = {row.name: {"lr": 0.05} for row in find_table(HIGH[0]).rows if not row.untrained}
    with ThreadPoolExecutor(len(rows)) as pool:
        for done in [pool.submit(keep_values, {row: values}, tmp_path, HIGH) for row, values in rows.items()]:
            done.result()
    assert read_tuned(tuned_path(tmp_path, HIGH)) == (HIGH, rows)
