"""Engines run many jobs: one after another in this process, several at once, or on a Ray cluster.

Every engine resumes unfinished runs, reads the results of finished ones and starts a run again whose worker died.

>>> list(make_engine(workers=2).run([]))
[]
"""

from __future__ import annotations

from typing import Literal

from ocssl.engines.cluster import RayCluster
from ocssl.engines.jobs import Engine, Job, JobResult
from ocssl.engines.local import InProcess, WorkerPool
from ocssl.errors import ConfigError
from ocssl.registry import unknown

__all__ = ["Engine", "Job", "JobResult", "make_engine"]


def make_engine(
    engine: Literal["local", "ray"] = "local",
    *,
    workers: int = 1,
    address: str | None = None,
    retries: int = 2,
    gpus_per_run: float | None = None,
    quiet: bool = False,
) -> Engine:
    """An engine; :class:`ConfigError` where the arguments do not fit together.

    Args:
        engine: ``local`` for this machine, ``ray`` for a Ray cluster (extra ``scale``).
        workers: jobs at once on this machine; ``local`` with one worker uses this process. A running cluster is
            limited by its own resources instead.
        address: of a running Ray cluster.
        retries: further attempts at a job whose worker died.
        gpus_per_run: fraction of a GPU that Ray reserves for each job; None: a whole one where the cluster has any.
            Local workers share the GPUs evenly.
        quiet: no progress.
    """
    if workers < 1 or retries < 0:
        raise ConfigError(f"workers must be at least 1 and retries at least 0, not {workers} and {retries}")
    if engine == "local":
        for name, value in {"address": address, "gpus_per_run": gpus_per_run}.items():
            if value is not None:
                raise ConfigError(f"{name} is for engine 'ray'; with 'local' leave it out")
        return InProcess(retries, quiet=quiet) if workers == 1 else WorkerPool(workers, retries, quiet=quiet)
    if engine == "ray":
        if gpus_per_run is not None and gpus_per_run < 0:
            raise ConfigError(f"gpus_per_run must not be negative, not {gpus_per_run:g}")
        return RayCluster(workers, retries, address=address, gpus_per_run=gpus_per_run, quiet=quiet)
    raise unknown("engine", engine, ["local", "ray"])
