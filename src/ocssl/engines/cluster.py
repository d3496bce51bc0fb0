"""Engine on a Ray cluster: each job is a task. The cluster is started for the call, or was running before."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ocssl.common.signals import Interrupted, StopRequest
from ocssl.engines.jobs import POLL_SECONDS, Attempt, Job, JobQueue, JobResult, run_once, worker_died
from ocssl.engines.progress import PoolProgress
from ocssl.errors import ConfigError, import_extra

OBJECT_STORE = 80 << 20  # bytes; results are small, and images are not sent
PASSED_ON = ("OCSSL_DATA", "OCSSL_CACHE", "OCSSL_PLUGINS")


class RayCluster:
    """Jobs as tasks that Ray places where resources are free. A task whose worker or machine dies is submitted again.

    With an address tasks run on that cluster, else on one that is started here and ends with the call.
    """

    def __init__(
        self, workers: int, retries: int, *, address: str | None, gpus_per_run: float | None, quiet: bool
    ) -> None:
        self._workers = workers
        self._retries = retries
        self._address = address
        self._gpus_per_run = gpus_per_run
        self._quiet = quiet
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._ray = import_extra("ray", "scale", "engine 'ray' and sweeps over machines")

    def run(self, jobs: Iterable[Job | None], total: int | None = None) -> Iterator[JobResult]:
        """Run every job once and yield them in the order in which they end."""
        queue = JobQueue(jobs, self._retries)
        pending: dict[Any, Job] = {}
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        with self._cluster(), StopRequest() as stop, PoolProgress(total, quiet=self._quiet) as progress:
            # Ray's own retries are off: it does not report the number of attempts.
            task = self._ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=0)(_run_once)
            while True:
                while len(pending) < self.max_parallel and (job := queue.take()) is not None:
                    pending[task.remote(job, Path.cwd(), environment)] = job
                if not pending:
                    return
                ready, _ = self._ray.wait(list(pending), num_returns=1, timeout=POLL_SECONDS)
                progress.update(queue.over, pending.values())
                if stop.pending:
                    raise Interrupted("stopped; runs in progress go on from their last checkpoints", stop.number)
                for reference in ready:
                    if (done := queue.settle(pending.pop(reference), self._attempt(reference))) is not None:
                        progress.pause()
                        yield done

    @property
    def max_parallel(self) -> int:
        """How many tasks the cluster has room for at present."""
        total, gpus = self._ray.cluster_resources(), self._gpus
        rooms = [total.get("CPU", 1), *([total.get("GPU", 0) / gpus] if gpus else [])]
        return max(1, int(min(rooms)))

    @property
    def _gpus(self) -> float:
        """The fraction of a GPU that each task reserves."""
        whole = 1.0 if self._ray.cluster_resources().get("GPU", 0) >= 1 else 0.0
        return whole if self._gpus_per_run is None else self._gpus_per_run

    @contextlib.contextmanager
    def _cluster(self) -> Iterator[None]:
        address = self._address
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        own = {"num_cpus": self._workers, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
        try:
            # Without "local", Ray would join any cluster that it finds on this machine.
            self._ray.init(address or "local", **quiet, **({} if address else own))
        except (ConnectionError, ValueError, RuntimeError) as error:
            what = f"reach the Ray cluster at '{address}' (is RAY_AUTH_MODE as there?)" if address else "start Ray here"
            raise ConfigError(f"cannot {what}: {' '.join(str(error).split())}") from error
        try:
            yield
        finally:
            self._ray.shutdown()

    def _attempt(self, reference: Any) -> Attempt:
        try:
            attempt: Attempt = self._ray.get(reference)
            return attempt
        except self._ray.exceptions.RayError as error:
            return worker_died(type(error).__name__)


def _run_once(job: Job, directory: Path, environment: dict[str, str]) -> Attempt:
    """The task: relative paths and environment variables mean in the worker what they mean in the driver."""
    os.environ.update(environment)
    try:
        os.chdir(directory)
    except OSError as error:
        where = f"the folder '{directory}' of the driver cannot be entered on {platform.node()}: {error.strerror}"
        return Attempt(error=f"{where}; start from a folder that every machine sees", retry=True)
    return run_once(job)
