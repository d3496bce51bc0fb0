"""Jobs in the order in which an engine should begin them, attempts counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ocssl.engines.attempt import Outcome
from ocssl.engines.jobs import Done, Job
from ocssl.runs.progress import Progress


@dataclass(frozen=True)
class Task:
    """An attempt at a job; the first is number 1."""

    job: Job
    number: int = 1


class Tasks:
    """What is to be attempted: what failed by accident first, then jobs nobody has begun.

    Args:
        jobs: asked for one at a time, so that later ones may depend on how earlier ones ended.
        retries: attempts at a job beyond the first.
    """

    def __init__(self, jobs: Iterable[Job], retries: int) -> None:
        self._fresh = iter(jobs)
        self._again: deque[Task] = deque()
        self._retries = retries

    def take(self) -> Task | None:
        """The next one; None when there is none at present."""
        if self._again:
            return self._again.popleft()
        job = next(self._fresh, None)
        return None if job is None else Task(job)

    def settle(self, task: Task, outcome: Outcome) -> Done | None:
        """The end of the task's job, or None where it waits for another attempt."""
        if not outcome.again:
            return Done(task.job, outcome.result, outcome.error, task.number)
        if task.number <= self._retries:
            Progress().warn(f"{task.job.name}: {outcome.error}; trying again")
            self._again.append(replace(task, number=task.number + 1))
            return None
        often = f" (the last of {task.number} attempts)" if task.number > 1 else ""
        return Done(task.job, None, f"{outcome.error}{often}", task.number)
