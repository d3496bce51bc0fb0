"""Runs what tables lack. Each result is stored as soon as its run ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ocssl.common.files import atomic_write, check_folder, writing
from ocssl.engines import Engine, Job, JobResult
from ocssl.errors import DataError, OcsslError
from ocssl.paper.plan import TablePlan, TableRun
from ocssl.results.read import Store
from ocssl.results.result import Curve, Result, probed_on, read_result
from ocssl.runs.evaluate import TransferResult
from ocssl.runs.folder import RunFolder
from ocssl.runs.naming import experiment_key


@dataclass(frozen=True)
class RunOutcome:
    """A run of a table that ended: its result, or why there is none."""

    run: TableRun
    result: Result | None = None
    error: str | None = None


def run_missing(
    plan: TablePlan,
    engine: Engine,
    store: Store,
    results: Path,
    *,
    stop_at: float = float("inf"),
) -> Iterator[RunOutcome]:
    """Run what a plan lacks, in the order in which the runs end, and store the results.

    Args:
        store: as it was read for the plan.
        results: its folder.
        stop_at: time of :func:`time.monotonic` from which on no run is started.
    """
    if plan.to_run:
        check_folder(results, "; choose another --results")
    before = set(results.rglob("*.json"))
    first = {run.folder for run in plan.first}
    started: dict[str, TableRun] = {}
    in_progress: set[Path] = set()
    too_early: list[RunOutcome] = []

    def done_elsewhere(run: TableRun) -> bool:
        file = results / f"{run.name}.json"
        return run.folder not in first and file not in before and file.exists()

    def jobs() -> Iterator[Job | None]:
        for run in plan.to_run:
            while run.starts_from in in_progress:
                yield None
            if time.monotonic() >= stop_at or done_elsewhere(run):
                continue
            if run.starts_from and not RunFolder(run.starts_from).result.exists():
                too_early.append(RunOutcome(run, error=f"'{run.starts_from}', which it starts from, is not finished"))
                continue
            started[run.name] = run
            in_progress.add(run.folder)
            yield Job(run.name, run.config.to_dict(), run.folder, probed_on(run.dataset))

    for done in engine.run(jobs(), len(plan.to_run)):
        in_progress.remove(done.job.folder)
        yield _outcome(started[done.job.name], done, store, results)
    yield from too_early


def _outcome(run: TableRun, done: JobResult, store: Store, results: Path) -> RunOutcome:
    if done.result is None:
        return RunOutcome(run, error=done.error)
    trained = done.result
    try:
        if not store.has(experiment_key(run.config), trained.dataset, trained.seed):
            store_result(trained, results)
        if done.transfer is None:
            return RunOutcome(run, None if done.error else trained, done.error)
        result = transfer_result(trained, run, done.transfer)
        store_result(result, results)
        return RunOutcome(run, result)
    except OcsslError as error:
        return RunOutcome(run, error=str(error))


def store_result(result: Result, folder: Path) -> Path:
    """Write a result into a folder under its name; the result of another run is never overwritten."""
    path = folder / f"{result.name}.json"
    try:
        other = read_result(path) if path.exists() else None
    except DataError:
        other = None  # a broken file is replaced
    if other and (other.key, other.dataset, other.seed) != (result.key, result.dataset, result.seed):
        raise DataError(f"'{path}' holds the result of another run; rename it")
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        return atomic_write(path, result.to_json())


def transfer_result(trained: Result, run: TableRun, found: TransferResult) -> Result:
    """The accuracy of an encoder on another data set, as a result.

    It keeps the configuration, budget and training time of the run; all accuracies are of the other data set.
    """
    measured = {
        "name": run.name,
        "dataset": run.dataset,
        "final": found.linear,
        "avg": None,
        "curve": [found.linear],
        "knn": Curve(final=found.knn, avg=None, curve=[found.knn]),
        "matrix": [],
        "forgetting": None,
        "references": {},
        "knn_references": {},
        "borders": [trained.samples],
        "eval_seconds": found.feature_seconds + found.linear_seconds + found.knn_seconds,
    }
    return trained.model_copy(update=measured)
