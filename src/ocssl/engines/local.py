"""Jobs on this machine: one after another in this very process, or side by side in processes of their own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from types import FrameType

import torch

from ocssl.common.signals import Interrupted, StopRequest
from ocssl.engines.attempt import Outcome, attempt, died
from ocssl.engines.jobs import Done, Job
from ocssl.engines.tasks import Task, Tasks
from ocssl.runs.environment import RUNS_AT_ONCE, runs_at_once
from ocssl.runs.progress import make_progress

LOOK_EVERY = 0.5  # seconds between two looks whether somebody asked to stop


class InProcess:
    """One job after another in this process, which keeps what it compiled and captured."""

    def __init__(self, *, retries: int, quiet: bool) -> None:
        self._retries = retries
        self._quiet = quiet

    def run(self, jobs: Iterable[Job]) -> Iterator[Done]:
        """Every job once, in the given order."""
        tasks = Tasks(jobs, self._retries)
        while (task := tasks.take()) is not None:
            reporter = make_progress(quiet=self._quiet)
            reporter.say(f"{task.job.name} in {task.job.folder}")
            if (done := tasks.settle(task, attempt(task.job, reporter))) is not None:
                yield done


class Pool:
    """Several jobs at once, each in a process that takes the next one when it is done.

    A process that dies is replaced, and its job goes on from its own last checkpoint.
    """

    def __init__(self, *, workers: int, retries: int) -> None:
        self._workers = workers
        self._retries = retries

    def run(self, jobs: Iterable[Job]) -> Iterator[Done]:
        """Every job once, in the order in which they end."""
        tasks = Tasks(jobs, self._retries)
        seats = deque(range(self._workers))
        idle: list[_Worker] = []
        busy: dict[Connection, tuple[_Worker, Task]] = {}
        try:
            with StopRequest() as stop:
                while True:
                    while len(busy) < self._workers and (task := tasks.take()) is not None:
                        worker = idle.pop() if idle else _Worker(seats.popleft(), self._workers)
                        worker.begin(task.job)
                        busy[worker.connection] = worker, task
                    if not busy:
                        return
                    ready = wait(list(busy), timeout=LOOK_EVERY)
                    if stop.pending:
                        raise Interrupted("stopped, with every run in progress saved", stop.number)
                    for connection in ready:
                        worker, task = busy.pop(connection)  # type: ignore[call-overload]
                        outcome = worker.collect()
                        if worker.alive:
                            idle.append(worker)
                        else:
                            seats.append(worker.seat)
                        if (done := tasks.settle(task, outcome)) is not None:
                            yield done
        finally:
            _dismiss([*idle, *(worker for worker, _ in busy.values())])


class _Worker:
    """A process that does one job after another.

    Args:
        seat: its number; GPUs are dealt out by it.
        seats: how many share this machine's cores.
    """

    def __init__(self, seat: int, seats: int) -> None:
        self.seat = seat
        self.alive = True
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        threads = max(1, torch.get_num_threads() // seats)
        self.process = context.Process(target=_serve, args=(theirs, _gpu_of(seat), _sharing(seats), threads))
        self.process.start()
        theirs.close()

    def begin(self, job: Job) -> None:
        """Hand it a job; should it be dead already, :meth:`collect` will tell."""
        with contextlib.suppress(BrokenPipeError):
            self.connection.send(job)

    def collect(self) -> Outcome:
        """What became of the job, once there is something to read."""
        try:
            outcome: Outcome = self.connection.recv()
            return outcome
        except (EOFError, ConnectionError):
            self.alive = False
            self.connection.close()
            self.process.join()
            code = self.process.exitcode or 0
            return died(f"signal {-code}" if code < 0 else f"exit code {code}")


def _dismiss(workers: list[_Worker]) -> None:
    """Hang up, upon which each saves what it does and ends."""
    for worker in workers:
        worker.connection.close()
    for worker in workers:
        worker.process.join()


def _serve(connection: Connection, gpu: str | None, at_once: int, threads: int) -> None:
    """The life of a worker: a job at a time, until its driver hangs up or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the driver, which hangs up
    signal.signal(signal.SIGTERM, _leave)
    torch.set_num_threads(threads)
    os.environ[RUNS_AT_ONCE] = str(at_once)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    jobs: SimpleQueue[Job] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, jobs), daemon=True).start()
    try:
        while True:
            connection.send(attempt(jobs.get()))
    except (Interrupted, BrokenPipeError):
        return


def _listen(connection: Connection, jobs: SimpleQueue[Job]) -> None:
    try:
        while True:
            jobs.put(connection.recv())
    except (EOFError, ConnectionError):
        os.kill(os.getpid(), signal.SIGTERM)  # a run in progress saves and stops; without one, this is the end


def _leave(number: int, frame: FrameType | None) -> None:
    """End in order, not by the signal itself: a compiler's helpers are sent home, and nothing stays behind."""
    sys.exit(128 + number)


def _sharing(seats: int) -> int:
    """How many runs share a device: of so many workers, or more where somebody said so."""
    return max(runs_at_once(), -(-seats // max(1, torch.cuda.device_count())))


def _gpu_of(seat: int) -> str | None:
    count = torch.cuda.device_count()
    if count == 0:
        return None
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = told.split(",") if told else [str(number) for number in range(count)]
    return names[seat % len(names)]
