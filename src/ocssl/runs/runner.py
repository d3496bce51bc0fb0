"""A run from its first image to its result.

The learner is fed stretches of the stream, about a second each, with no work of the host in between; whatever a run
does besides training happens between two stretches, where no minibatch is half done. Everything that decides a number
is in a checkpoint, so that on a CPU a run that was killed and resumed ends with the same bits as one that was not.

In a group of processes everybody goes through the same run; the first one decides what hangs on a clock, measures and
writes, and the others wait for it.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ocssl.common.signals import Interrupted, StopRequest
from ocssl.errors import CheckpointError, DivergedError, OutOfMemoryError
from ocssl.learner import Learner
from ocssl.results.result import Result
from ocssl.runs.config import RunConfig
from ocssl.runs.diagnosis import collapse, diagnose
from ocssl.runs.feed import Prefetcher
from ocssl.runs.folder import RunFolder
from ocssl.runs.material import Splits
from ocssl.runs.measuring import ProbeQueue, extract, frozen, raw_pixels
from ocssl.runs.progress import Progress, Status
from ocssl.runs.route import Schedule
from ocssl.runs.state import Measured, State
from ocssl.runs.summary import summarise
from ocssl.runs.trackers import Loggers

STRETCH_SECONDS = 1.0  # how long the learner is left alone, and how long a request to stop may wait
START = "start"
PIXELS = "pixels"


class _Stop(Exception):
    """Leave whatever is going on; it can be done again."""


class Run:
    """One run in progress; :mod:`ocssl.runs.launch` makes them.

    Args:
        config: every setting.
        folder: where it is kept, already this process's own.
        learner, state: as they are at the start, or as a checkpoint had them.
        material: what is learned from and measured on.
        route: the way through it.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        learner: Learner,
        state: State,
        material: Splits,
        route: Schedule,
        trackers: Loggers,
        reporter: Progress,
    ) -> None:
        self.config = config
        self.folder = folder
        self.learner = learner
        self.state = state
        self.material = material
        self.route = route
        self.trackers = trackers
        self.reporter = reporter
        self.group = learner.train_state.group
        self.feed = Prefetcher(material.train.pool, route, self.group)
        self.bench = ProbeQueue(material, seed=config["seed"], schedule=config.probe)
        self._stop = StopRequest()
        self._minibatches = 1  # per stretch
        self._saved_at, self._saved_samples = time.monotonic(), learner.seen
        self._rate = 0.0
        self._loss: float | None = None
        self._probe: str | None = None

    def complete(self) -> Result:
        """Train, measure and write the result; an :class:`Interrupted` run is saved first."""
        if self.learner.train_state.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.learner.train_state.device)
        with self._stop, self.reporter:
            self.trackers.warn = self._warn
            self.trackers.begin(self.config, self.folder)
            summary: dict[str, float] = {}
            try:
                result = self._train_or_leave()
                numbers = {"final": result.final, "avg": result.avg, "cbp": result.cbp_spent}
                summary = {name: value for name, value in numbers.items() if value is not None}
                return result
            except DivergedError as error:
                raise self._failed(DivergedError(f"{error}; {self._last_checkpoint()}")) from error
            except OutOfMemoryError as error:
                go_on = f"{self._last_checkpoint()}; go on with: {self.folder.go_on}"
                raise self._failed(OutOfMemoryError(f"{error}; {go_on}")) from error
            except CheckpointError as error:
                go_on = f"{self._last_checkpoint()}; free some space, then: {self.folder.go_on}"
                raise self._failed(CheckpointError(f"{error}; {go_on}")) from error
            finally:
                self.feed.close()
                self.trackers.end(summary)

    def _train_or_leave(self) -> Result:
        try:
            return self._train_and_measure()
        except _Stop:
            raise self._leave() from None

    def _train_and_measure(self) -> Result:
        config, borders = self.config, self.route.borders
        if config.references and config.evaluate != "never" and START not in self.state.measured:
            self._measure(START)
        for number in range(self.state.finished, len(borders)):
            self._train_until(borders[number])
            last = number + 1 == len(borders)
            if config.evaluate == "each" or (last and config.evaluate == "final"):
                self._measure(str(number + 1))
            if not last:
                self.learner.boundary()
            self.state.finished = number + 1
            self.state.seconds_at.append(self.state.train_seconds)
            self._update(important=True)
            self._between_stretches()
        return self._finish()

    # ------------------------------------------------------------------ training

    def _train_until(self, border: int) -> None:
        learner, size = self.learner, self.learner.stream_batch
        log_every = self.config.log_every * size
        while learner.seen < border:
            next_log = learner.seen - learner.seen % log_every + log_every
            began, stop = learner.seen, min(border, next_log, learner.seen + self._minibatches * size)
            prepared = learner.executor.preparing
            with self._timed("train_seconds") as watch:
                learner.partial_fit(self.feed.take(began, stop))
            prepared = learner.executor.preparing - prepared
            self.state.train_seconds -= prepared
            self.state.prepare_seconds += prepared
            self._keep_pace(stop - began, watch.seconds - prepared)
            if learner.seen == next_log or learner.seen == len(self.route):
                self._log()
            self._update()
            self._between_stretches()

    def _keep_pace(self, trained: int, seconds: float) -> None:
        now = trained / seconds
        self._rate = now if self._rate == 0 else 0.9 * self._rate + 0.1 * now
        full = trained == self._minibatches * self.learner.stream_batch
        if full and seconds < STRETCH_SECONDS / 2:
            self._minibatches *= 2
        elif seconds > STRETCH_SECONDS:
            self._minibatches = max(1, self._minibatches // 2)
        self._minibatches = self.group.agree(self._minibatches)

    def _log(self) -> None:
        self.learner.check_finite()
        losses, signs = self.learner.losses, diagnose(self.learner)
        self._loss = losses["total"]
        spent = self.learner.budget
        line = {"kind": "train", "samples": self.learner.seen, "steps": spent.steps, "cbp": spent.spent}
        self.folder.append({**line, "losses": losses, **signs})
        self._track({f"loss/{name}": value for name, value in losses.items()} | signs | {"cbp": spent.spent})
        reason = collapse(signs)
        if reason and not self.state.collapsed:
            self._warn(f"at image {self.learner.seen} {reason}")
        self.state.collapsed = reason is not None

    def _between_stretches(self) -> None:
        """The moment for everything that a run does besides training."""
        if self.group.any(self._stop.pending):
            raise _Stop
        minutes, samples = self.config.checkpoint_minutes, self.config.checkpoint_samples
        by_clock = minutes > 0 and time.monotonic() - self._saved_at >= 60 * minutes
        by_samples = samples is not None and self.learner.seen // samples > self._saved_samples // samples
        if self.group.agree(by_clock or by_samples):
            self._save()

    # ------------------------------------------------------------------ measuring

    def _measure(self, moment: str) -> None:
        if not self.group.leads:
            self.state.measured[moment] = Measured(self.learner.seen)
            return
        with self._timed("eval_seconds"), self.group.at_length():
            features = extract(frozen(self.learner), self.material, self._work("features"))
            found = Measured(self.learner.seen, knn=self.bench.knn(features) if self.config.knn else None)
        self.bench.add(moment, features)
        self.state.measured[moment] = found
        if found.knn is not None:
            self._probe = f"k-NN {found.knn.percent:.1f} %"
        if self.bench.due:
            self._settle()

    def _settle(self) -> None:
        """Train the probes that wait and put down what they say."""
        with self._timed("eval_seconds"), self.group.at_length():
            linear = self.bench.settle(self._work("probe"))
        for moment, accuracy in linear.items():
            found = self.state.measured[moment]
            found.linear = accuracy
            numbers = {"linear": accuracy.percent} | ({"knn": found.knn.percent} if found.knn else {})
            self.folder.append({"kind": "probe", "moment": moment, "samples": found.samples, **numbers})
            self._track({f"probe/{name}": value for name, value in numbers.items()}, found.samples)
            self._probe = f"probe {accuracy.percent:.1f} %"

    def _measure_pixels(self) -> None:
        with self._timed("eval_seconds"), self.group.at_length():
            pixels = extract(raw_pixels, self.material, self._work("pixels"))
        self.bench.add(PIXELS, pixels)
        self.state.measured[PIXELS] = Measured(0)
        self._settle()

    # ------------------------------------------------------------------ saving, stopping, ending

    def _save(self) -> None:
        self._settle()  # features are never saved, only what the probes made of them
        besides = {"config": self.config.digest(), "samples": self.learner.seen, "threads": torch.get_num_threads()}
        state = self.state.to_dict() | besides
        place = self.folder.save(self.learner, state, self.config.keep_checkpoints)
        self._saved_at, self._saved_samples = time.monotonic(), self.learner.seen
        self.folder.note(f"saved {place.name} at image {self.learner.seen}")

    def _finish(self) -> Result:
        config = self.config
        self._settle()
        wanted = config.references and config.evaluate != "never" and PIXELS not in self.state.measured
        if wanted and self.group.leads:
            self._measure_pixels()
        self._save()
        self.folder.write_encoder(self.learner.network.state_dict())
        result = summarise(config, self.route, self.learner, self.state)
        self.folder.write_result(result.to_json())
        self.folder.note("finished")
        return result

    def _leave(self) -> Interrupted:
        self._stop.pending = False
        if (
            self.learner.train_state.device.type == "cpu"
        ):  # the probe under way would take long; it is begun again later
            for moment in self.bench.forget():
                del self.state.measured[moment]
        self._save()
        self.folder.note(f"stopped by signal {self._stop.number}")
        message = f"stopped and saved at image {self.learner.seen}; go on with: {self.folder.go_on}"
        return Interrupted(message, self._stop.number or signal.SIGTERM)

    def _failed(self, error: Exception) -> Exception:
        with contextlib.suppress(CheckpointError):
            self.folder.note(str(error))
        return error

    def _last_checkpoint(self) -> str:
        checkpoints = self.folder.list_checkpoints()
        return f"the last good checkpoint is {checkpoints[-1]}" if checkpoints else "there was no checkpoint yet"

    # ------------------------------------------------------------------ telling

    def _update(self, *, important: bool = False) -> None:
        borders = self.route.borders
        status = Status(
            samples=self.learner.seen,
            total=len(self.route),
            experience=min(self.state.finished + 1, len(borders)),
            experiences=len(borders),
            cbp=self.learner.budget.spent,
            cbp_planned=self.state.cbp_before + self.route.cbp,
            rate=self._rate,
            loss=self._loss,
            probe=self._probe,
            preparing=self.learner.executor.preparing,
        )
        self.reporter.update(status, important=important)

    def _work(self, what: str) -> Any:
        def progress(done: int, total: int) -> None:
            if self._stop.pending and self.group.alone:  # in a group, nobody leaves while others wait
                raise _Stop
            self.reporter.work(what, done, total)

        return progress

    def _track(self, numbers: Mapping[str, float], samples: int | None = None) -> None:
        self.trackers.log(numbers, self.learner.seen if samples is None else samples)

    def _warn(self, text: str) -> None:
        self.state.warnings.append(text)
        self.folder.note(f"warning: {text}")
        self.reporter.warn(text)

    @contextlib.contextmanager
    def _timed(self, account: str) -> Iterator[_Watch]:
        watch = _Watch(self.learner.train_state.device)
        try:
            yield watch
        finally:
            setattr(self.state, account, getattr(self.state, account) + watch.stop())


class _Watch:
    """Seconds, until the device has caught up."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._began = time.perf_counter()
        self.seconds = 0.0

    def stop(self) -> float:
        """Wait for the device and read the time."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.seconds = time.perf_counter() - self._began
        return self.seconds
