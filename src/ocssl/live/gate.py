"""Which encoder of a live learner is published: one that is not worse than the best so far, measured without labels.

The gate keeps images evenly from the stream. At fixed numbers of images it compares three encoders on them: that of the
start, the best so far, and the learner's present one. Where the images have an order in time, the score of an encoder
is its share of neighbours in time, else the effective rank of its features, which tells only whether features collapse.
A learner whose score falls goes back to the best one with half the learning rate.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ocssl import checkpoint
from ocssl.errors import CheckpointError, DivergedError
from ocssl.evaluation import effective_rank
from ocssl.evaluation.quality import (
    colour_histogram,
    find_order,
    in_common,
    in_time,
    nearest,
    raw_pixels,
    standard_error,
)
from ocssl.export.encoder import FrozenEncoder, of_learner, with_facts
from ocssl.learner import Learner, LearnerSnapshot
from ocssl.live.sample import EvenSample

MIN_KEPT = 100  # kept images; with fewer nothing is measured
ORDERED = 4.0  # z of a yardstick from which a stream counts as ordered
CLEARLY = 2.0  # standard errors below the best at which learning goes back at once
PATIENCE = 3  # checks in a row without an encoder that can be published, after which learning goes back
RANK_ERROR = 0.05  # counts as the standard error of an effective rank, as a share of it
HELP_ERRORS = 2.0  # standard errors by which neighbours in time have to rise for learning to have helped
HELP_RISE = 0.005  # the least such rise: that of a network that hardly changed has a standard error of nearly 0
MAX_HALVINGS = 20
SHARES = (0.25, 0.5, 0.75, 1.0)  # of what was learned, besides 0
KIND = "gate"


@dataclass(frozen=True)
class Quality:
    """Numbers of a check; shares are between 0 and 1.

    Attributes:
        seen: images learned from.
        order: the largest z of the yardsticks; the stream counts as ordered from 4 on.
        in_time: neighbours in time of the learner's encoder; ``published``, ``start``, ``pixels`` and ``colours`` are
            those of the encoder that is published, of the encoder at the start, and of the yardsticks.
        chance: neighbours in time of features that know nothing.
        error: standard error of ``published - start``; states of earlier versions hold that of ``in_time - start``.
        rank: effective rank of the learner's encoder; ``rank_published`` and ``rank_start`` are those of the others.
        agreement: neighbours that the learner's encoder has in common with the start's, on the reference images where
            there are any; ``agreement_published`` is that of the published encoder.
        teacher: neighbours in time of the network that teaches the learner; None where there is none.
        gap, window: which of the kept images are close in time, by the number of kept images between; None in checks
            of older versions.
    """

    seen: int
    order: float
    in_time: float
    published: float
    start: float
    pixels: float
    colours: float
    chance: float
    error: float
    rank: float
    rank_published: float
    rank_start: float
    agreement: float
    agreement_published: float
    teacher: float | None = None
    gap: int | None = None
    window: int | None = None

    @property
    def ordered(self) -> bool:
        """Whether neighbours in time mean anything on this stream."""
        return self.order >= ORDERED

    @property
    def least_rise(self) -> float:
        """The rise of neighbours in time from which learning has helped."""
        return max(HELP_ERRORS * self.error, HELP_RISE)

    @property
    def helped(self) -> bool:
        """Whether the published encoder is clearly better than the one at the start."""
        if self.ordered:
            return self.published - self.start >= self.least_rise
        return self.rank_published > self.rank_start * (1 + RANK_ERROR)


class Measured:
    """An encoder, its features of the kept images, and neighbours among the reference images once they are known."""

    def __init__(self, encoder: FrozenEncoder, positions: Tensor | None = None, features: Tensor | None = None) -> None:
        self.encoder = encoder
        self.positions = torch.empty(0, dtype=torch.int64) if positions is None else positions
        self.features = torch.empty(0, encoder.feature_dim) if features is None else features
        self.on_reference: Tensor | None = None

    def on(self, sample: EvenSample) -> Tensor:
        """Features ``(n, d)`` of the kept images; only those of new images are computed."""
        stay = torch.isin(self.positions, sample.positions)
        new = ~torch.isin(sample.positions, self.positions)
        parts = [self.features[stay]]
        if bool(new.any()):
            parts.append(torch.from_numpy(self.encoder.transform(sample.images[new])))
        self.positions, self.features = sample.positions, torch.cat(parts)
        return self.features


class Gate:
    """Measures a learner's encoder at fixed numbers of images, and holds the encoder to publish.

    Args:
        learner: as it is at the start.
        check_every: images between two checks.
        sample_size: most images that are kept.
        reference: images ``(n, 3, s, s)`` uint8 on which features must not change much; None: the kept images.
        least_agreement: of neighbours with the start, for an encoder to be published. It counts where there are
            reference images, or where the strategy mixes the start's weights with those learned.
        active: False: measure, and publish every encoder.

    Attributes:
        sample: the kept images.
        quality: numbers of the last check.
        halvings: how often learning went back, each time with half the learning rate.
    """

    def __init__(
        self,
        learner: Learner,
        *,
        check_every: int = 500,
        sample_size: int = 1000,
        reference: Tensor | None = None,
        least_agreement: float = 0.5,
        active: bool = True,
    ) -> None:
        self.sample = EvenSample(sample_size // 2 * 2, learner.config.image_size)
        self.quality: Quality | None = None
        self.halvings = 0
        self.reference, self.active = reference, active
        self._check_every, self._least = check_every, least_agreement
        self._start = self._best = self._published = Measured(of_learner(learner))
        self._teacher = _teacher(learner)
        self._first = self._snapshot = learner.snapshot()  # of the start and of the best
        self._checked, self._waited = learner.seen, 0

    @property
    def published(self) -> FrozenEncoder:
        """The encoder to publish."""
        return self._published.encoder

    def due(self, learner: Learner) -> bool:
        """Whether the next check is due."""
        return learner.seen - self._checked >= self._check_every

    def check(self, learner: Learner, *, last: bool = False) -> tuple[Learner, str | None]:
        """Measure, choose the encoder to publish, and let the learner go back where it has become worse.

        Args:
            last: the source is exhausted: nothing goes back.

        Returns:
            the learner to go on with, and a sentence where it went back.
        """
        if len(self.sample) < MIN_KEPT or learner.seen == self._checked:
            return learner, None
        self._checked = learner.seen
        judged = _Judge(self.sample, self._start, self.reference)
        try:
            learner.check_finite()
            now, learned = self._choose_mix(learner, judged)
        except DivergedError as error:
            return self.go_back(learner, str(error))
        if not judged.keeps_up(self._best):  # on the images of today
            self._best, self._snapshot = self._start, self._first
        if not judged.keeps_up(self._published):
            self._published = self._start
        gain, margin = judged.compare(now, self._best)
        agreement, needed = judged.agreement(now), self._needed(learner)
        fit = learned and judged.keeps_up(now) and agreement >= needed
        if fit and gain >= -margin:
            self._published, self._waited = now, 0
            if gain >= 0:
                self._best, self._snapshot = now, learner.snapshot()
        else:
            self._waited += 1
        if not self.active:
            self._published, self._waited = now, 0
        self.quality = judged.quality(learner.seen, now, self._published, self._teacher)
        clear = gain < -CLEARLY * margin
        if last or not self.active or not (clear or self._waited >= PATIENCE):
            return learner, None
        why = judged.sentence(now, self._best)
        if not learned:
            why = "no share of what was learned helps"
        elif agreement < needed and not clear:  # the score may have risen
            why = f"the agreement with the start is {agreement:.1%}, below {needed:.1%}".replace("%", " %")
        return self.go_back(learner, why)

    def go_back(self, learner: Learner, why: str) -> tuple[Learner, str]:
        """The learner at its best moment so far, with half the learning rate, and a sentence that says so."""
        self.halvings, self._waited = self.halvings + 1, 0
        if self.halvings > MAX_HALVINGS:
            raise DivergedError(f"{why}; {MAX_HALVINGS} smaller learning rates did not help either")
        lr = learner.config.to_dict()["lr"] / 2
        best_seen = int(self._best.encoder.facts["seen"])
        back = f"learning goes back to image {best_seen:,} with half the learning rate, {lr:.3g}"
        return learner.go_back(self._snapshot, lr=lr), f"image {learner.seen:,}: {why}; {back}"

    def _choose_mix(self, learner: Learner, judged: _Judge) -> tuple[Measured, bool]:
        """The learner's encoder, and whether it holds anything that was learned.

        Where its strategy mixes weights, the share is one that agrees with the start and keeps up with it: of a stream
        with an order the one with the best score, else the largest. The share 0 holds nothing learned.
        Such a strategy has a method ``remix(share)``: the deployed weights become ``share`` times those learned, plus
        the rest of those at the start.
        """
        remix = getattr(learner.train_state.strategy, "remix", None)
        if remix is None:
            return self._measure(learner), True
        found = {0.0: self._start}
        for share in SHARES:
            remix(share)
            one = self._measure(learner)
            if judged.keeps_up(one) and judged.agreement(one) >= self._least:
                found[share] = one
        share = max(found, key=lambda share: (judged.score(found[share]) if judged.ordered else 0, share))
        remix(share)
        return found[share], share > 0

    def _measure(self, learner: Learner) -> Measured:
        """A copy of the learner's encoder as it is now; features that are not finite are a :class:`DivergedError`."""
        found = Measured(of_learner(learner))
        if not bool(found.on(self.sample).isfinite().all()):
            raise DivergedError("the features became NaN or infinite")
        return found

    def _needed(self, learner: Learner) -> float:
        mixes = hasattr(learner.train_state.strategy, "remix")
        return self._least if mixes or self.reference is not None else 0.0

    # ------------------------------------------------------------------ saving

    def save(self, path: Path) -> None:
        """Write everything that later checks depend on."""
        tensors = {"sample": self.sample.images}
        if self.reference is not None:
            tensors["reference"] = self.reference
        roles = {"start": self._start, "best": self._best, "published": self._published}
        encoders = [*dict.fromkeys(roles.values())]  # several roles may have the same encoder
        for number, one in enumerate(encoders):
            tensors |= {f"encoder{number}.{n}": tensor for n, tensor in one.encoder.backbone.state_dict().items()}
            tensors |= {f"features{number}": one.features, f"positions{number}": one.positions}
        if self._teacher is not None:  # its weights are the learner's
            tensors |= {"teacher_features": self._teacher.features, "teacher_positions": self._teacher.positions}
        moments = {"first": self._first} | ({} if self._snapshot is self._first else {"snapshot": self._snapshot})
        for name, moment in moments.items():
            tensors |= {f"{name}.{place}": tensor for place, tensor in moment.tensors.items()}
        facts = {
            "sample": self.sample.facts(),
            "checked": self._checked,
            "waited": self._waited,
            "halvings": self.halvings,
            "snapshots": {name: moment.strategy for name, moment in moments.items()},
            "quality": None if self.quality is None else asdict(self.quality),
            "encoders": [one.encoder.facts for one in encoders],
            "roles": {role: encoders.index(one) for role, one in roles.items()},
        }
        checkpoint.write(path, KIND, facts, tensors)

    def restore(self, path: Path, learner: Learner) -> None:
        """Go on as the gate that was saved there, of this learner."""
        facts, tensors = checkpoint.read(path, KIND)
        try:
            self.sample.restore(facts["sample"], tensors["sample"])
            self._checked, self._waited, self.halvings = (facts[name] for name in ("checked", "waited", "halvings"))
            self.quality = None if facts["quality"] is None else Quality(**facts["quality"])
            moments = {
                name: LearnerSnapshot(state, checkpoint.sub_state(tensors, f"{name}."))
                for name, state in facts["snapshots"].items()
            }
            self._first, self._snapshot = moments["first"], moments.get("snapshot", moments["first"])
            encoders = [
                self._restored(learner, known, tensors, number) for number, known in enumerate(facts["encoders"])
            ]
            roles = facts["roles"]
            self._start, self._best, self._published = (encoders[roles[r]] for r in ("start", "best", "published"))
            if self.reference is None:
                self.reference = tensors.get("reference")
            if self._teacher is not None:
                self._teacher.features = tensors["teacher_features"]
                self._teacher.positions = tensors["teacher_positions"]
        except (KeyError, TypeError, IndexError, RuntimeError) as error:
            raise CheckpointError(f"'{path}' does not fit this learner: {' '.join(str(error).split())}") from error

    @staticmethod
    def _restored(learner: Learner, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], number: int) -> Measured:
        like = of_learner(learner)
        like.backbone.load_state_dict(checkpoint.sub_state(tensors, f"encoder{number}."))
        encoder = with_facts(like.backbone, like.feature_dim, facts).to(learner.train_state.device)
        return Measured(encoder, tensors[f"positions{number}"], tensors[f"features{number}"])


def _teacher(learner: Learner) -> Measured | None:
    """The yardstick of the learner's strategy, as an encoder of this learner's images."""
    network = learner.train_state.strategy.yardstick()
    if network is None:
        return None
    backbone = copy.deepcopy(network.backbone).float()
    encoder = with_facts(backbone, network.feature_dim, learner.config.to_dict())
    return Measured(encoder.to(learner.train_state.device))


class _Judge:
    """Scores of encoders on the kept images as they are now; what takes long is computed once for each encoder.

    Args:
        reference: images on which the neighbours of the start count; None: the kept images.
    """

    def __init__(self, sample: EvenSample, start: Measured, reference: Tensor | None) -> None:
        self._sample, self._start, self._reference = sample, start, reference
        self._nearest: dict[tuple[Measured, int], Tensor] = {}
        self._ranks: dict[Measured, float] = {}
        pixels, colours = raw_pixels(sample.images), colour_histogram(sample.images)
        self._interval, self.order = find_order(pixels, colours, start.on(sample))
        self.ordered = self.order >= ORDERED  # neighbours in time mean something
        gap, window = self._interval.gap, self._interval.window
        self._pixels, self._colours = (in_time(nearest(found, gap=gap), window) for found in (pixels, colours))

    def _nearest_kept(self, one: Measured, gap: int = 0) -> Tensor:
        """The nearest of the kept images to each of them."""
        if (one, gap) not in self._nearest:
            self._nearest[one, gap] = nearest(one.on(self._sample), gap=gap)
        return self._nearest[one, gap]

    def _rank(self, one: Measured) -> float:
        if one not in self._ranks:
            self._ranks[one] = effective_rank(one.on(self._sample))
        return self._ranks[one]

    def _in_time(self, one: Measured) -> Tensor:
        return in_time(self._nearest_kept(one, self._interval.gap), self._interval.window)

    def in_time(self, one: Measured) -> float:
        """Neighbours in time."""
        return float(self._in_time(one).mean())

    def score(self, one: Measured) -> float:
        """Neighbours in time, or the effective rank where the stream has no order."""
        return self.in_time(one) if self.ordered else self._rank(one)

    def keeps_up(self, one: Measured) -> bool:
        """Whether an encoder is not below the start; a rank may be 5 % below."""
        return self.score(one) >= self.score(self._start) * (1 if self.ordered else 1 - RANK_ERROR)

    def compare(self, one: Measured, other: Measured) -> tuple[float, float]:
        """By how much the score of one encoder exceeds that of the other, and the standard error of it."""
        if self.ordered:
            difference = self._in_time(one) - self._in_time(other)
            return float(difference.mean()), self._error(difference)
        before = self.score(other)
        return self.score(one) - before, RANK_ERROR * before

    def agreement(self, one: Measured) -> float:
        """The share of neighbours in common with the start, on the reference or the kept images."""
        return float(in_common(self._neighbours(one), self._neighbours(self._start)).mean())

    def _neighbours(self, one: Measured) -> Tensor:
        if self._reference is None:
            return self._nearest_kept(one)
        if one.on_reference is None:
            one.on_reference = nearest(torch.from_numpy(one.encoder.transform(self._reference)))
        return one.on_reference

    def _error(self, values: Tensor) -> float:
        error = standard_error(values, 2 * max(self._interval.window, len(values) // 40))
        return error if math.isfinite(error) else 1.0

    def sentence(self, now: Measured, best: Measured) -> str:
        """What fell, and how far."""
        if self.ordered:
            return f"neighbours in time fell from {self.score(best):.1%} to {self.score(now):.1%}".replace("%", " %")
        return f"the effective rank fell from {self.score(best):.1f} to {self.score(now):.1f}"

    def quality(self, seen: int, now: Measured, published: Measured, teacher: Measured | None) -> Quality:
        """Every number of a check."""
        return Quality(
            seen=seen,
            order=self.order,
            in_time=self.in_time(now),
            published=self.in_time(published),
            start=self.in_time(self._start),
            pixels=float(self._pixels.mean()),
            colours=float(self._colours.mean()),
            chance=self._interval.chance(len(self._sample)),
            error=self._error(self._in_time(published) - self._in_time(self._start)),
            rank=self._rank(now),
            rank_published=self._rank(published),
            rank_start=self._rank(self._start),
            agreement=self.agreement(now),
            agreement_published=self.agreement(published),
            teacher=None if teacher is None else self.in_time(teacher),
            gap=self._interval.gap,
            window=self._interval.window,
        )
