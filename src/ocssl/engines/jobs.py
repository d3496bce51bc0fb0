"""Jobs, one attempt at a job, and the queue of attempts that every engine works off."""

from __future__ import annotations

import traceback
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ocssl.common.console import warn
from ocssl.common.files import locked
from ocssl.common.signals import Interrupted
from ocssl.errors import BusyError, CheckpointError, ConfigError, OcsslError, OutOfMemoryError
from ocssl.plugins import changed
from ocssl.results.result import Result
from ocssl.runs.evaluate import TransferResult, evaluate_on
from ocssl.runs.folder import RunFolder
from ocssl.runs.presets import resolve
from ocssl.runs.progress import Progress
from ocssl.runs.run import read_finished, resume, start

POLL_SECONDS = 0.5  # between two looks for a request to stop
LOCK_SECONDS = 60.0  # a worker whose driver died saves its run and leaves the folder within this time


@dataclass(frozen=True)
class Job:
    """One run to be made.

    Attributes:
        name: unique among the jobs of one call of :meth:`Engine.run`.
        config: settings, as ``ocssl run --config`` takes them.
        folder: of the run. An unfinished run there is resumed; the result of a finished one is read.
        probe_on: another data set to measure the encoder on when the run is over.
    """

    name: str
    config: Mapping[str, Any]
    folder: Path
    probe_on: str | None = None


@dataclass(frozen=True)
class JobResult:
    """A job that is over.

    Attributes:
        result: of its run; None where the run failed.
        error: why the run or the probe on another data set failed, in one sentence.
        attempts: how often it was started; more than once where its worker died.
        transfer: accuracies on the other data set that the job names.
    """

    job: Job
    result: Result | None
    error: str | None
    attempts: int
    transfer: TransferResult | None = None


class Engine(Protocol):
    """Runs jobs."""

    @property
    def max_parallel(self) -> int:
        """How many jobs run at once; of a Ray cluster known while :meth:`run` is in progress."""
        ...

    def run(self, jobs: Iterable[Job | None], total: int | None = None) -> Iterator[JobResult]:
        """Run every job once and yield them in the order in which they end.

        Args:
            jobs: asked for the next job only when a worker is free. None means that no job is ready before another
                one has ended; it must not come while no job is running.
            total: how many jobs these are, for the progress that is shown; None where that is not known.
        """
        ...


@dataclass(frozen=True)
class Attempt:
    """How one attempt at a job ended: as :class:`JobResult` says.

    Attributes:
        retry: whether another attempt may end better. It may after an accident, and not after a refused setting.
    """

    result: Result | None = None
    error: str | None = None
    retry: bool = False
    transfer: TransferResult | None = None


def worker_died(how: str) -> Attempt:
    """The attempt whose process ended before its run."""
    return Attempt(error=f"its worker died: {how}", retry=True)


def run_once(job: Job, progress: Progress | None = None) -> Attempt:
    """Start, resume or read the run of a job in this process. Only a request to stop is raised."""
    folder, result = RunFolder(job.folder), None
    try:
        result = _run(job, folder, progress)
        return Attempt(result, transfer=_transfer(job))
    except Interrupted:
        raise
    except OcsslError as error:
        retry = isinstance(error, OutOfMemoryError)  # another run may free its memory
        return Attempt(result, str(error), retry)
    except Exception as error:
        if folder.config.exists():
            with suppress(CheckpointError):  # the log cannot be written
                folder.note(traceback.format_exc())
        return Attempt(result, f"{type(error).__name__}: {' '.join(str(error).split())}", retry=True)


def _run(job: Job, folder: RunFolder, progress: Progress | None) -> Result:
    config = resolve(job.config)
    if not folder.config.exists():
        try:
            return start(config, folder.path, progress)
        except ConfigError as error:
            if not (isinstance(error, BusyError) or folder.config.exists()):
                raise
        # Another command began it just now.
    with locked(folder.path, wait=LOCK_SECONDS):
        result = read_finished(folder.path, config.to_dict())
    if result is None:
        return resume(folder.path, config.to_dict(), progress)
    if difference := changed(result.plugins, config.plugins()):
        raise ConfigError(f"since '{folder.path}' was finished, {difference}; remove that run, or undo the change")
    return result


def _transfer(job: Job) -> TransferResult | None:
    """What the finished run's encoder is worth on the other data set."""
    if job.probe_on is None:
        return None
    changes = {name: job.config[name] for name in ("data_root", "device") if name in job.config}
    return evaluate_on(job.folder, job.probe_on, changes=changes, cache=False)


class JobQueue:
    """Hands out jobs and counts attempts. A job whose worker died comes before a new one.

    Args:
        retries: attempts at a job beyond the first.
    """

    def __init__(self, jobs: Iterable[Job | None], retries: int) -> None:
        self._jobs = iter(jobs)
        self._retries = retries
        self._again: deque[Job] = deque()
        self.over = 0  # jobs
        self._attempts: Counter[str] = Counter()

    def take(self) -> Job | None:
        """The next job; None when there is none, or none before another job has ended."""
        return self._again.popleft() if self._again else next(self._jobs, None)

    def settle(self, job: Job, attempt: Attempt) -> JobResult | None:
        """The end of a job, or None when it is in the queue again."""
        self._attempts[job.name] += 1
        count, error = self._attempts[job.name], attempt.error
        if attempt.retry and count <= self._retries:
            warn(f"{job.name}: {error}; trying again")
            self._again.append(job)
            return None
        if attempt.retry and count > 1:
            error = f"{error} (the last of {count} attempts)"
        self.over += 1
        return JobResult(job, attempt.result, error, count, attempt.transfer)
