"""One attempt at a job: begin its run, go on with it, or take it as it is."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from filelock import FileLock, Timeout

from ocssl.common.signals import Interrupted
from ocssl.engines.jobs import Job
from ocssl.errors import ConfigError, OcsslError, OutOfMemoryError
from ocssl.results.result import Result, read_result
from ocssl.runs.config import RunConfig
from ocssl.runs.folder import RunFolder
from ocssl.runs.launch import resume, start
from ocssl.runs.presets import complete
from ocssl.runs.progress import Progress

LEAVING_SECONDS = 60.0  # how long a worker that lost its driver may take to leave its folder


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended.

    Attributes:
        again: whether another attempt could end better; what a run refuses once it refuses always.
    """

    result: Result | None = None
    error: str | None = None
    again: bool = False


def died(how: str) -> Outcome:
    """The outcome of an attempt whose process is no more."""
    return Outcome(error=f"its worker died: {how}", again=True)


def attempt(job: Job, reporter: Progress | None = None) -> Outcome:
    """See a job's run through in this process; only a request to stop is raised."""
    folder = RunFolder(job.folder)
    try:
        return Outcome(_run(job, folder, reporter))
    except Interrupted:
        raise
    except OcsslError as error:
        return Outcome(error=str(error), again=isinstance(error, OutOfMemoryError))  # others may leave the device
    except Exception as error:
        if folder.config.exists():
            folder.note(traceback.format_exc())
        return Outcome(error=f"{type(error).__name__}: {' '.join(str(error).split())}", again=True)


def _run(job: Job, folder: RunFolder, reporter: Progress | None) -> Result:
    config = complete(job.config)
    if not folder.config.exists():
        return start(config, folder.path, reporter)
    _wait_until_left(folder)
    if not folder.result.exists():
        return resume(folder.path, config.to_dict(), reporter)
    _check_same(config, folder)
    return read_result(folder.path)


def _wait_until_left(folder: RunFolder) -> None:
    lock = FileLock(folder.path / ".lock", timeout=LEAVING_SECONDS)
    try:
        lock.acquire()
    except Timeout as error:
        raise ConfigError(f"another process is working in '{folder.path}'") from error
    lock.release()


def _check_same(config: RunConfig, folder: RunFolder) -> None:
    found = folder.read_config()
    if found.digest() != config.digest():
        old, new = found.to_dict(), config.to_dict()
        name = next(name for name in new if new[name] != old[name])
        raise ConfigError(
            f"'{folder.path}' holds a finished run with {name} {old[name]}, not {new[name]}; choose another --output"
        )
