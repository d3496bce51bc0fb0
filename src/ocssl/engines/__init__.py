"""Engines run many jobs: one after another in this process, several at once, or on a Ray cluster.

Every engine resumes unfinished runs, reads the results of finished ones and starts a run again whose worker died.

>>> list(make_engine(EngineOptions(workers=2)).run([]))
[]
"""

from __future__ import annotations

from ocssl.engines.cluster import RayCluster
from ocssl.engines.jobs import Engine, EngineOptions, Job, JobResult
from ocssl.engines.local import InProcess, WorkerPool
from ocssl.errors import ConfigError
from ocssl.registry import unknown

__all__ = ["Engine", "EngineOptions", "Job", "JobResult", "make_engine"]


def make_engine(options: EngineOptions) -> Engine:
    """The engine for these options; :class:`ConfigError` where they do not fit together."""
    if options.workers < 1 or options.retries < 0:
        found = f"{options.workers} and {options.retries}"
        raise ConfigError(f"workers must be at least 1 and retries at least 0, not {found}")
    if options.engine == "local":
        for name in ("address", "gpus_per_run"):
            if getattr(options, name) is not None:
                raise ConfigError(f"{name} is for engine 'ray'; with 'local' leave it out")
        return InProcess(options) if options.workers == 1 else WorkerPool(options)
    if options.engine == "ray":
        if options.gpus_per_run is not None and options.gpus_per_run < 0:
            raise ConfigError(f"gpus_per_run must not be negative, not {options.gpus_per_run:g}")
        return RayCluster(options)
    raise unknown("engine", options.engine, ["local", "ray"])
