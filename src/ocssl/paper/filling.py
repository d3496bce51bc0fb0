"""Running what a table misses: each result is in the store as soon as its run ends, whatever becomes of the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ocssl.engines import Done, Engine, Job
from ocssl.errors import OcsslError
from ocssl.paper.identity import run_name
from ocssl.paper.plan import Plan, Task
from ocssl.paper.store import Store, publish
from ocssl.paper.tables import probed_on
from ocssl.runs.downstream import TransferResult, evaluate_on
from ocssl.runs.folder import RunFolder
from ocssl.runs.result import Curve, Result


@dataclass(frozen=True)
class Filled:
    """A task that is over: its result, or why there is none."""

    task: Task
    result: Result | None = None
    error: str | None = None


def fill(
    plan: Plan,
    engine: Engine,
    store: Store,
    results: Path,
    *,
    stop_at: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Filled]:
    """See a plan's missing tasks through, in the order in which they end; their results go into the store.

    Args:
        store: as it was read for the plan.
        results: its folder.
        stop_at: when the clock says so, nothing more is begun.
    """
    there = set(results.rglob("*.json"))

    def jobs(tasks: Iterable[Task]) -> Iterator[Job]:
        for task in tasks:
            file = results / f"{task.name}.json"
            others_were_faster = task in plan.missing and file not in there and file.exists()
            if clock() < stop_at and not others_were_faster:
                yield Job(task.name, task.config.to_dict(), task.folder)

    for stage in (plan.first, plan.missing):
        ready = {task.name: task for task in stage}
        for task in stage:
            before = task.starts_from
            if before and not RunFolder(before).result.exists():
                del ready[task.name]
                if clock() < stop_at:
                    yield Filled(task, error=f"'{before}', which it starts from, is not finished")
        for done in engine.run(jobs(ready.values())):
            yield _settle(ready[done.job.name], done, store, results)


def _settle(task: Task, done: Done, store: Store, results: Path) -> Filled:
    if done.result is None:
        return Filled(task, error=done.error)
    trained, target = done.result, probed_on(task.dataset)
    try:
        if not store.has(task.config, trained.dataset):
            publish(trained, results, run_name(task.config))
        if target is None:
            return Filled(task, trained)
        changes = {name: task.config[name] for name in ("data_root", "device")}
        result = as_result(trained, task.dataset, evaluate_on(task.folder, target, changes=changes))
        publish(result, results, task.name)
        return Filled(task, result)
    except OcsslError as error:
        return Filled(task, error=str(error))


def as_result(trained: Result, dataset: str, found: TransferResult) -> Result:
    """What an encoder found on another set, as a result of the run that trained it.

    It keeps the run's configuration, budget and training time; everything measured is of the other set.
    """
    measured = {
        "dataset": dataset,
        "final": found.linear,
        "avg": None,
        "curve": [found.linear],
        "knn": Curve(final=found.knn, avg=None, curve=[found.knn]),
        "matrix": [],
        "forgetting": None,
        "references": {},
        "borders": [trained.samples],
        "eval_seconds": found.feature_seconds + found.linear_seconds + found.knn_seconds,
    }
    return trained.model_copy(update=measured)
