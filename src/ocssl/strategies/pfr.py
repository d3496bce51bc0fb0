"""PFR: projected functional regularisation, beyond the paper's tables."""

from __future__ import annotations

from ocssl.strategies.alignment import Aligned
from ocssl.strategies.base import Setup, register
from ocssl.strategies.targets import Snapshot, Target


@register("pfr")
class Pfr(Aligned):
    """Backbone features, before the projector, aligned to the encoder frozen at the last boundary."""

    aligned = "stream"
    level = "backbone"
    variants = {}  # the paper's authors have none

    def __init__(self, setup: Setup, *, distance: str = "cosine", aligner_dim: int | None = None) -> None:
        super().__init__(setup, distance=distance, aligner_dim=aligner_dim or setup.dims.feature // 2)

    def make_target(self, setup: Setup) -> Target:
        """The network at the last boundary, none in the first experience."""
        return Snapshot(setup.encoder, from_start=False)
