"""SimCLR: L = −mean over all views i of log( exp(cos(zᵢ, zⱼ)/t) / Σₖ≠ᵢ exp(cos(zᵢ, zₖ)/t) ).

j is another view of the same sample (the mean over all of them), k runs over all other views of the batch, and t is the
temperature (NT-Xent).

Ting Chen, Simon Kornblith, Mohammad Norouzi and Geoffrey Hinton. A Simple Framework for Contrastive Learning of Visual
Representations. ICML 2020. arXiv:2002.05709.
"""

from __future__ import annotations

from torch import Tensor, nn

from ocssl.batch import Step
from ocssl.losses import contrastive_distillation, nt_xent, nt_xent_losses, per_view
from ocssl.methods.base import Method, register
from ocssl.nn import mlp
from ocssl.options import setting


@register("simclr")
class SimCLR(Method):
    """Tells the other views of a sample from the views of all other samples.

    Source: Chen et al., ICML 2020, arXiv:2002.05709.
    """

    class Options(Method.Options):
        temperature: float = setting(0.5, "Divisor of the cosine similarities in the contrastive loss.", gt=0)
        projector_layers: int = setting(
            3, "Layers of the projector; 3: batch norm at the end; 2: none at the end.", ge=2, le=3, since="0.2"
        )

    options: Options

    def projector(self) -> nn.Module:
        """Three layers, then batch norm; or two, without batch norm at the end."""
        if self.options.projector_layers == 3:
            return super().projector()
        return mlp(self.dims.feature, self.dims.hidden, self.dims.output)

    def loss(self, step: Step) -> Tensor:
        """NT-Xent over all views of the batch."""
        return nt_xent(*step.features.projected, temperature=self.options.temperature)

    def sample_losses(self, step: Step) -> Tensor:
        """NT-Xent of each sample."""
        return nt_xent_losses(*step.features.projected, temperature=self.options.temperature)

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """NT-Xent between prediction and target, averaged over the views."""
        return per_view(lambda pair: nt_xent(*pair, temperature=self.options.temperature), predicted, target)

    def distillation(self, predicted: Tensor, target: Tensor) -> Tensor:
        """Predictions against targets over both views at once, at temperature 0.2."""
        return contrastive_distillation(predicted, target)
