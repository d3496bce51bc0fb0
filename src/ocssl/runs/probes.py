"""Probes of an encoder: its features, and what a linear probe and k-NN make of them.

On a CPU a probe is trained as soon as its features are there. On a GPU several probes take hardly longer than one, so
features wait until a checkpoint or the end of the run needs them, or until they take too much memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ocssl.common.console import number_of
from ocssl.device import oom_guard
from ocssl.evaluation import Accuracy, extract_parts, knn_probe, linear_probes
from ocssl.evaluation.quality import colour_histogram, raw_pixels
from ocssl.learner import Learner
from ocssl.runs.config import RunConfig
from ocssl.runs.data import Splits

QUEUE_BYTES = 640 << 20  # of features that wait on a GPU for their probes, which stack a copy: 11 of CIFAR-100

OnProgress = Callable[[int, int], None]


class SplitFeatures(NamedTuple):
    """Frozen features of the three splits of a data set, ``(n, d)`` each."""

    train: Tensor
    validation: Tensor
    test: Tensor


def encoder_of(learner: Learner, config: RunConfig) -> Callable[[Tensor], Tensor]:
    """The learner's backbone, as the run measures it, as a function that takes all images it is given at once."""
    full, crops = config.full_precision, config.eval_crops
    return lambda images: learner.encode(images, batch=len(images), crops=crops, full_precision=full)


ENCODERLESS: dict[str, Callable[[Tensor], Tensor]] = {
    "pixels": raw_pixels,
    "histogram": partial(colour_histogram, levels=8),
}
"""Floors that need no encoder: functions from uint8 images ``(n, 3, s, s)`` to ``(n, d)``, by evaluation point."""


class ProbeQueue:
    """Extracts features, and keeps them until their linear probes are trained.

    Args:
        config: its seed decides the order of the probes' minibatches, and ``config.probe`` how they are trained.
    """

    def __init__(self, splits: Splits, config: RunConfig) -> None:
        self.splits = splits
        self._config = config
        self._waiting: dict[str, SplitFeatures] = {}

    def extract(self, encode: Callable[[Tensor], Tensor], progress: OnProgress) -> SplitFeatures:
        """Features of every image, by a function from uint8 ``(n, 3, s, s)`` to ``(n, d)``, as the run measures."""
        full = self._config.full_precision
        return SplitFeatures(*extract_parts(encode, self.splits.subsets, full_precision=full, progress=progress))

    def add(self, name: str, features: SplitFeatures) -> None:
        """Let features wait for their probe under a name."""
        self._waiting[name] = features

    @property
    def full(self) -> bool:
        """Whether the probes should be trained now: always on a CPU, on a GPU when the features take much memory."""
        waiting = [part for features in self._waiting.values() for part in features]
        return not all(part.is_cuda for part in waiting) or sum(part.nbytes for part in waiting) > QUEUE_BYTES

    def clear(self) -> list[str]:
        """Drop all features that wait; their names."""
        names, self._waiting = list(self._waiting), {}
        return names

    def run(self, progress: OnProgress) -> dict[str, Accuracy]:
        """Train the probes of all features that wait, and drop these: test accuracies by name."""
        if not self._waiting:
            return {}
        encoders, splits = list(self._waiting.values()), self.splits
        torch.cuda.empty_cache()  # what training and extraction left behind is in pieces too small for a stack
        purpose = f"the probes of {number_of(len(encoders), 'encoder')}"
        with oom_guard(encoders[0].train.device, purpose, "free the device"):
            results = linear_probes(
                [features.train for features in encoders],
                splits.train.labels,
                [features.validation for features in encoders],
                splits.validation.labels,
                [features.test for features in encoders],
                splits.test.labels,
                seed=self._config.learner.seed,
                classes=splits.classes,
                schedule=self._config.probe,
                progress=progress,
            )
        found = {name: result.test for name, result in zip(self._waiting, results, strict=True)}
        self._waiting = {}
        del encoders
        torch.cuda.empty_cache()
        return found

    def knn(self, features: SplitFeatures) -> Accuracy:
        """Test accuracy of k-NN."""
        train, test = self.splits.train, self.splits.test
        return knn_probe(features.train, train.labels, features.test, test.labels, classes=self.splits.classes)
