"""Alignment targets ẑ: features of a moving average, of a frozen copy, or from the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from ocssl.batch import Batch
from ocssl.nn import Encoder, Features
from ocssl.nn.ema import copy_weights, ema_update, frozen_copy

Level = Literal["backbone", "projected"]


def at_level(features: Features, level: Level) -> Tensor:
    """The backbone's or the projector's features, ``(views, n, d)``."""
    return features.backbone if level == "backbone" else features.projected


class Target(nn.Module):
    """Base of every target: gives the features to align to, without gradient."""

    ready = True
    """Whether there is a target yet, known to the host."""

    def forward(self, batch: Batch, rows: slice, views: Tensor, joint: bool, level: Level) -> Tensor:
        """ẑ for the given rows of the batch: ``(views, n, d)``, or ``(1, n, d)`` where all views share one target."""
        raise NotImplementedError

    def after_step(self, encoder: Encoder) -> None:
        """Called after a training step of the encoder."""

    def boundary(self, encoder: Encoder) -> None:
        """Called when an experience has ended."""

    def host_state(self) -> dict[str, int | float | bool]:
        """State outside tensors."""
        return {}

    def load_host_state(self, state: Mapping[str, int | float | bool]) -> None:
        """Restore :meth:`host_state`."""


class EncoderCopy(Target):
    """Features of a copy of the encoder, for the same views. Its batch norm uses batch statistics."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.network = frozen_copy(encoder)

    @torch.no_grad()
    def forward(self, batch: Batch, rows: slice, views: Tensor, joint: bool, level: Level) -> Tensor:
        """The copy's features of the given rows."""
        return at_level(self.network(views[:, rows], joint), level)


class EmaTeacher(EncoderCopy):
    """θ′, an exponential moving average of the encoder's parameters θ.

    It is updated after every optimiser step. The paper's pseudocode updates it before the teacher's forward pass. Both
    give the same sequence of teachers: θ′ starts as θ, so the first update of the pseudocode changes nothing.

    Args:
        tau: decay τ of the average.
    """

    def __init__(self, encoder: Encoder, tau: float) -> None:
        super().__init__(encoder)
        self.tau = tau

    def after_step(self, encoder: Encoder) -> None:
        """θ′ ← τ θ′ + (1 − τ) θ."""
        ema_update(self.network, encoder, self.tau)


class Snapshot(EncoderCopy):
    """The encoder at the end of the last experience; there is no target in the first experience."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self.ready = False

    def boundary(self, encoder: Encoder) -> None:
        """Copy the encoder."""
        copy_weights(self.network, encoder)
        self.ready = True

    def host_state(self) -> dict[str, int | float | bool]:
        """Whether there is a target."""
        return {"ready": self.ready}

    def load_host_state(self, state: Mapping[str, int | float | bool]) -> None:
        """Whether there is a target."""
        self.ready = bool(state["ready"])


class StoredFeature(Target):
    """z*, the feature that the memory stores with each replay sample; the same for all views."""

    def forward(self, batch: Batch, rows: slice, views: Tensor, joint: bool, level: Level) -> Tensor:
        """The recalled features of the batch."""
        return batch.recalled["features"][None]
