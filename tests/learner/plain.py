"""Training as the paper tells it, slowly: plain modules, torch's own SGD, a dictionary as memory, sample by sample.

Only what is drawn comes from the learner under test: its views, and which samples it replays.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import ocssl

ALIGNED = {"cla-b": "stream", "cassle": "stream", "cla-e": "replay", "cla-r": "replay", "cassle-r": "replay"}
AVERAGED = ("cla-b", "cla-e")  # aligned to a moving average of the network
FROZEN = ("cassle", "cassle-r")  # aligned to the network as it was at the last border
REPLAYS = ("er", "cla-e", "cla-r", "cassle-r")


@dataclass
class Drawn:
    """What a learner drew for one pass: the images that it made views of, the views, the slots it replayed."""

    images: Tensor
    views: Tensor
    slots: list[int]


def watch(learner: ocssl.Learner) -> list[Drawn]:
    """A list to which the learner's draws will be added, pass by pass."""
    passes: list[Drawn] = []
    slots: list[int] = []
    augment, memory = learner.train_state.augment, learner.train_state.memory
    apply = augment.apply

    def watched_apply(images: Tensor, draws: Any) -> Tensor:
        views = apply(images, draws)
        n = len(images) // 2
        passes.append(Drawn(images[:n].clone(), views.clone().view(2, n, *views.shape[1:]), [*slots]))
        slots.clear()
        return views

    augment.apply = watched_apply  # type: ignore[method-assign]
    if memory is not None:
        sample = memory.sample

        def watched_sample(n: int, generator: torch.Generator) -> Tensor:
            drawn = sample(n, generator)
            slots.extend(drawn.tolist())
            return drawn

        memory.sample = watched_sample  # type: ignore[method-assign]
    return passes


class Plain:
    """A twin of an untrained learner.

    Args:
        alone: each view passes the network alone, and has batch-norm statistics of its own.
        together: target and aligner see both views at once whatever the network does.
    """

    def __init__(self, learner: ocssl.Learner, *, alone: bool, together: bool) -> None:
        train_state = learner.train_state
        self.strategy, self.passes = learner.strategy, learner.passes
        self.capacity = getattr(learner.config, "memory_size", 0)
        self.replayed = learner.batch - learner.stream_batch
        self.alone, self.aligned_alone = alone, alone and not together
        self.network = nn.Sequential(*copy.deepcopy([train_state.encoder.backbone, train_state.encoder.projector]))
        self.predictor = copy.deepcopy(getattr(train_state.strategy.method, "predictor", None))
        self.aligner = copy.deepcopy(getattr(train_state.strategy, "aligner", None))
        self.omega, self.tau = getattr(train_state.strategy, "omega", 0.0), getattr(learner.config, "tau", 0.0)
        target = getattr(train_state.strategy, "target", None)
        aligned_from_start = hasattr(target, "network") and target.ready
        self.teacher = copy.deepcopy(self.network) if aligned_from_start else None
        trained = [p for part in (self.network, self.predictor, self.aligner) if part for p in part.parameters()]
        self.optimizer = torch.optim.SGD(trained, lr=learner.lr, momentum=0.9, weight_decay=1e-4)
        self.kept: dict[int, Tensor] = {}
        self.features: dict[int, Tensor] = {}  # z*
        self.arrived = 0

    def fit(self, stream: Tensor, draws: Iterator[Drawn]) -> None:
        """All passes over one stream minibatch, then its way into the memory."""
        for _ in range(self.passes):
            z = self.step(stream, next(draws))
        if self.strategy in REPLAYS:
            for i, image in enumerate(stream):
                slot = self.arrived % self.capacity  # the oldest makes room
                self.kept[slot] = image
                self.features[slot] = ((z[0][i] + z[1][i]) / 2).detach()
                self.arrived += 1

    def border(self) -> None:
        """The experience has ended."""
        if self.strategy in FROZEN:
            self.teacher = copy.deepcopy(self.network)

    def step(self, stream: Tensor, drawn: Drawn) -> list[Tensor]:
        """One pass; the features of both views before the update."""
        replaying = self.strategy in REPLAYS and len(self.kept) > self.replayed
        slots = drawn.slots if replaying else []
        assert slots == drawn.slots, "replay begins when more samples are kept than a batch takes"
        assert len(set(slots)) == len(slots) == (self.replayed if replaying else 0)
        images = [*stream, *(self.kept[slot] for slot in slots)]
        assert torch.equal(torch.stack(images), drawn.images)

        z = self.pass_views(self.network, [*drawn.views], self.alone)
        loss = self.simsiam(z) if self.predictor is not None else simclr(z)
        rows = range(len(stream)) if ALIGNED.get(self.strategy) == "stream" else range(len(stream), len(images))
        if self.aligner is not None and rows and (self.teacher is not None or self.strategy == "cla-r"):
            loss = loss + self.omega * self.alignment(z, [*drawn.views], rows, slots)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

        if self.strategy in AVERAGED:
            for average, present in zip(self.teacher.parameters(), self.network.parameters(), strict=True):
                average.data = self.tau * average.data + (1 - self.tau) * present.data
        for i, slot in enumerate(slots, start=len(stream)):
            self.features[slot] = 0.5 * self.features[slot] + 0.5 * ((z[0][i] + z[1][i]) / 2).detach()
        return z

    def pass_views(self, network: nn.Module, views: list[Tensor], alone: bool) -> list[Tensor]:
        if alone:
            return [network(view) for view in views]
        return [*network(torch.cat(views)).chunk(2)]

    def simsiam(self, z: list[Tensor]) -> Tensor:
        p = self.pass_views(self.predictor, z, self.alone)
        n = len(z[0])
        return -sum(cosine(p[0][i], z[1][i].detach()) + cosine(p[1][i], z[0][i].detach()) for i in range(n)) / (2 * n)

    def alignment(self, z: list[Tensor], views: list[Tensor], rows: range, slots: list[int]) -> Tensor:
        predicted = self.pass_views(self.aligner, [of_view[rows] for of_view in z], self.aligned_alone)
        if self.strategy == "cla-r":
            targets = [torch.stack([self.features[slot] for slot in slots])] * 2
        else:
            with torch.no_grad():
                targets = self.pass_views(self.teacher, [view[rows] for view in views], self.aligned_alone)
        n = len(rows)
        return -sum(cosine(predicted[v][i], targets[v][i]) for v in range(2) for i in range(n)) / (2 * n)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / (a.square().sum().sqrt() * b.square().sum().sqrt())


def simclr(z: list[Tensor]) -> Tensor:
    n, everything = len(z[0]), [*z[0], *z[1]]
    likeness = [[torch.zeros((), dtype=z[0].dtype)] * (2 * n) for _ in everything]  # zero to itself
    for i, j in itertools.combinations(range(2 * n), 2):
        likeness[i][j] = likeness[j][i] = (cosine(everything[i], everything[j]) / 0.5).exp()
    return -sum((likeness[i][(i + n) % (2 * n)] / sum(likeness[i])).log() for i in range(2 * n)) / (2 * n)
