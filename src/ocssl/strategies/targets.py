"""Where an alignment target ẑ comes from: a moving average, a frozen snapshot, or the memory."""

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
    """Gives the features that others are aligned to, without gradient."""

    ready = True
    """Whether there is anything to align to yet; known to the host."""

    def forward(self, batch: Batch, rows: slice, views: Tensor, joint: bool, level: Level) -> Tensor:
        """ẑ for the given rows of the batch: ``(views, n, d)``, or ``(1, n, d)`` where all views share one target."""
        raise NotImplementedError

    def after_step(self, encoder: Encoder) -> None:
        """The encoder took a training step."""

    def boundary(self, encoder: Encoder) -> None:
        """An experience has ended."""

    def host_state(self) -> dict[str, int | float | bool]:
        """Facts outside tensors."""
        return {}

    def load_host_state(self, state: Mapping[str, int | float | bool]) -> None:
        """Take over :meth:`host_state`."""


class EmaTeacher(Target):
    """θ′, a moving average of the encoder's parameters; its batch norm keeps using batch statistics.

    It moves after every optimiser step. The paper's pseudocode moves it before the teacher's forward pass instead,
    which is the same sequence: the teacher that a step meets has just moved towards the weights of that step, and the
    first move of all changes nothing because θ′ starts as θ.
    """

    def __init__(self, encoder: Encoder, tau: float) -> None:
        super().__init__()
        self.network = frozen_copy(encoder)
        self.tau = tau

    @torch.no_grad()
    def forward(self, batch: Batch, rows: slice, views: Tensor, joint: bool, level: Level) -> Tensor:
        """The average's own features of the same views."""
        return at_level(self.network(views[:, rows], joint), level)

    def after_step(self, encoder: Encoder) -> None:
        """θ′ ← τ θ′ + (1 − τ) θ."""
        ema_update(self.network, encoder, self.tau)


class Snapshot(Target):
    """The encoder as it was at the last boundary.

    Args:
        from_start: align to the untrained network in the first experience (authors) instead of not at all (origin).
    """

    def __init__(self, encoder: Encoder, from_start: bool) -> None:
        super().__init__()
        self.network = frozen_copy(encoder)
        self.ready = from_start

    @torch.no_grad()
    def forward(self, batch: Batch, rows: slice, views: Tensor, joint: bool, level: Level) -> Tensor:
        """The snapshot's features of the same views."""
        return at_level(self.network(views[:, rows], joint), level)

    def boundary(self, encoder: Encoder) -> None:
        """Take a new snapshot."""
        copy_weights(self.network, encoder)
        self.ready = True

    def host_state(self) -> dict[str, int | float | bool]:
        """Whether a snapshot was taken."""
        return {"ready": self.ready}

    def load_host_state(self, state: Mapping[str, int | float | bool]) -> None:
        """Whether a snapshot was taken."""
        self.ready = bool(state["ready"])


class StoredFeature(Target):
    """z*, the feature that the memory keeps with each replay sample; the same for all views."""

    def forward(self, batch: Batch, rows: slice, views: Tensor, joint: bool, level: Level) -> Tensor:
        """What the memory recalled with the batch."""
        return batch.recalled["features"][None]
