"""Jobs as tasks of a Ray cluster: one started here for the occasion, or one that is running."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ocssl.common.signals import Interrupted, StopRequest
from ocssl.engines.attempt import Outcome, attempt, died
from ocssl.engines.jobs import Done, Job
from ocssl.engines.tasks import Task, Tasks
from ocssl.errors import ConfigError, missing_extra

LOOK_EVERY = 0.5  # seconds between two looks whether somebody asked to stop
OBJECT_STORE = 80 << 20  # bytes; results are small and images do not travel
PASSED_ON = ("OCSSL_DATA", "OCSSL_CACHE", "OCSSL_PLUGINS")


class Cluster:
    """Each job is a task that Ray places where there is room; whose worker or machine dies is handed in again.

    Args:
        workers: how many tasks a cluster that is started here runs at once; a running one decides by its resources.
        address: of a running cluster; unset: one is started here and ended with the last job.
        gpus_per_run: fraction of a GPU that a task asks for; unset: a whole one where the cluster has any.
    """

    def __init__(self, *, workers: int, retries: int, address: str | None, gpus_per_run: float | None) -> None:
        self._workers = workers
        self._retries = retries
        self._address = address
        self._gpus_per_run = gpus_per_run

    def run(self, jobs: Iterable[Job]) -> Iterator[Done]:
        """Every job once, in the order in which they end."""
        ray = import_ray()
        tasks = Tasks(jobs, self._retries)
        with connected(self._workers, self._address), StopRequest() as stop:
            gpus = gpus_of_a_run(self._gpus_per_run)
            # Attempts are counted here and not by Ray, which would not say how many there were.
            begin = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(_attempt).remote
            settle_in = like_the_driver()
            pending: dict[Any, Task] = {}
            while True:
                while len(pending) < room(gpus) and (task := tasks.take()) is not None:
                    pending[begin(task.job, settle_in)] = task
                if not pending:
                    return
                ready, _ = ray.wait(list(pending), num_returns=1, timeout=LOOK_EVERY)
                if stop.pending:
                    raise Interrupted("stopped; runs in progress go on from their last checkpoints", stop.number)
                for reference in ready:
                    if (done := tasks.settle(pending.pop(reference), _outcome(reference))) is not None:
                        yield done


def import_ray() -> Any:
    """The package, or how to get it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise missing_extra("ray", "scale", "engine 'ray' and sweeps over machines") from error
    return ray


@contextlib.contextmanager
def connected(workers: int, address: str | None) -> Iterator[None]:
    """A connection to a cluster; one that was started for it ends with it."""
    ray = import_ray()
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    # Without "local", Ray would join whichever cluster it finds on this machine.
    own = {"num_cpus": workers, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
    try:
        ray.init(address or "local", **quiet, **({} if address else own))
    except (ConnectionError, ValueError, RuntimeError) as error:
        place = f"reach the Ray cluster at '{address}' (is RAY_AUTH_MODE as there?)" if address else "start Ray here"
        raise ConfigError(f"cannot {place}: {' '.join(str(error).split())}") from error
    try:
        yield
    finally:
        ray.shutdown()


def gpus_of_a_run(wanted: float | None) -> float:
    """The fraction of a GPU that each task asks for."""
    if wanted is not None:
        return wanted
    return 1.0 if import_ray().cluster_resources().get("GPU", 0) >= 1 else 0.0


def room(gpus: float) -> int:
    """How many tasks the whole cluster can run at once, as it is now."""
    total = import_ray().cluster_resources()
    by_cpu = int(total.get("CPU", 1))
    return max(1, min(by_cpu, int(total.get("GPU", 0) / gpus)) if gpus else by_cpu)


def like_the_driver() -> Callable[[], None]:
    """To be called by a worker, so that relative paths in settings mean there what they mean here."""
    directory = Path.cwd()
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}

    def settle_in() -> None:
        os.environ.update(environment)
        os.chdir(directory)

    return settle_in


def _attempt(job: Job, settle_in: Callable[[], None]) -> Outcome:
    settle_in()
    return attempt(job)


def _outcome(reference: Any) -> Outcome:
    ray = import_ray()
    try:
        outcome: Outcome = ray.get(reference)
        return outcome
    except ray.exceptions.RayError as error:
        return died(type(error).__name__)
