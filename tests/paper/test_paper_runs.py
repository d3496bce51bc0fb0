"""Filling a table: what is missing is run, what is done is left alone, what fails or dies costs nothing else."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from helpers.cli import Ocssl
from helpers.command import Command, wait_for
from helpers.results import content, put, smoke_rows
from ocssl.engines import Job, JobResult
from ocssl.paper import join_plans, make_plan, run_missing
from ocssl.results import Result, Store, Value, find_table, read_result, read_results

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
SMALL = [word for name, value in TINY.items() for word in ("--set", f"{name}={json.dumps(value)}")]


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


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("run", "smoke", "--set", "seed=5"), "seed is given by --seeds; leave it out of --set"),
        (("run", "smoke", "--set", "dataset=cifar10"), "dataset is given by --dataset; leave it out of --set"),
        (("tune", "views", "--set", "dataset=cifar10"), "dataset is given by --dataset; leave it out of --set"),
        (("tune", "views", "--set", "protocol=authors"), "protocol is given by --protocol; leave it out of --set"),
        (("run", "smoke", "--seeds", ""), "--seeds is empty; leave it out, or name some"),
        (("run", "smoke", "--rows", ","), "--methods is empty; leave it out, or name some"),
        (
            ("run", "smoke", "--dataset", "shapes->svhn"),
            "table 'smoke' does not probe on another set; name shapes alone",
        ),
        (("run", "downstream-simsiam", "--dataset", "cifar100->"), "name both, like cifar100->svhn"),
        (("run", "downstream-simsiam", "--dataset", "cifar100->svnh"), "unknown data set 'svnh'; did you mean 'svhn'?"),
    ],
)
def test_words_that_contradict_a_table_are_refused(tmp_path: Path, ocssl: Ocssl, words, sentence) -> None:
    code, said = ocssl("paper", *words, "--dry-run")
    assert (code, sentence in said) == (2, True), said


def test_an_empty_data_set_is_an_unknown_one(ocssl: Ocssl) -> None:
    for words in (("show",), ("run", "--dry-run")):
        code, said = ocssl("paper", words[0], "smoke", "--dataset", "", *words[1:])
        assert (code, "unknown data set ''" in said) == (2, True), said


def test_settings_that_a_row_cannot_be_run_with_are_refused_before_the_first_run(tmp_path: Path, ocssl: Ocssl) -> None:
    code, said = ocssl("paper", "run", "smoke", "--seeds", "0", "-q", "--set", "batch=18")
    assert code == 2
    assert "batch (18) must equal stream_batch (12)" in said
    assert list(tmp_path.iterdir()) == []
    only_cla_e_reads_it = ("--set", "omega=1.0")
    assert ocssl("paper", "run", "smoke", "--seeds", "0", *only_cla_e_reads_it, "--dry-run")[0] == 0


def test_a_folder_of_results_that_cannot_be_written_is_refused_before_the_first_run(
    tmp_path: Path, ocssl: Ocssl
) -> None:
    (tmp_path / "file").touch()
    words = ("paper", "run", "smoke", "--methods", "er", "--seeds", "0", "-q", *SMALL)
    code, said = ocssl(*words, "--results", "file/results")
    assert (code, said.splitlines()[-1]) == (
        2,
        "ocssl: cannot write 'file/results': Not a directory; choose another --results",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_runs_that_fail_or_are_damaged_do_not_stop_the_others(tmp_path: Path, ocssl: Ocssl) -> None:
    words = ("paper", "run", "smoke", "--seeds", "0", "-q")
    first, second, third = (line.split()[-1] for line in ocssl(*words, "--dry-run")[1].splitlines()[-3:])
    (tmp_path / "runs" / second).mkdir(parents=True)
    (tmp_path / "runs" / second / "config.yaml").write_text("dataset: [\n")
    (tmp_path / "runs" / first).write_text("a file where the run's folder belongs")
    code, said = ocssl(*words, "--dry-run")
    assert (code, f"to run: {third}" in said) == (0, True)
    code, said = ocssl(*words)
    assert code == 1
    assert "finetuning, shapes, clean, seed 0: failed: " in said
    assert f"failed: runs/{second}/config.yaml is not valid YAML" in said
    assert "1 of 3 runs are done, 2 failed just now" in said
    assert len(list((tmp_path / "results").iterdir())) == 1


def test_settings_that_make_other_experiments_are_kept_but_not_shown(tmp_path: Path, ocssl: Ocssl) -> None:
    """The only run shares its device with none, however many workers are asked for."""
    code, said = ocssl("paper", "run", "smoke", "--seeds", "0", "-q", "--rows", "cla-e", "--workers", "4", *SMALL)
    assert code == 0, said
    assert "not the table's" in said
    (file,) = read_results(tmp_path / "results").files
    assert file.runs_at_once == 1
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
        def run(self, jobs: Iterable[Job | None], total: int | None = None) -> Iterator[JobResult]:
            for job in jobs:
                put(tmp_path, names[1], content(seed=1))
                yield JobResult(job, Result.model_validate(content(seed=job.config["seed"])), None, 1)

    finished = [outcome.run.name for outcome in run_missing(plan, Engine(), Store(), tmp_path)]
    assert finished == [names[0], names[2]]
    assert len(read_results(tmp_path).files) == 3


def test_a_broken_file_is_replaced_by_its_run_and_another_runs_result_never(tmp_path: Path, ocssl: Ocssl) -> None:
    once = ("paper", "run", "smoke", "--rows", "er-fifo", "-q", *SMALL, "--seeds")
    ocssl(*once, "0")
    (file,) = (tmp_path / "results").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:200])
    code, said = ocssl(*once, "0")
    assert code == 0, said
    assert file.read_bytes() == whole
    squatter = file.rename(file.with_name(file.name.replace("seed0", "seed1")))
    code, said = ocssl(*once, "1")
    assert code == 1
    assert "holds the result of another run" in said
    assert squatter.read_bytes() == whole


def test_early_pretraining_runs_first_what_it_starts_from(tmp_path: Path, ocssl: Ocssl) -> None:
    words = ("paper", "run", "pretraining-simclr", "--dataset", "shapes", "--seeds", "0", "--rows", "cla-e-iid", "-q")
    code, said = ocssl(*words, *SMALL)
    assert code == 0, said
    first, then = sorted((read_result(path) for path in (tmp_path / "results").iterdir()), key=lambda r: r.cbp_spent)
    assert (first.strategy, then.strategy) == ("cla-e", "iid")
    assert then.cbp_spent == first.cbp_spent + 2 * first.cbp_planned
    assert then.config["init_from"] == first.name  # not where it lies
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

    def run(self, jobs: Iterable[Job | None], total: int | None = None) -> Iterator[JobResult]:
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


def test_runs_begin_seed_by_seed_and_the_longest_first(tmp_path: Path) -> None:
    rows = find_table("passes-simsiam").select(["cla-e"])
    plan = make_plan(Store(), rows, "cifar100", "clean", [1, 0], runs=tmp_path)
    began = [(run.config.learner.seed, run.config.learner.batch, run.config.learner.passes) for run in plan.to_run]
    assert began == [(seed, *cost) for seed in (0, 1) for cost in ((138, 6), (138, 3), (138, 1), (30, 1))]


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
    assert (code, "unknown row 'cla-e-tau7' of table 'smoke' or 'tau'; did you mean 'cla-e-tau0.9'?" in said) == (
        2,
        True,
    )
    code, said = ocssl("paper", "run", "smoke", "tau", "--rows", "None")  # the encoder without a strategy is a row, too
    assert (code, "unknown row 'None' of table 'smoke' or 'tau'" in said) == (2, True)
    code, said = ocssl("paper", "run", "smoke", "tau", "--tuned", "tuned.yaml")
    assert (code, "tuned values are for the rows of one table" in said) == (2, True)


def test_downstream_measures_a_runs_encoder_on_another_set(tmp_path: Path, ocssl: Ocssl) -> None:
    """A set that is not there costs no run."""
    words = ("paper", "run", "downstream-simclr", "--seeds", "0", "--rows", "er-fifo", "--dataset")
    code, said = ocssl(*words, "shapes->folder:nowhere", "-q", *SMALL)
    assert (code, "failed: " in said, "nowhere" in said) == (1, True, True)
    (file,) = (tmp_path / "results").iterdir()
    assert read_result(file).dataset == "shapes"
    words = (*words, "shapes->shapes")
    (run,) = (tmp_path / "runs").iterdir()
    before = (run / "result.json").stat().st_mtime_ns
    code, said = ocssl(*words, "-q", *SMALL)
    assert code == 0, said
    assert [*(tmp_path / "runs").iterdir()] == [run]
    assert (run / "result.json").stat().st_mtime_ns == before
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


def test_a_killed_table_goes_on_where_it_was(tmp_path: Path, ocssl: Ocssl, server: Popen[str]) -> None:
    words = ["paper", "run", "smoke", "--seeds", "0", "-q", "--set", "checkpoint_samples=6"]
    process = Command(server, tmp_path).start(*words)
    wait_for(lambda: len({checkpoint.parts[-3] for checkpoint in tmp_path.glob("runs/*/checkpoints/[0-9]*")}) > 1)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "results").glob("*.json")}
    assert done
    code, said = ocssl(*words)
    assert code == 0, said
    assert {path: path.stat().st_mtime_ns for path in done} == done
    resumed = [log for log in (tmp_path / "runs").glob("*/log.txt") if "resumed at image" in log.read_text()]
    assert len(resumed) == 1
    assert [list(row.ours.runs) for row in smoke_rows(tmp_path / "results").values()] == [[0]] * 4
