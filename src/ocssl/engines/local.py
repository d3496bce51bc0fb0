"""Engines on this machine: jobs one after another in this process, or several at once in worker processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from types import FrameType

import torch

from ocssl.common.console import print_warnings, warn
from ocssl.common.signals import Interrupted, StopRequest
from ocssl.engines.jobs import POLL_SECONDS, Attempt, Job, JobQueue, JobResult, run_once, worker_died
from ocssl.engines.progress import PoolProgress
from ocssl.runs.environment import RUNS_AT_ONCE, runs_at_once
from ocssl.runs.progress import make_progress


class InProcess:
    """One job after another in this process, which keeps compiled kernels and captured graphs."""

    max_parallel = 1

    def __init__(self, retries: int, *, quiet: bool) -> None:
        self._retries = retries
        self._quiet = quiet

    def run(self, jobs: Iterable[Job | None], total: int | None = None) -> Iterator[JobResult]:
        """Run every job once, in the given order."""
        queue = JobQueue(jobs, self._retries)
        with StopRequest() as stop:  # for a request that comes between two runs
            while not stop.pending and (job := queue.take()) is not None:
                progress = make_progress(quiet=self._quiet)
                number = f"{queue.over + 1} of {total}: " if total is not None else ""
                progress.info(f"{number}{job.name} in {job.folder}")
                if (done := queue.settle(job, run_once(job, progress))) is not None:
                    yield done


class WorkerPool:
    """Several jobs at once, each in a process of its own.

    A process that dies is replaced, and its run is resumed from the last checkpoint.
    """

    def __init__(self, workers: int, retries: int, *, quiet: bool) -> None:
        self.max_parallel = workers
        self._retries = retries
        self._quiet = quiet

    def run(self, jobs: Iterable[Job | None], total: int | None = None) -> Iterator[JobResult]:
        """Run every job once and yield them in the order in which they end."""
        _warn_of_turns(self.max_parallel)
        queue = JobQueue(jobs, self._retries)
        workers: dict[int, _Worker] = {}
        busy: dict[Connection, tuple[int, Job]] = {}
        try:
            with StopRequest() as stop, PoolProgress(total, quiet=self._quiet) as progress:
                while True:
                    while len(busy) < self.max_parallel and (job := queue.take()) is not None:
                        slot = min(set(range(self.max_parallel)) - {slot for slot, _ in busy.values()})
                        if slot not in workers:
                            workers[slot] = _Worker(slot, self.max_parallel)
                        workers[slot].send(job)
                        busy[workers[slot].connection] = slot, job
                    if not busy:
                        return
                    ready = wait(list(busy), timeout=POLL_SECONDS)
                    progress.update(queue.over, (job for _, job in busy.values()))
                    if stop.pending:
                        raise Interrupted("stopped, with every run in progress saved", stop.number)
                    for connection in ready:
                        slot, job = busy.pop(connection)  # type: ignore[call-overload]
                        attempt = workers[slot].receive()
                        if workers[slot].connection.closed:
                            del workers[slot]
                        if (done := queue.settle(job, attempt)) is not None:
                            progress.pause()
                            yield done
        finally:
            for worker in workers.values():
                worker.connection.close()  # upon which it saves its run and exits
            for worker in workers.values():
                worker.process.join()


class _Worker:
    """A process that runs one job after another.

    Args:
        slot: its number; it decides the GPU.
        slots: number of workers that share the cores of this machine.
    """

    def __init__(self, slot: int, slots: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        threads = max(1, torch.get_num_threads() // slots)
        shared = max(runs_at_once(), -(-slots // max(1, torch.cuda.device_count())))
        self.process = context.Process(target=_serve, args=(theirs, _gpu(slot), shared, threads))
        self.process.start()
        theirs.close()

    def send(self, job: Job) -> None:
        """Begin a job. If the process is dead, :meth:`receive` finds that."""
        with contextlib.suppress(BrokenPipeError):
            self.connection.send(job)

    def receive(self) -> Attempt:
        """How the job ended, once the connection is readable; it is closed if the process died."""
        try:
            attempt: Attempt = self.connection.recv()
            return attempt
        except (EOFError, OSError):
            self.connection.close()
            self.process.join()
            code = self.process.exitcode or 0
            return worker_died(f"signal {-code}" if code < 0 else f"exit code {code}")


def _warn_of_turns(workers: int) -> None:
    """Warn where processes on one NVIDIA GPU take turns: then several at once end hardly sooner than one by one."""
    gpus = torch.cuda.device_count() if torch.version.cuda else 0
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps")
    if 0 < gpus < workers and not (pipes / "control").exists():
        shared = f"{workers} workers take turns on {gpus} GPU{'s' * (gpus > 1)}"
        warn(
            f"{shared}, since NVIDIA's multi-process service is not running; start it with: nvidia-cuda-mps-control -d"
        )


def _gpu(slot: int) -> str | None:
    """The value of CUDA_VISIBLE_DEVICES for a worker; GPUs are dealt out in turn."""
    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(count)]
    return names[slot % len(names)] if count else None


def _serve(connection: Connection, gpu: str | None, shared: int, threads: int) -> None:
    """Main function of a worker: one job after another, until its driver closes the connection or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the driver, which closes the connection
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as does a closed terminal
    signal.signal(signal.SIGTERM, _exit)
    print_warnings()
    torch.set_num_threads(threads)
    os.environ[RUNS_AT_ONCE] = str(shared)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    jobs: SimpleQueue[Job] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, jobs), daemon=True).start()
    with contextlib.suppress(Interrupted, BrokenPipeError):
        while True:
            connection.send(run_once(jobs.get()))


def _listen(connection: Connection, jobs: SimpleQueue[Job]) -> None:
    try:
        while True:
            jobs.put(connection.recv())
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)  # a run in progress saves and stops; an idle worker exits


def _exit(number: int, frame: FrameType | None) -> None:
    """Exit regularly, so that the compiler's helper processes end too."""
    sys.exit(128 + number)
