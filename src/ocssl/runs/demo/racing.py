"""Train the demo's strategies side by side on one stream, and probe them along it.

Each strategy has a thread of its own and each thread one core: such small networks gain more from this than from
several cores per operation, and the numbers do not depend on how many cores there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

import torch
from torch import Tensor

from ocssl.data import shapes, streams
from ocssl.data.streams import Stream
from ocssl.device import threads
from ocssl.evaluation import extract, linear_probe
from ocssl.learner import Learner
from ocssl.runs.demo.network import NarrowResNet
from ocssl.runs.demo.plan import DemoPlan
from ocssl.runs.demo.report import Entry, SeedResult


@dataclass(frozen=True)
class Moment:
    """A strategy has seen so many images of the stream; ``accuracy`` when it was probed there."""

    name: str
    seen: int
    accuracy: float | None = None


class _Stopped(Exception):
    """Another strategy failed, or somebody pressed Ctrl-C."""


@dataclass(frozen=True)
class _Probe:
    """Labelled images that no strategy ever sees, and the linear probe on them."""

    plan: DemoPlan
    images: Tensor
    labels: Tensor

    @classmethod
    def draw(cls, plan: DemoPlan, seed: int) -> _Probe:
        return cls(plan, *shapes.draw(plan.train + plan.val + plan.test, seed=seed))

    def accuracy(self, encode: Callable[[Tensor], Any]) -> float:
        plan, features = self.plan, extract(encode, self.images)
        parts = zip(
            features.split([plan.train, plan.val, plan.test]),
            self.labels.split([plan.train, plan.val, plan.test]),
            strict=True,
        )
        (train, train_labels), (val, val_labels), (test, test_labels) = parts
        return linear_probe(train, train_labels, val, val_labels, test, test_labels, seed=0).accuracy


def measuring_points(plan: DemoPlan) -> tuple[int, ...]:
    """Images seen at each probe, the last at the stream's end.

    >>> measuring_points(DemoPlan(stream=1800, probes=3))
    (600, 1200, 1800)
    """
    return tuple(plan.stream * (probe + 1) // plan.probes for probe in range(plan.probes))


def race(plan: DemoPlan, seed: int, watch: Callable[[Moment], None]) -> SeedResult:
    """Run every strategy of the plan on the stream of one seed.

    Args:
        watch: called, from several threads, after every stream minibatch and every probe.
    """
    images, labels = shapes.draw(plan.stream, seed=2 * seed)
    probe = _Probe.draw(plan, seed=2 * seed + 1)
    stream = streams.class_incremental(
        labels, plan.experiences, data_seed=seed, stream_batch=plan.stream_batch, last="carry"
    )
    with threads(1):
        # Building draws weights from torch's global generator, which threads must not share.
        learners = {name: _learner(settings, plan, seed) for name, settings in plan.contenders().items()}
        references = {
            "raw pixels": probe.accuracy(lambda images: images.flatten(1).float() / 255),
            "untrained encoder": probe.accuracy(next(iter(learners.values())).encode),
        }
        stop = Event()
        with ThreadPoolExecutor(len(learners)) as pool:
            try:
                runs = [
                    pool.submit(_run, name, learner, images, stream, probe, watch, stop)
                    for name, learner in learners.items()
                ]
                entries = tuple(run.result() for run in runs)
            except BaseException:
                stop.set()
                raise
    return SeedResult(seed, references, entries, _class_order(labels, stream))


def _learner(settings: dict[str, Any], plan: DemoPlan, seed: int) -> Learner:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Learner(backbone=NarrowResNet(plan.width), seed=seed, **settings)


def _run(
    name: str,
    learner: Learner,
    images: Tensor,
    stream: Stream,
    probe: _Probe,
    watch: Callable[[Moment], None],
    stop: Event,
) -> Entry:
    started, curve, points = time.perf_counter(), [], set(measuring_points(probe.plan))
    for minibatch in stream.minibatches():
        if stop.is_set():
            raise _Stopped
        learner.partial_fit(images[minibatch.indices])
        moment = Moment(name, minibatch.seen)
        if minibatch.seen in points:
            curve.append(probe.accuracy(learner.encode))
            moment = replace(moment, accuracy=curve[-1])
        watch(moment)
    settings = {**learner.get_params(), "backbone": f"NarrowResNet(width={probe.plan.width})"}
    return Entry(name, tuple(curve), learner.budget.spent, time.perf_counter() - started, settings)


def _class_order(labels: Tensor, stream: Stream) -> tuple[str, ...]:
    """The classes by name, as their experiences arrive."""
    groups = (sorted(set(labels[stream.indices(number)].tolist())) for number in range(stream.experiences))
    return tuple(shapes.CLASSES[label] for group in groups for label in group)
