"""The loop of a run, from its first image to its result.

The learner trains on about a second of the stream at a time (a *stretch*), without work of the host in between. All
else happens between two stretches, where no minibatch is half done. Everything that decides a number is in a
checkpoint, so that on a CPU a run that was killed and resumed ends with the same bits as one that was not.

In a process group every process goes through the same run; the main one decides what depends on a clock, measures and
writes, and the others wait for it.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from ocssl.common.console import warn
from ocssl.common.signals import Interrupted, StopRequest
from ocssl.diagnosis import diagnose
from ocssl.errors import CheckpointError, DivergedError, OcsslError, OutOfMemoryError
from ocssl.evaluation import collapsed
from ocssl.learner import Learner
from ocssl.results.result import Result
from ocssl.runs.config import RunConfig
from ocssl.runs.data import Prefetcher, Schedule, Splits
from ocssl.runs.folder import RunFolder
from ocssl.runs.probes import ENCODERLESS, OnProgress, ProbeQueue, encoder_of
from ocssl.runs.progress import Progress, Status
from ocssl.runs.state import START, Measurement, Provenance, RunState, make_result
from ocssl.runs.trackers import Trackers

STRETCH_SECONDS = 1.0  # of a stretch, and so the longest that a request to stop waits while the learner trains


class _Stop(Exception):
    """Ends the work in progress when a stop was requested; a resumed run does that work again."""


@dataclass(eq=False)
class RunLoop:
    """One run in progress; :func:`ocssl.runs.run.start` and :func:`ocssl.runs.run.resume` make them.

    Attributes:
        folder: where it is kept, already this process's own.
        learner, state: as they are at the start, or as a checkpoint had them.
    """

    config: RunConfig
    folder: RunFolder
    learner: Learner
    state: RunState
    splits: Splits
    schedule: Schedule
    provenance: Provenance
    trackers: Trackers
    progress: Progress

    def __post_init__(self) -> None:
        config = self.config
        self.group = self.learner.train_state.group
        self.images = Prefetcher(self.splits.train.dataset, self.schedule, self.group)
        self.probes = ProbeQueue(self.splits, config)
        self.with_floors = config.evaluate == "start" or (config.references and config.evaluate != "never")
        self._stop = StopRequest()
        self._minibatches = 1  # per stretch
        self._saved_at, self._saved_samples = time.monotonic(), self.learner.seen
        self._rate = 0.0
        self._loss: float | None = None
        self._probe: str | None = None

    def complete(self) -> Result:
        """Train, measure and write the result; an :class:`Interrupted` run is saved first."""
        if self.learner.train_state.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.learner.train_state.device)
        with self._stop, self.progress:
            self.trackers.begin(self.config, self.folder, self.warn)
            summary: dict[str, float] = {}
            try:
                try:
                    result = self._train_and_measure()
                except _Stop:
                    raise self._leave() from None
                numbers = {"final": result.final, "avg": result.avg, "cbp": result.cbp_spent}
                summary = {name: value for name, value in numbers.items() if value is not None}
                return result
            except DivergedError as error:
                raise self._failed(error) from error
            except OutOfMemoryError as error:
                raise self._failed(error, f"; go on with: {self.folder.go_on}") from error
            except CheckpointError as error:
                raise self._failed(error, f"; correct that, then: {self.folder.go_on}") from error
            finally:
                self.images.close()
                self.trackers.end(summary)

    def _train_and_measure(self) -> Result:
        config, borders, encode = self.config, self.schedule.borders, encoder_of(self.learner, self.config)
        if self.with_floors and START not in self.state.measured:
            self._measure(START, encode)
        if config.evaluate == "start":
            return self._finish()
        for number in range(self.state.finished, len(borders)):
            self._train_until(borders[number])
            last = number + 1 == len(borders)
            if config.evaluate == "each" or (last and config.evaluate == "final"):
                self._measure(str(number + 1), encode)
            if not last:
                self.learner.boundary()
            self.state.finished = number + 1
            self.state.seconds_at.append(self.state.train_seconds)
            self._update(important=True)
            self._between_stretches()
        return self._finish()

    # ------------------------------------------------------------------ training

    def _train_until(self, border: int) -> None:
        learner, size = self.learner, self.learner.config.stream_batch
        log_every = self.config.log_every * size
        anneal_at = self._anneal_at()
        while learner.seen < border:
            next_log = learner.seen - learner.seen % log_every + log_every
            began, stop = learner.seen, min(border, next_log, learner.seen + self._minibatches * size)
            if began < anneal_at:
                stop = min(stop, anneal_at)
            elif began == anneal_at:
                learner.anneal()
            prepared, trained = learner.executor.preparing, self.state.train_seconds
            with self._timed("train_seconds"):
                learner.partial_fit(self.images.take(began, stop))
            prepared = learner.executor.preparing - prepared
            self.state.train_seconds -= prepared
            self.state.prepare_seconds += prepared
            self._keep_pace(stop - began, self.state.train_seconds - trained)
            if learner.seen == next_log or learner.seen == len(self.schedule):
                self._log()
            self._update()
            self._between_stretches()

    def _anneal_at(self) -> int:
        """The image from which on the learning rate falls to 0 until the end of the run; -1: never."""
        learner = self.learner.config
        steps = self.learner.train_state.optimizer.options.anneal
        if not steps:
            return -1
        minibatches = -(-steps // learner.passes)
        return max(0, len(self.schedule) // learner.stream_batch - minibatches) * learner.stream_batch

    def _keep_pace(self, trained: int, seconds: float) -> None:
        now = trained / seconds
        self._rate = now if self._rate == 0 else 0.9 * self._rate + 0.1 * now
        full = trained == self._minibatches * self.learner.config.stream_batch
        if full and seconds < STRETCH_SECONDS / 2:
            self._minibatches *= 2
        elif seconds > STRETCH_SECONDS:
            self._minibatches = max(1, self._minibatches // 2)
        self._minibatches = self.group.broadcast(self._minibatches)

    def _log(self) -> None:
        self.learner.check_finite()
        losses, signs = self.learner.losses, diagnose(self.learner)
        self._loss = losses["total"]
        spent = self.learner.budget
        samples, of = self.learner.seen, len(self.schedule)
        line = {"kind": "train", "samples": samples, "of": of, "steps": spent.steps, "cbp": spent.spent}
        self.folder.append({**line, "losses": losses, **signs})
        self.trackers.log(
            {f"loss/{name}": value for name, value in losses.items()} | signs | {"cbp": spent.spent}, self.learner.seen
        )
        reason = collapsed(signs.get("feature_std"), signs.get("effective_rank"))
        if reason and not self.state.collapsed:
            self.warn(f"at image {self.learner.seen} {reason}")
        self.state.collapsed = reason is not None

    def _between_stretches(self) -> None:
        """Everything that a run does besides training and measuring: stop where asked, save where due."""
        if self.group.any(self._stop.pending):
            raise _Stop
        minutes, samples = self.config.checkpoint_minutes, self.config.checkpoint_samples
        by_clock = minutes > 0 and time.monotonic() - self._saved_at >= 60 * minutes
        by_samples = samples is not None and self.learner.seen // samples > self._saved_samples // samples
        if self.group.broadcast(by_clock or by_samples):
            self._save()

    # ------------------------------------------------------------------ measuring

    def _measure(self, point: str, encode: Callable[[Tensor], Tensor]) -> None:
        samples = 0 if point in ENCODERLESS else self.learner.seen
        if not self.group.is_main:
            self.state.measured[point] = Measurement(samples, None, None)
            return
        with self._timed("eval_seconds"), self.group.no_timeout():
            features = self.probes.extract(encode, self._work("features"))
            found = Measurement(samples, None, self.probes.knn(features) if self.config.knn else None)
        self.probes.add(point, features)
        self.state.measured[point] = found
        if found.knn is not None:
            self._probe = f"k-NN {found.knn.percent:.1f} %"
        if self.probes.full:
            self._run_probes()

    def _run_probes(self) -> None:
        """Train the probes that wait and record their accuracies."""
        with self._timed("eval_seconds"), self.group.no_timeout():
            linear = self.probes.run(self._work("probe"))
        for point, accuracy in linear.items():
            found = self.state.measured[point]
            found.linear = accuracy
            numbers = {"linear": accuracy.percent} | ({"knn": found.knn.percent} if found.knn else {})
            self.folder.append({"kind": "probe", "point": point, "samples": found.samples, **numbers})
            self.trackers.log({f"probe/{name}": value for name, value in numbers.items()}, found.samples)
            self._probe = f"probe {accuracy.percent:.1f} %"

    # ------------------------------------------------------------------ saving, stopping, ending

    def _save(self) -> None:
        self._run_probes()  # features are never saved, only what the probes made of them
        state = {
            **asdict(self.state),
            "config": self.config.digest(),
            "samples": self.learner.seen,
            "threads": torch.get_num_threads(),
            "provenance": self.provenance.model_dump(),
        }
        place = self.folder.save(self.learner, state, self.config.keep_checkpoints)
        self._saved_at, self._saved_samples = time.monotonic(), self.learner.seen
        self.folder.note(f"saved {place.name} at image {self.learner.seen}")

    def _finish(self) -> Result:
        config = self.config
        self._run_probes()
        for floor, encode in ENCODERLESS.items() if self.with_floors else ():
            if floor not in self.state.measured:
                self._measure(floor, encode)
                self._run_probes()  # alone: the probes of a stack have features of one length
        self._save()
        self.folder.write_encoder(self.learner.network.state_dict())
        result = make_result(config, self.schedule, self.learner, self.state, self.provenance)
        self.folder.write_result(result.to_json())
        self.folder.note("finished")
        return result

    def _leave(self) -> Interrupted:
        self._stop.pending = False
        if self.learner.train_state.device.type == "cpu":  # the probe in progress takes long; it is begun again later
            for point in self.probes.clear():
                del self.state.measured[point]
        self._save()
        number = self._stop.number or signal.SIGTERM  # in a group, another process may have got the signal
        self.folder.note(f"stopped by signal {number:d}")
        message = f"stopped and saved at image {self.learner.seen}; go on with: {self.folder.go_on}"
        return Interrupted(message, number)

    def _failed(self, error: OcsslError, advice: str = "") -> OcsslError:
        """The error with the last checkpoint and advice; the log gets it, too."""
        last = self.folder.checkpoints.last
        kept = f"the last good checkpoint is {last}" if last else "there was no checkpoint yet"
        message = f"{error}; {kept}{advice}"
        with contextlib.suppress(CheckpointError):
            self.folder.note(message)
        return type(error)(message)

    # ------------------------------------------------------------------ reporting

    def _update(self, *, important: bool = False) -> None:
        borders = self.schedule.borders
        status = Status(
            samples=self.learner.seen,
            total=len(self.schedule),
            experience=min(self.state.finished + 1, len(borders)),
            experiences=len(borders),
            cbp=self.learner.budget.spent,
            cbp_planned=self.state.cbp_before + self.schedule.cbp,
            rate=self._rate,
            loss=self._loss,
            probe=self._probe,
            preparing=self.learner.executor.preparing,
        )
        self.progress.update(status, important=important)

    def _work(self, what: str) -> OnProgress:
        def progress(done: int, total: int) -> None:
            if self._stop.pending and self.group.single:  # in a group, no process leaves while others wait
                raise _Stop
            self.progress.work(what, done, total)

        return progress

    def warn(self, text: str) -> None:
        """Warn: on the terminal, in the log and in the result."""
        self.state.warnings.append(text)
        self.folder.note(f"warning: {text}")
        warn(text)

    @contextlib.contextmanager
    def _timed(self, account: str) -> Iterator[None]:
        """Add the seconds that the device takes for the work inside to a field of the state."""
        began = time.perf_counter()
        try:
            yield
        finally:
            seconds = _seconds_since(began, self.learner.train_state.device)
            setattr(self.state, account, getattr(self.state, account) + seconds)


def _seconds_since(began: float, device: torch.device) -> float:
    """Wait until the device has finished its work, and read the time."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began
