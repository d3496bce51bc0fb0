"""Continual Latent Alignment, the paper's own three."""

from __future__ import annotations

from typing import ClassVar

from ocssl.memory import Column
from ocssl.strategies.alignment import Aligned, Rows
from ocssl.strategies.base import Setup, register
from ocssl.strategies.targets import EmaTeacher, StoredFeature, Target


@register("cla-b")
class ClaB(Aligned):
    """Base variant, no memory: stream features aligned to a moving average of the encoder."""

    aligned: ClassVar[Rows] = "stream"
    default_omega = 0.1

    def make_target(self, setup: Setup) -> Target:
        """The moving average θ′."""
        return EmaTeacher(setup.encoder, setup.tau)


@register("cla-e")
class ClaE(ClaB):
    """Replay features aligned to a moving average of the encoder."""

    composition = "stream+replay"
    default_memory = "fifo"
    aligned = "replay"
    default_omega = 0.3


@register("cla-r")
class ClaR(Aligned):
    """Replay features aligned to the features stored with them, which follow at half speed."""

    composition = "stream+replay"
    default_memory = "fifo"
    default_omega = 1.0

    def __init__(
        self, setup: Setup, *, distance: str = "cosine", aligner_dim: int | None = None, together: bool = False
    ) -> None:
        super().__init__(setup, distance=distance, aligner_dim=aligner_dim, together=together)
        self.output_dim = setup.output_dim

    def make_target(self, setup: Setup) -> Target:
        """The memory's z*."""
        return StoredFeature()

    def columns(self) -> dict[str, Column]:
        """z* of each sample."""
        return {"features": Column((self.output_dim,))}
