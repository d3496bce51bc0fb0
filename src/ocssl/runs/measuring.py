"""Measuring an encoder along a run: features first, probes when it suits the machine.

On a CPU twenty probes take twenty times as long as one, so each is trained at once. On a GPU several take hardly longer
than one, so features wait there until a checkpoint or the end of the run asks for results, or they take too much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ocssl.device import oom_guard
from ocssl.evaluation import Accuracy, ProbeSchedule, knn_probe, linear_probes
from ocssl.learner import Learner
from ocssl.runs.material import Part, Splits

CHUNK_PIXELS = {"cpu": 512 * 32**2, "cuda": 2048 * 32**2}
"""How much goes through an encoder at once, and between two reports of progress; an activation of ResNet-18 takes
128 bytes a pixel in half precision."""
LEAST_AT_ONCE = 64  # images, however large
WAITING_BYTES = 640 << 20  # of features that wait on a GPU for their probes, which stack a copy: 11 of CIFAR-100
PIXEL_SIDE = 32  # raw pixels are averaged down to this, so that large images make no absurdly wide probe

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Features:
    """Frozen features of the three parts of a data set."""

    train: Tensor
    validation: Tensor
    test: Tensor

    @property
    def bytes(self) -> int:
        """What they take."""
        return sum(part.numel() * part.element_size() for part in (self.train, self.validation, self.test))


def extract(encode: Callable[[Tensor], Tensor], material: Splits, progress: Progress | None = None) -> Features:
    """Features of every image, on the device that ``encode`` gives them on; half precision on a GPU.

    Args:
        encode: uint8 images ``(n, 3, s, s)`` to features ``(n, d)``, all of them at once.
        progress: called with the images done and their number.
    """
    total, done = sum(len(part) for part in material.parts), 0

    def of(part: Part) -> Tensor:
        nonlocal done
        chunks = []
        pixels = CHUNK_PIXELS.get(part.pool.device.type, CHUNK_PIXELS["cpu"])
        for images in part.chunks(max(LEAST_AT_ONCE, 3 * pixels // part.pool.image_bytes)):
            features = encode(images)
            chunks.append(features.half() if features.is_cuda else features)
            done += len(images)
            if progress is not None:
                progress(done, total)
        return torch.cat(chunks)

    return Features(of(material.train), of(material.validation), of(material.test))


def frozen(learner: Learner) -> Callable[[Tensor], Tensor]:
    """The learner's backbone as an encoder that takes whatever it is given in one go."""
    return lambda images: learner.encode(images, batch=len(images))


def raw_pixels(images: Tensor) -> Tensor:
    """Images as they are, for an encoder that does nothing: ``(n, 3 · side²)`` in [0, 1]."""
    pixels = images.float() / 255
    side = min(PIXEL_SIDE, images.shape[-1])
    return functional.adaptive_avg_pool2d(pixels, side).flatten(1)


class ProbeQueue:
    """Measures encoders on the parts of a data set, and keeps features until their probes are wanted.

    Args:
        material: what is measured on.
        seed: decides the order of the probes' minibatches.
        schedule: how probes are trained.
    """

    def __init__(self, material: Splits, *, seed: int, schedule: ProbeSchedule) -> None:
        self.material = material
        self._seed = seed
        self._schedule = schedule
        self._waiting: dict[str, Features] = {}

    def add(self, name: str, features: Features) -> None:
        """Let features wait for their probe under a name."""
        self._waiting[name] = features

    @property
    def due(self) -> bool:
        """Whether waiting for company would not help, or cost too much memory."""
        waiting = list(self._waiting.values())
        return any(not f.train.is_cuda for f in waiting) or sum(f.bytes for f in waiting) > WAITING_BYTES

    def forget(self) -> list[str]:
        """Let go of all features that wait; their names."""
        names, self._waiting = list(self._waiting), {}
        return names

    def settle(self, progress: Progress | None = None) -> dict[str, Accuracy]:
        """Train the probes of all features that wait, and let go of them: test accuracies by name."""
        if not self._waiting:
            return {}
        encoders, parts = list(self._waiting.values()), self.material
        self._give_back()  # what training and extraction left behind is in pieces too small for a stack
        purpose = f"the probes of {len(encoders)} encoder{'s' * (len(encoders) > 1)}"
        with oom_guard(encoders[0].train.device, purpose, "free the device"):
            results = linear_probes(
                [features.train for features in encoders],
                parts.train.labels,
                [features.validation for features in encoders],
                parts.validation.labels,
                [features.test for features in encoders],
                parts.test.labels,
                seed=self._seed,
                classes=parts.classes,
                schedule=self._schedule,
                progress=progress,
            )
        found = {name: result.test for name, result in zip(self._waiting, results, strict=True)}
        self._waiting = {}
        del encoders
        self._give_back()
        return found

    def _give_back(self) -> None:
        """Return device memory that torch holds and does not use, so that a run takes little more than it needs."""
        if self.material.train.pool.device.type == "cuda":
            torch.cuda.empty_cache()

    def knn(self, features: Features) -> Accuracy:
        """Test accuracy of a vote of the nearest training samples."""
        train, test = self.material.train, self.material.test
        return knn_probe(features.train, train.labels, features.test, test.labels, classes=self.material.classes)
