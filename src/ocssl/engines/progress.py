"""Progress of jobs that other processes run, read from the metrics of their runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import TYPE_CHECKING

from ocssl.common.console import drawn_for_now, duration, make_bars, number_of, print_line
from ocssl.engines.jobs import Job
from ocssl.errors import CheckpointError
from ocssl.runs.folder import RunFolder

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

LOOK_EVERY = 1.0  # seconds between two looks at the metrics
LINE_EVERY = 60.0  # seconds between two lines where there is no terminal


class PoolProgress(AbstractContextManager["PoolProgress"]):
    """On a terminal a bar for each job in progress and one for all jobs, elsewhere a line a minute.

    Args:
        total: how many jobs there are; None where nobody knows yet.
        quiet: print nothing.
    """

    def __init__(self, total: int | None, *, quiet: bool) -> None:
        self._total = total
        self._every = float("inf") if quiet else LOOK_EVERY if sys.stderr.isatty() else LINE_EVERY
        self._bars: Bars | None = make_bars() if self._every == LOOK_EVERY else None
        self._tasks: dict[str, TaskID] = {}
        self._lengths: dict[str, int] = {}  # images of each job that has begun
        self._first: tuple[float, int] | None = None  # when the first line was printed, and the images until then
        self._next = time.monotonic() + self._every
        self._drawn: ExitStack | None = None

    def __exit__(self, *error: object) -> None:
        self.pause()

    def pause(self) -> None:
        """Take the bars off the terminal, where the caller may print, until the next update."""
        if self._drawn is not None:
            self._drawn.close()
            self._drawn = None

    def update(self, over: int, jobs: Iterable[Job]) -> None:
        """Show how many jobs are over, and how far those in progress are."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every
        positions = {job.name: self._position(job) for job in jobs}
        length = sum(self._lengths.values()) / len(self._lengths) if self._lengths else 0
        done = round(over * length) + sum(positions.values())
        images = None if self._total is None or not length else round(self._total * length)
        if self._bars is not None:
            self._draw(self._bars, over, positions, done, images)
            return
        now = time.monotonic()
        began, before = self._first = self._first or (now, done)
        said = f"{number_of(over, 'run') if self._total is None else f'{over} of {self._total} runs'} over"
        said += f", {len(positions)} in progress"
        if images and done > before:
            said += f", about {duration((now - began) * (images - done) / (done - before))} left"
        print_line(said)

    def _draw(self, bars: Bars, over: int, positions: dict[str, int], done: int, images: int | None) -> None:
        said = f"all, {over} over" if self._total is None else f"all, {over} of {self._total} over"
        every = {"": (said, done, images)} | {
            name: (name, position, self._lengths.get(name)) for name, position in positions.items()
        }
        for name in self._tasks.keys() - every.keys():
            bars.remove_task(self._tasks.pop(name))
        for name, (text, completed, total) in every.items():
            if name not in self._tasks:
                self._tasks[name] = bars.add_task(text, total=None)
            bars.update(self._tasks[name], description=text, completed=completed, total=total)
        if self._drawn is None:
            self._drawn = ExitStack()
            self._drawn.enter_context(drawn_for_now(bars))

    def _position(self, job: Job) -> int:
        """Images that a job's run has learned from, as its metrics say."""
        with suppress(CheckpointError, OSError):
            for line in reversed(RunFolder(job.folder).metrics.read()):
                if "of" in line:
                    self._lengths[job.name] = line["of"]
                    return int(line["samples"])
        return 0
