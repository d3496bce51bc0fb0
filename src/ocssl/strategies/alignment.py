"""One mechanism behind six strategies: an aligner, a target, and which samples are aligned.

The loss of CLA-b, CLA-E, CLA-R, CaSSLe, CaSSLe-R and PFR is L_SSL + ω · mean over views of d(a(z), ẑ). They differ in
where ẑ comes from, in whose z is aligned, and in d.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import ClassVar, Literal

from torch import Tensor

from ocssl.batch import Batch, StepOutput
from ocssl.losses import negative_cosine
from ocssl.memory import Memory
from ocssl.nn import Encoder, Features, predictor
from ocssl.nn.encoder import over_views
from ocssl.registry import unknown
from ocssl.strategies.base import Setup, Strategy, register
from ocssl.strategies.targets import Level, Snapshot, Target, at_level

Rows = Literal["stream", "replay"]
DISTANCES = ("cosine", "method")


class Aligned(Strategy):
    """Aligns present features, through a learned map, to a target.

    Args:
        distance: ``"cosine"`` (negative cosine similarity) or ``"method"`` (the objective itself, CaSSLe's origin).
        aligner_dim: hidden width of the aligner; None is that of all heads.
        together: target and aligner pass all views together, also where the encoder passes each alone (authors).
    """

    aligned: ClassVar[Rows] = "replay"
    level: ClassVar[Level] = "projected"
    default_omega: ClassVar[float] = 1.0
    variants = {"authors": {"together": True}}

    def __init__(
        self, setup: Setup, *, distance: str = "cosine", aligner_dim: int | None = None, together: bool = False
    ) -> None:
        super().__init__(setup)
        if distance not in DISTANCES:
            raise unknown("distance", distance, DISTANCES)
        self.distance = distance
        self.together = together
        self.omega = self.default_omega if setup.omega is None else setup.omega
        width = setup.dims.feature if self.level == "backbone" else setup.output_dim
        self.aligner = predictor(width, aligner_dim or setup.dims.hidden)
        self.target = self.make_target(setup)

    def make_target(self, setup: Setup) -> Target:
        """Where ẑ comes from."""
        raise NotImplementedError

    def penalty(self, batch: Batch, views: Tensor, features: Features) -> dict[str, Tensor]:
        """ω times the distance of the aligned rows to their target; nothing while there is nothing to align."""
        rows = batch.replay if self.aligned == "replay" else batch.fresh
        if not self.target.ready or rows.start == rows.stop:
            return {}
        joint = features.joint or self.together
        target = self.target(batch, rows, views, joint, self.level)
        predicted = over_views(self.aligner, at_level(features, self.level)[:, rows], joint)
        return {"alignment": self.omega * self._distance(predicted, target)}

    def _distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        if self.distance == "method" and self.method is not None:
            return self.method.distance(predicted, target.expand_as(predicted))
        return negative_cosine(predicted, target)

    def after_step(self, output: StepOutput, encoder: Encoder, memory: Memory | None) -> None:
        """Stored features and the target follow the encoder."""
        super().after_step(output, encoder, memory)
        self.target.after_step(encoder)

    def boundary(self, encoder: Encoder) -> None:
        """Targets that know borders are told."""
        self.target.boundary(encoder)

    def graph_key(self, memory: Memory | None) -> Hashable:
        """Replay and target each begin at a time of their own."""
        return super().graph_key(memory), self.target.ready

    def host_state(self) -> dict[str, int | float | bool]:
        """The target's."""
        return self.target.host_state()

    def load_host_state(self, state: Mapping[str, int | float | bool]) -> None:
        """The target's."""
        self.target.load_host_state(state)


@register("cassle")
class CaSSLe(Aligned):
    """Stream features aligned to the encoder frozen at the last boundary.

    Args:
        from_start: align to the untrained network in the first experience, as the authors' code does.
    """

    aligned: ClassVar[Rows] = "stream"
    variants = {
        "authors": {"from_start": True, "together": True},
        "origin": {"distance": "method", "aligner_dim": 2048},
    }

    def __init__(
        self,
        setup: Setup,
        *,
        from_start: bool = False,
        distance: str = "cosine",
        aligner_dim: int | None = None,
        together: bool = False,
    ) -> None:
        self.from_start = from_start
        super().__init__(setup, distance=distance, aligner_dim=aligner_dim, together=together)

    def make_target(self, setup: Setup) -> Target:
        """The network at the last boundary."""
        return Snapshot(setup.encoder, self.from_start)


@register("cassle-r")
class CaSSLeR(CaSSLe):
    """CaSSLe with replay; only replay samples are aligned."""

    composition = "stream+replay"
    default_memory = "reservoir"
    aligned = "replay"
