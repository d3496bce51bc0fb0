"""Sy-CON, or PNR: contrast within the present and to the past, with negatives of both models in both.

L = L₁ + L₂. L₁ contrasts the two views of a sample; its negatives are features of the other samples, of the current
and of the past model. L₂ contrasts a(z) with the past model's ẑ of the same view; its negatives are the same.

Sungmin Cha, Kyunghyun Cho and Taesup Moon. Regularizing with Pseudo-Negatives for Continual Self-Supervised Learning.
ICML 2024. arXiv:2306.05101.
"""

from __future__ import annotations

from torch import Tensor, nn

from ocssl.batch import Step
from ocssl.losses import contrast_with, nt_xent
from ocssl.methods import Dims
from ocssl.nn import predictor, projector
from ocssl.options import setting
from ocssl.strategies.base import Setup, Strategy, register
from ocssl.strategies.targets import Snapshot


@register("sy-con")
class SyCon(Strategy):
    """Contrast within the present and to the past model, each with the other's features as further negatives.

    It has no memory. Before the first boundary it is SimCLR.

    Source: Cha et al., ICML 2024, arXiv:2306.05101.
    """

    label = "Sy-CON"
    own_loss = True

    class Options(Strategy.Options):
        temperature: float = setting(0.2, "Divisor of the cosine similarities in both losses.", gt=0)

    options: Options

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options)
        self.aligner = predictor(setup.output_dim, setup.dims.hidden)
        self.past = Snapshot(setup.encoder)

    @classmethod
    def projector(cls, dims: Dims) -> nn.Module:
        """Three layers, as SimCLR's."""
        return projector(dims.feature, dims.hidden, dims.output)

    def losses(self, step: Step) -> dict[str, Tensor]:
        """L₁ and L₂; before the first boundary L₁ alone, without a past."""
        current = step.features.projected
        if not self.past.ready:
            return {"present": nt_xent(*current, temperature=self.options.temperature)}
        past = self.past(step.batch, slice(None), step.views, step.features.joint, "projected")
        present = contrast_with(current, current.flip(0), (current, past), self.options.temperature)
        kept = contrast_with(step.features.through(self.aligner), past, (past, current), self.options.temperature)
        return {"present": present, "past": kept}
