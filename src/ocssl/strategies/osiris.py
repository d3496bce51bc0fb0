"""Osiris-R: contrast within the stream, within the replay, and across the two, through separate heads."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ocssl.batch import Batch
from ocssl.losses import cross_contrast, nt_xent
from ocssl.methods import Dims
from ocssl.nn import Encoder, Features, projector
from ocssl.nn.ema import copy_weights
from ocssl.registry import unknown
from ocssl.strategies.base import Setup, Strategy, register

HEADS = ("trained", "copied", "frozen")


@register("osiris-r")
class OsirisR(Strategy):
    """NT-Xent on the stream through g, plus half of (cross loss + NT-Xent on the replay) through h.

    Args:
        head: what h is: ``"trained"`` from its own start; ``"copied"`` from g at the first boundary and trained
            (origin; without borders it is the same as trained); ``"frozen"`` at random (authors).
        updates: how often each optimiser step is applied; the authors' code hands its parameters over twice.
        temperature: of all three parts.
    """

    composition = "stream+replay"
    default_memory = "reservoir"
    own_loss = True
    variants = {"authors": {"head": "frozen", "updates": 2}, "origin": {"head": "copied"}}

    def __init__(self, setup: Setup, *, head: str = "trained", updates: int = 1, temperature: float = 0.1) -> None:
        super().__init__(setup)
        if head not in HEADS:
            raise unknown("head", head, HEADS)
        self.h = self.projector(setup.dims).requires_grad_(head != "frozen")
        self.awaits_copy = head == "copied"
        self.update_repeats = updates
        self.temperature = temperature

    @classmethod
    def projector(cls, dims: Dims) -> nn.Module:
        """g, and h alike: the projector of the other objectives."""
        return projector(dims.feature, dims.hidden, dims.output)

    def losses(self, batch: Batch, views: Tensor, features: Features) -> dict[str, Tensor]:
        """Stream, cross and replay contrast."""
        stream = features.projected[:, batch.fresh]
        parts = {"stream": nt_xent(stream[0], stream[1], self.temperature)}
        if batch.slots is not None:
            through_h = features.through(self.h, features.backbone)
            fresh, replay = through_h[:, batch.fresh], through_h[:, batch.replay]
            across = torch.stack(
                [cross_contrast(fresh, replay, self.temperature), cross_contrast(replay, fresh, self.temperature)]
            ).mean()
            parts["cross"] = 0.5 * across
            parts["replay"] = 0.5 * nt_xent(replay[0], replay[1], self.temperature)
        return parts

    def boundary(self, encoder: Encoder) -> None:
        """h starts as a copy of g when the first experience has ended."""
        if self.awaits_copy:
            copy_weights(self.h, encoder.projector)
            self.awaits_copy = False

    def host_state(self) -> dict[str, int | float | bool]:
        """Whether h is still to be copied."""
        return {"awaits_copy": self.awaits_copy}

    def load_host_state(self, state: Mapping[str, int | float | bool]) -> None:
        """Whether h is still to be copied."""
        self.awaits_copy = bool(state["awaits_copy"])
