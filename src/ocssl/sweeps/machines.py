"""Where the runs of a sweep happen."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from ocssl.engines import Engine, EngineName, make_engine


@dataclass(frozen=True)
class Machines:
    """What :func:`ocssl.engines.make_engine` is told."""

    name: EngineName = "local"
    workers: int = 1
    address: str | None = None
    retries: int = 2
    gpus_per_run: float | None = None
    quiet: bool = False

    def engine(self) -> Engine:
        """The engine."""
        return make_engine(**asdict(self))
