"""Engines see many runs through: here one by one, here side by side, or on a Ray cluster.

All of them resume what was begun, take what is finished as it is, and start a run again whose worker died.

>>> engine = make_engine("local", workers=1)
>>> list(engine.run([]))
[]
"""

from __future__ import annotations

from typing import Literal

from ocssl.engines.cluster import Cluster, import_ray
from ocssl.engines.jobs import Done, Engine, Job
from ocssl.engines.local import InProcess, Pool
from ocssl.errors import ConfigError
from ocssl.registry import unknown

__all__ = ["Done", "Engine", "EngineName", "Job", "make_engine"]

EngineName = Literal["local", "ray"]


def make_engine(
    name: EngineName,
    *,
    workers: int = 1,
    address: str | None = None,
    retries: int = 2,
    gpus_per_run: float | None = None,
    quiet: bool = False,
) -> Engine:
    """An engine by name.

    Args:
        name: ``local`` for this machine, ``ray`` for a Ray cluster (extra ``scale``).
        workers: runs at once on this machine; ``local`` with one uses this very process. A running cluster decides
            by its own resources.
        address: of a running Ray cluster.
        retries: how often a run whose worker died is started again.
        gpus_per_run: fraction of a GPU that Ray sets aside for each run; local workers share the GPUs evenly.
        quiet: no progress of runs in this process.
    """
    if workers < 1 or retries < 0:
        raise ConfigError(f"workers must be at least 1 and retries at least 0, not {workers} and {retries}")
    if name == "local":
        for setting, value in {"address": address, "gpus_per_run": gpus_per_run}.items():
            if value is not None:
                raise ConfigError(f"{setting} is for engine 'ray'; with 'local' leave it out")
        return InProcess(retries=retries, quiet=quiet) if workers == 1 else Pool(workers=workers, retries=retries)
    if name == "ray":
        if gpus_per_run is not None and gpus_per_run < 0:
            raise ConfigError(f"gpus_per_run must not be negative, not {gpus_per_run:g}")
        import_ray()
        return Cluster(workers=workers, retries=retries, address=address, gpus_per_run=gpus_per_run)
    raise unknown("engine", name, ["local", "ray"])
