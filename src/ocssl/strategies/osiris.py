"""Osiris-R: L = NT-Xent(g(f_stream)) + ½ (L_cross(h(f_stream), h(f_replay)) + NT-Xent(h(f_replay))).

Osiris-D has a distillation loss of CaSSLe's kind, from the encoder at the end of the last experience to the current one
on stream samples, in the place of NT-Xent(h(f_replay)).

f are backbone features, and g and h are two projectors. In L_cross the two views of a sample are positives; the replay
samples are the negatives of stream samples, and the other way round (mean of both).

Yipeng Zhang, Laurent Charlin, Richard Zemel and Mengye Ren. Integrating Present and Past in Unsupervised Continual
Learning. CoLLAs 2024. arXiv:2404.19132.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ocssl.batch import Batch, Step
from ocssl.losses import contrastive_distillation, cross_contrast, nt_xent
from ocssl.methods import Dims
from ocssl.nn import Features, predictor, projector
from ocssl.options import setting
from ocssl.strategies.base import ByBatch, Setup, Strategy, register
from ocssl.strategies.targets import Snapshot


@register("osiris-r")
class OsirisR(Strategy):
    """Contrast within the stream, within the replay, and between the two.

    Source: Zhang et al., CoLLAs 2024, arXiv:2404.19132.
    """

    label = "Osiris-R"
    defaults: ClassVar[Mapping[str, Any]] = {"sgd.lr": ByBatch(0.003, 0.01)}

    class Options(Strategy.Options):
        temperature: float = setting(0.1, "Divisor of the cosine similarities in all three losses.", gt=0)

    composition = "stream+replay"
    default_memory = "reservoir"
    own_loss = True

    options: Options

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options)
        self.h = self.make_head(setup.dims)

    @classmethod
    def projector(cls, dims: Dims) -> nn.Module:
        """g."""
        return projector(dims.feature, dims.hidden, dims.output)

    def make_head(self, dims: Dims) -> nn.Module:
        """A new h, with the layers of g."""
        return self.projector(dims)

    def losses(self, step: Step) -> dict[str, Tensor]:
        """The losses of stream, cross and replay; before replay begins, that of the stream alone."""
        batch, features = step.batch, step.features
        stream = self.through_g(batch, features)
        parts = {"stream": nt_xent(*stream, temperature=self.options.temperature)}
        if batch.slots is not None:
            fresh, replay = self.through_h(batch, features)
            across = torch.stack(
                [
                    cross_contrast(fresh, replay, self.options.temperature),
                    cross_contrast(replay, fresh, self.options.temperature),
                ]
            ).mean()
            parts["cross"] = 0.5 * across
            parts |= self.past_loss(step, replay)
        return parts

    def past_loss(self, step: Step, replay: Tensor) -> dict[str, Tensor]:
        """What keeps the past: the contrast within the replay samples, h of which is ``(views, n, d)``."""
        return {"replay": 0.5 * nt_xent(*replay, temperature=self.options.temperature)}

    def through_g(self, batch: Batch, features: Features) -> Tensor:
        """g of the stream samples, ``(views, n, d)``."""
        return features.projected[:, batch.fresh]

    def through_h(self, batch: Batch, features: Features) -> tuple[Tensor, Tensor]:
        """h of the stream samples and of the replay samples."""
        rows = features.through(self.h, features.backbone)
        return rows[:, batch.fresh], rows[:, batch.replay]


@register("osiris-d")
class OsirisD(OsirisR):
    """Contrast within the stream and with the replay, and distillation from the encoder of the last boundary.

    Source: Zhang et al., CoLLAs 2024, arXiv:2404.19132.
    """

    label = "Osiris-D"

    def __init__(self, setup: Setup, options: OsirisR.Options) -> None:
        super().__init__(setup, options)
        self.aligner = predictor(setup.output_dim, setup.dims.hidden)
        self.target = Snapshot(setup.encoder)

    def past_loss(self, step: Step, replay: Tensor) -> dict[str, Tensor]:
        """The distillation loss on stream samples, from the first boundary on."""
        if not self.target.ready:
            return {}
        rows, joint = step.batch.fresh, step.features.joint
        target = self.target(step.batch, rows, step.views, joint, "projected")
        predicted = step.features.through(self.aligner, step.features.projected[:, rows])
        return {"distillation": 0.5 * contrastive_distillation(predicted, target)}
