"""Latent alignment: L = L_SSL + ω · mean over views of d(a(z), ẑ), with d = −cos and a learned aligner a.

CLA-b, CLA-E, CLA-R, CaSSLe, CaSSLe-R and PFR minimise this loss. They differ in the target ẑ and in the samples whose
features z are aligned. CaSSLe aligns stream samples to the encoder at the end of the last experience. CaSSLe-R, from
the CLA paper (arXiv:2507.10434), replays and aligns replay samples.

CaSSLe: Enrico Fini, Victor G. Turrisi da Costa, Xavier Alameda-Pineda, Elisa Ricci, Karteek Alahari and Julien Mairal.
Self-Supervised Models are Continual Learners. CVPR 2022. arXiv:2112.04215.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from torch import Tensor

from ocssl.batch import Step
from ocssl.losses import negative_cosine
from ocssl.methods import Dims
from ocssl.nn import predictor
from ocssl.options import setting
from ocssl.strategies.base import ByBatch, Setup, Strategy, register
from ocssl.strategies.targets import Level, Snapshot, Target, at_level

Rows = Literal["stream", "replay"]


class Aligned(Strategy):
    """Aligns current features, through an aligner, to a target.

    Args:
        target: where ẑ comes from.
    """

    class Options(Strategy.Options):
        omega: float = setting(1.0, "Weight of the alignment loss.", symbol="ω", common=True, ge=0)
        aligner_dim: int | None = setting(None, "Hidden width of the aligner; unset: hidden_dim.", ge=1, le=65_536)

    aligned: ClassVar[Rows] = "replay"
    """Whose features are aligned."""

    level: ClassVar[Level] = "projected"
    """Which features are aligned: those of the projector or of the backbone."""

    cosine: bool = True
    """Whether the distance is the negative cosine, so that the loss tells how well features agree."""

    def __init__(self, setup: Setup, options: Options, target: Target) -> None:
        super().__init__(setup, options)
        self.omega = options.omega
        width = setup.dims.feature if self.level == "backbone" else setup.output_dim
        self.aligner = predictor(width, options.aligner_dim or self.aligner_width(setup.dims))
        self.aligner.requires_grad_(self.omega > 0)
        self.target = target

    @staticmethod
    def aligner_width(dims: Dims) -> int:
        """Hidden width of the aligner where aligner_dim is unset."""
        return dims.hidden

    def penalty(self, step: Step) -> dict[str, Tensor]:
        """ω · d(a(z), ẑ); nothing where ω is 0, and while there is no target or no sample to align."""
        batch, features = step.batch, step.features
        rows = batch.replay if self.aligned == "replay" else batch.fresh
        if not self.omega or not self.target.ready or rows.start == rows.stop:
            return {}
        target = self.target(batch, rows, step.views, features.joint, self.level)
        predicted = features.through(self.aligner, at_level(features, self.level)[:, rows])
        return {"alignment": self.omega * self.distance(predicted, target)}

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """d, averaged over views and samples: ``(views, n, d)`` and ``(views or 1, n, d)`` to a scalar."""
        return negative_cosine(predicted, target)


@register("cassle")
class CaSSLe(Aligned):
    """Aligns stream features to the encoder at the end of the last experience.

    Source: Fini et al., CVPR 2022, arXiv:2112.04215.
    """

    class Options(Aligned.Options):
        from_start: bool = setting(False, "Align to the untrained network in the first experience.", since="0.2")

    label = "CaSSLe"
    aligned: ClassVar[Rows] = "stream"

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options, Snapshot(setup.encoder))
        self.target.ready = options.from_start


@register("cassle-r")
class CaSSLeR(CaSSLe):
    """CaSSLe with replay: only replay samples are aligned.

    Source: Fini et al., CVPR 2022, arXiv:2112.04215; with replay, Cignoni et al., CoLLAs 2025, arXiv:2507.10434.
    """

    label = "CaSSLe-R"
    defaults: ClassVar[Mapping[str, Any]] = {"sgd.lr": ByBatch(0.1, 0.3)}
    composition = "stream+replay"
    default_memory = "reservoir"
    aligned = "replay"
