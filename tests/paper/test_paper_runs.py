"""Filling a table: what is missing is run, what is done is left alone, what fails or dies costs nothing else."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from helpers.cli import Ocssl
from helpers.results import PUBLISHED, content, put
from ocssl.engines import Job, JobResult, make_engine
from ocssl.errors import ConfigError
from ocssl.paper import join_plans, make_plan, run_missing
from ocssl.paper.tuned import read_values
from ocssl.results import Result, Row, Store, Value, find_table, read_result, read_results, sections_of
from ocssl.results.tuned import TunedFor
from ocssl.sweeps.driver import start_sweep
from ocssl.sweeps.log import TrialLog
from ocssl.sweeps.plan import parse_sweep, read_sweep

TINY = {
    "samples_per_class": 10,
    "image_size": 8,
    "experiences": 2,
    "backbone": "convnet",
    "width": 4,
    "hidden_dim": 8,
    "output_dim": 8,
    "stream_batch": 4,
    "batch": 8,
    "memory_size": 12,
    "probe": {"max_epochs": 2},
    "device": "cpu",
}
HIGH: TunedFor = "high-simsiam", "cifar100", "clean"
CLA_E = {"dataset": "cifar100", "method": "simsiam", "budget": "high", "strategy": "cla-e", "lr": 0.1, "omega": 1.0}
SMALL = [word for name, value in TINY.items() for word in ("--set", f"{name}={json.dumps(value)}")]


def smoke_rows(results: Path) -> dict[str, Row]:
    found = sections_of(read_results(results), find_table("smoke"))
    return {row.name: row for section in found if section.protocol == "clean" for row in section.rows}


def test_a_table_is_filled_and_what_is_done_is_not_done_again(tmp_path: Path, ocssl: Ocssl) -> None:
    words = ("paper", "run", "smoke", "--methods", "er,cla-e", "-q")
    code, said = ocssl(*words, "--seeds", "0")
    assert code == 0, said
    assert "0 of 2 runs are done" in said
    files = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "results").iterdir()}
    assert all(name.startswith("shapes-simclr-") and name.endswith("-seed0.json") for name in files)
    code, said = ocssl(*words, "--seed", "0", "--seed", "1", "--set", "execution=eager")
    assert code == 0, said
    assert "2 of 4 runs are done" in said
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "results").iterdir()}
    assert len(after) == 4
    assert {name: after[name] for name in files} == files
    found = smoke_rows(tmp_path / "results")
    assert [tuple(row.ours.runs) for row in found.values()] == [(), (0, 1), (0, 1), (0, 1)]
    for name in after:
        assert read_result(tmp_path / "results" / name) == read_result(tmp_path / "runs" / name.removesuffix(".json"))
    code, said = ocssl("paper", "show", "smoke")
    assert code == 0
    assert Value.over(found["cla-e"].ours.final, digits=1).with_std("±") in said


def test_a_dry_run_only_says_what_is_missing(tmp_path: Path, ocssl: Ocssl) -> None:
    code, said = ocssl("paper", "run", "high-simsiam", "--dry-run", "--seeds", "3", "--rows", "er-fifo,scale")
    assert code == 0
    assert "to run: cifar100-simsiam-er-fifo-high-clean-seed3" in said
    assert "to run: cifar100-scale-reservoir-high-clean-seed3" in said
    assert list(tmp_path.iterdir()) == []


def test_settings_that_a_row_cannot_be_run_with_are_refused_before_the_first_run(tmp_path: Path, ocssl: Ocssl) -> None:
    code, said = ocssl("paper", "run", "smoke", "--seeds", "0", "-q", "--set", "batch=18")
    assert code == 2
    assert "batch (18) must equal stream_batch (12)" in said
    assert list(tmp_path.iterdir()) == []
    only_cla_e_reads_it = ("--set", "omega=1.0")
    assert ocssl("paper", "run", "smoke", "--seeds", "0", *only_cla_e_reads_it, "--dry-run")[0] == 0


def test_a_run_that_fails_does_not_stop_the_others(tmp_path: Path, ocssl: Ocssl) -> None:
    words = ("paper", "run", "smoke", "--seeds", "0", "-q")
    first = ocssl(*words, "--dry-run")[1].splitlines()[1].split()[-1]
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / first).write_text("a file where the run's folder belongs")
    code, said = ocssl(*words)
    assert code == 1
    assert "finetuning, shapes, clean, seed 0: failed: " in said
    assert "2 of 3 runs are done, 1 failed just now" in said
    assert len(list((tmp_path / "results").iterdir())) == 2


def test_a_damaged_run_does_not_stop_the_others(tmp_path: Path, ocssl: Ocssl) -> None:
    words = ("paper", "run", "smoke", "--seeds", "0", "--methods", "er,finetune", "-q")
    first, second = (line.split()[-1] for line in ocssl(*words, "--dry-run")[1].splitlines()[1:])
    (tmp_path / "runs" / first).mkdir(parents=True)
    (tmp_path / "runs" / first / "config.yaml").write_text("dataset: [\n")
    code, said = ocssl(*words, "--dry-run")
    assert (code, f"to run: {second}" in said) == (0, True)
    code, said = ocssl(*words)
    assert code == 1
    assert f"failed: runs/{first}/config.yaml is not valid YAML" in said
    assert "1 of 2 runs are done, 1 failed" in said


def test_settings_that_make_other_experiments_are_kept_but_not_shown(tmp_path: Path, ocssl: Ocssl) -> None:
    code, said = ocssl("paper", "run", "smoke", "--seeds", "0", "-q", "--rows", "cla-e", *SMALL)
    assert code == 0, said
    assert "not the table's" in said
    assert len(read_results(tmp_path / "results").files) == 1
    assert smoke_rows(tmp_path / "results")["cla-e"].ours.runs == {}
    assert "Results that belong in none of these: 1" in ocssl("paper", "list")[1]


def test_no_run_is_begun_once_the_time_is_used(tmp_path: Path, ocssl: Ocssl) -> None:
    code, said = ocssl("paper", "run", "smoke", "--seeds", "0", "--max-seconds", "0")
    assert code == 0
    assert "0 of 3 runs are done, 0 failed just now" in said
    assert not (tmp_path / "runs").exists()


def test_what_another_machine_has_finished_meanwhile_is_not_begun(tmp_path: Path) -> None:
    rows = find_table("high-simsiam").select(["cla-e"])
    plan = make_plan(Store(), rows, "cifar100", "clean", [0, 1, 2], runs=tmp_path)
    names = [run.name for run in plan.missing]

    class Engine:
        def run(self, jobs: Iterable[Job]) -> Iterator[JobResult]:
            for job in jobs:
                put(tmp_path, names[1], content(seed=1))
                yield JobResult(job, Result.model_validate(content(seed=job.config["seed"])), None, 1)

    finished = [outcome.run.name for outcome in run_missing(plan, Engine(), Store(), tmp_path)]
    assert finished == [names[0], names[2]]
    assert len(read_results(tmp_path).files) == 3


def test_a_broken_file_is_replaced_by_its_run(tmp_path: Path, ocssl: Ocssl) -> None:
    once = ("paper", "run", "smoke", "--seeds", "0", "--rows", "er-fifo", "-q")
    ocssl(*once)
    (file,) = (tmp_path / "results").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:200])
    code, said = ocssl(*once)
    assert code == 0, said
    assert file.read_bytes() == whole


def test_another_runs_result_is_never_overwritten(tmp_path: Path, ocssl: Ocssl) -> None:
    once = ("paper", "run", "smoke", "--rows", "er-fifo", "-q", "--seeds")
    ocssl(*once, "0")
    (file,) = (tmp_path / "results").iterdir()
    squatter = file.rename(file.with_name(file.name.replace("seed0", "seed1")))
    before = squatter.read_bytes()
    code, said = ocssl(*once, "1")
    assert code == 1
    assert "holds the result of another run" in said
    assert squatter.read_bytes() == before


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
    start_sweep(sweep, tmp_path / "sweep", make_engine(quiet=True), lambda line: None)
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


def test_early_pretraining_runs_first_what_it_starts_from(tmp_path: Path, ocssl: Ocssl) -> None:
    words = ("paper", "run", "pretraining-simclr", "--dataset", "shapes", "--seeds", "0", "--rows", "cla-e-iid", "-q")
    code, said = ocssl(*words, *SMALL)
    assert code == 0, said
    first, then = sorted((read_result(path) for path in (tmp_path / "results").iterdir()), key=lambda r: r.cbp_spent)
    assert (first.strategy, then.strategy) == ("cla-e", "iid")
    assert then.cbp_spent == first.cbp_spent + 2 * first.cbp_planned
    assert Path(then.config["init_from"]).is_dir()
    assert "1 of 1 runs are done" in ocssl(*words, *SMALL)[1]


def test_a_dry_run_lists_a_run_once_that_others_start_from(ocssl: Ocssl) -> None:
    code, said = ocssl("paper", "run", "pretraining-simclr", "--seeds", "0", "--dry-run")
    assert code == 0
    first, *runs = said.splitlines()
    assert "0 of 5 runs are done" in first
    assert len(runs) == len(set(runs)) == 5


def test_what_starts_from_a_failed_run_fails_too(tmp_path: Path, ocssl: Ocssl) -> None:
    words = ("paper", "run", "pretraining-simclr", "--dataset", "shapes", "--seeds", "0", "--rows", "cla-e-iid", "-q")
    first = ocssl(*words, *SMALL, "--dry-run")[1].splitlines()[-2].split()[-1]
    (tmp_path / "runs" / first).mkdir(parents=True)
    (tmp_path / "runs" / first / "config.yaml").write_text("dataset: [\n")
    code, said = ocssl(*words, *SMALL)
    assert code == 1
    assert "which it starts from, is not finished" in said


class TwoWorkers:
    """Notes which jobs it was given, and ends the older of two."""

    max_parallel = 2

    def __init__(self) -> None:
        self.given: list[str | None] = []

    def run(self, jobs: Iterable[Job | None]) -> Iterator[JobResult]:
        queue, busy = iter(jobs), []
        while True:
            while len(busy) < 2:
                job = next(queue, None)
                self.given.append(job and job.name)
                if job is None:
                    break
                busy.append(job)
            if not busy:
                return
            yield JobResult(busy.pop(0), None, "failed", 1)


def test_only_what_starts_from_a_run_waits_for_it(tmp_path: Path) -> None:
    table = find_table("pretraining-simclr")
    plan = make_plan(Store(), table.select(["iid-whole", "cla-e-iid"]), "cifar100", "clean", [0], runs=tmp_path)
    engine = TwoWorkers()
    ended = list(run_missing(plan, engine, Store(), tmp_path / "results"))
    first, whole, last = plan.to_run
    assert engine.given == [first.name, whole.name, None, None]  # None: the last was asked for, and had to wait
    assert [outcome.run for outcome in ended] == [first, whole, last]
    assert "which it starts from, is not finished" in str(ended[-1].error)


def test_tables_that_share_a_run_train_it_once(tmp_path: Path) -> None:
    plans = [
        make_plan(Store(), find_table(name).select(["er-fifo"]), dataset, "clean", [0], runs=tmp_path)
        for name, dataset in (("high-simclr", "cifar100"), ("downstream-simclr", "cifar100->svhn"))
    ]
    for order in (plans, plans[::-1]):
        plan = join_plans([*order, *order])
        assert len(plan.wanted) == len(plan.missing) == 2
        (run,) = plan.to_run
        assert run.dataset == "cifar100->svhn"


def test_several_tables_are_run_at_once(tmp_path: Path, ocssl: Ocssl) -> None:
    words = ("paper", "run", "smoke", "tau", "--dataset", "shapes", "--seeds", "0", "--rows", "er,cla-e-tau0.9", "-q")
    code, said = ocssl(*words, *SMALL)
    assert code == 0, said
    first, second, *_, last = said.splitlines()
    assert (first, second) == (
        "smoke, shapes, clean protocol: 0 of 1 runs are done",
        "tau, shapes, clean protocol: 0 of 1 runs are done",
    )
    assert last == "2 of 2 runs are done, 0 failed just now"
    assert len(list((tmp_path / "results").iterdir())) == 2
    code, said = ocssl("paper", "run", "smoke", "tau", "--rows", "cla-e-tau7")
    assert (code, "unknown row of table 'smoke' or 'tau' 'cla-e-tau7'; did you mean 'cla-e-tau0.9'?" in said) == (
        2,
        True,
    )
    code, said = ocssl("paper", "run", "smoke", "tau", "--tuned", "tuned.yaml")
    assert (code, "tuned values are for the rows of one table" in said) == (2, True)


def test_downstream_measures_a_runs_encoder_on_another_set(tmp_path: Path, ocssl: Ocssl) -> None:
    words = ("paper", "run", "downstream-simclr", "--dataset", "shapes->shapes", "--seeds", "0", "--rows", "er-fifo")
    code, said = ocssl(*words, "-q", *SMALL)
    assert code == 0, said
    (run,) = (tmp_path / "runs").iterdir()
    own, onward = (
        read_result(path) for path in sorted((tmp_path / "results").iterdir(), key=lambda path: "-on-" in path.name)
    )
    assert own == read_result(run)
    assert onward.dataset == "shapes->shapes"
    assert onward.final == json.loads((run / "probes" / "shapes.json").read_text())["linear"]
    assert (onward.config, onward.train_seconds) == (own.config, own.train_seconds)
    assert "1 of 1 runs are done" in ocssl(*words, "-q", *SMALL)[1]
    table = ("paper", "run", "high-simclr", "--dataset", "shapes", "--seeds", "0", "--rows", "er-fifo")
    assert "1 of 1 runs are done" in ocssl(*table, *SMALL, "--dry-run")[1]  # nothing is trained twice


def test_a_probe_on_a_set_that_is_not_there_costs_no_run(tmp_path: Path, ocssl: Ocssl) -> None:
    words = ("paper", "run", "downstream-simclr", "--dataset", "shapes->folder:nowhere", "--seeds", "0")
    code, said = ocssl(*words, "--rows", "er-fifo", "-q", *SMALL)
    assert (code, "failed: " in said, "nowhere" in said) == (1, True, True)
    (file,) = (tmp_path / "results").iterdir()
    assert read_result(file).dataset == "shapes"


def test_one_half_of_a_pair_of_sets_is_enough_where_it_is_the_papers(ocssl: Ocssl) -> None:
    name = "downstream-simsiam"
    assert "imagenet100->cars" in ocssl("paper", "run", name, "--dataset", "imagenet100", "--dry-run")[1]
    code, said = ocssl("paper", "run", name, "--dataset", "shapes", "--dry-run")
    assert code == 2
    assert "name both" in said


def test_times_compare_rows_of_equal_cbp_on_one_device(tmp_path: Path, ocssl: Ocssl) -> None:
    short = {"samples_per_class": 50, "evaluate": "never"}
    put(tmp_path / "results", "slow", content(**short) | {"train_seconds": 120.0})
    put(tmp_path / "results", "quick", content(strategy="er", memory="fifo", **short) | {"train_seconds": 80.0})
    elsewhere = content(strategy="cla-r", **short)
    elsewhere |= {"train_seconds": 10.0, "hardware": elsewhere["hardware"] | {"gpu": "another"}}
    put(tmp_path / "results", "elsewhere", elsewhere)
    lines = {line.split("  ")[0]: line.split() for line in ocssl("paper", "show", "times")[1].splitlines()}
    assert lines["CLA-E, n_p = 3"][-7:-1] == ["3.73M", "120.0", "1.50", "NVIDIA", "H200,", "compiled"]
    assert lines["ER w/ FIFO, n_p = 3"][-7:-1] == ["3.73M", "80.0", "1.00", "NVIDIA", "H200,", "compiled"]
    assert lines["CLA-R, n_p = 3"][-6:-1] == ["3.73M", "10.0", "1.00", "another,", "compiled"]
    code, said = ocssl("paper", "run", "times", "--workers", "2", "--dry-run")
    assert (code, "table 'times' needs runs that have their device to themselves" in said) == (2, True)


def test_seeds_that_are_no_numbers_are_refused(ocssl: Ocssl) -> None:
    code, said = ocssl("paper", "run", "smoke", "--seeds", "0,one")
    assert code == 2
    assert "not 'one'" in said


def test_a_killed_table_goes_on_where_it_was(tmp_path: Path, ocssl: Ocssl) -> None:
    words = ["paper", "run", "smoke", "--seeds", "0", "-q", "--set", "checkpoint_samples=6"]
    process = subprocess.Popen([sys.executable, "-m", "ocssl", *words], cwd=tmp_path)
    _wait_until_second_run_has_a_checkpoint(tmp_path / "runs", process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "results").glob("*.json")}
    assert done
    code, said = ocssl(*words)
    assert code == 0, said
    assert {path: path.stat().st_mtime_ns for path in done} == done
    resumed = [log for log in (tmp_path / "runs").glob("*/log.txt") if "resumed at image" in log.read_text()]
    assert len(resumed) == 1
    assert [list(row.ours.runs) for row in smoke_rows(tmp_path / "results").values()] == [[0]] * 4


def _wait_until_second_run_has_a_checkpoint(runs: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        if len([run for run in runs.glob("*") if any((run / "checkpoints").glob("[0-9]*"))]) > 1:
            return
        time.sleep(0.01)
    pytest.fail("the second run never got to a checkpoint")
