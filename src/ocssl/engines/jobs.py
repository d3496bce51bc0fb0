"""What an engine is given and what it gives back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ocssl.results.result import Result


@dataclass(frozen=True)
class Job:
    """One run that is wanted.

    Attributes:
        name: unique among the jobs of a call.
        config: settings, as :func:`ocssl.runs.presets.complete` takes them.
        folder: where the run lives; an unfinished run there is gone on with, a finished one is taken as it is.
    """

    name: str
    config: Mapping[str, Any]
    folder: Path


@dataclass(frozen=True)
class Done:
    """One run that is over.

    Attributes:
        result: what it ended with; None where it failed.
        error: why it failed, in one sentence.
        attempts: how often it was started; more than once where its worker died.
    """

    job: Job
    result: Result | None
    error: str | None
    attempts: int


class Engine(Protocol):
    """Sees jobs through, here or elsewhere."""

    def run(self, jobs: Iterable[Job]) -> Iterator[Done]:
        """Every job once, in the order in which they end; a job is only asked for when there is room to begin it."""
        ...
