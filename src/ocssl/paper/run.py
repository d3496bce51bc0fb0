"""Runs what a table lacks. Each result is stored as soon as its run ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ocssl.common.files import atomic_write, writing
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
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[RunOutcome]:
    """Run what a plan lacks, in the order in which the runs end, and store the results.

    Args:
        store: as it was read for the plan.
        results: its folder.
        stop_at: time of the clock from which on no run is started.
    """
    before = set(results.rglob("*.json"))

    def jobs(runs: Iterable[TableRun]) -> Iterator[Job]:
        for run in runs:
            file = results / f"{run.name}.json"
            done_elsewhere = run in plan.missing and file not in before and file.exists()
            if clock() < stop_at and not done_elsewhere:
                yield Job(run.name, run.settings, run.folder, probed_on(run.dataset))

    for stage in (plan.first, plan.missing):
        ready = {run.name: run for run in stage}
        for run in stage:
            first = run.starts_from
            if first and not RunFolder(first).result.exists():
                del ready[run.name]
                if clock() < stop_at:
                    yield RunOutcome(run, error=f"'{first}', which it starts from, is not finished")
        for done in engine.run(jobs(ready.values())):
            yield _outcome(ready[done.job.name], done, store, results)


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
