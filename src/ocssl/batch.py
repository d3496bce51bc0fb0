"""What one training step works on, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from ocssl.nn.encoder import Features


@dataclass(frozen=True)
class Batch:
    """The samples of one step: stream samples first, replay samples behind them.

    Attributes:
        images: ``(b, 3, h, w)`` uint8.
        stream: how many of them, from the front, come from the stream.
        slots: the memory slot of each replay sample, ``(b − stream,)`` int64; None without replay.
        recalled: what the memory kept of each replay sample besides the image, by column.

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
class StepOutput:
    """What a step gives back: its samples and views, the features they had, and each named part of the loss.

    Attributes:
        views: ``(views, b, 3, s, s)``, as augmented, before any mixing.
        features: of the views as the network saw them, detached.
        losses: named scalars, detached; ``"total"`` is what was minimised.
    """

    batch: Batch
    views: Tensor
    features: Features
    losses: dict[str, Tensor]

    @property
    def trained(self) -> int:
        """How many samples went through the network; mixing may have made one of two."""
        return self.features.projected.shape[1]
