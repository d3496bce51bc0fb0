"""Input and output of one training step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ocssl.nn import Features


@dataclass(frozen=True)
class Batch:
    """The samples of one step: stream samples first, then replay samples.

    Attributes:
        images: ``(b, 3, h, w)`` uint8.
        stream: how many of the first images come from the stream.
        slots: the memory slot of each replay sample, ``(b − stream,)`` int64; None without replay.
        recalled: columns of the memory for the replay samples, by name.

    >>> import torch
    >>> batch = Batch(torch.zeros(5, 3, 8, 8, dtype=torch.uint8), stream=2, slots=torch.tensor([7, 1, 4]))
    >>> len(batch), batch.replay
    (5, slice(2, 5, None))
    """

    images: Tensor
    stream: int
    slots: Tensor | None = None
    recalled: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def fresh(self) -> slice:
        """Rows of the stream samples."""
        return slice(0, self.stream)

    @property
    def replay(self) -> slice:
        """Rows of the replay samples; empty without replay."""
        return slice(self.stream, len(self.images))


@dataclass(frozen=True)
class Step:
    """What a loss is computed from.

    Attributes:
        views: ``(views, b, 3, s, s)``, after mixing, as they passed through the encoder.
        features: of the views, with gradient.
        generator: for random draws of the loss; it is saved with the learner.
        small: features of small crops, ``(small_views, b, …)``, for a method with multi-crop.
    """

    batch: Batch
    views: Tensor
    features: Features
    generator: torch.Generator
    small: Features | None = None


@dataclass(frozen=True)
class StepOutput:
    """Samples, views, features and losses of one step.

    Attributes:
        views: ``(views, b, 3, s, s)``, as augmented, before any mixing.
        features: of the views after mixing, detached.
        losses: named scalars, detached; ``"total"`` is their sum, which was minimised.
        cbp: backward passes: views through which a gradient went, in all encoders together.
        sample_losses: the method's loss of each sample, ``(b,)``, where the memory needs it.
    """

    batch: Batch
    views: Tensor
    features: Features
    losses: dict[str, Tensor]
    cbp: int
    sample_losses: Tensor | None = None
