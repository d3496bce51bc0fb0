"""SwAV: L = −mean over ordered pairs of views of Σₖ q₁ₖ log softmax(z₂·c / t)ₖ.

z are the projected features and c the prototypes, all at length 1; q₁, the code of the other view, is the soft
assignment of its features to the prototypes by Sinkhorn's algorithm, and t is the temperature. All views have the same
size, and codes come from the batch alone, without a queue of earlier features.

Mathilde Caron, Ishan Misra, Julien Mairal, Priya Goyal, Piotr Bojanowski and Armand Joulin. Unsupervised Learning of
Visual Features by Contrasting Cluster Assignments. NeurIPS 2020. arXiv:2006.09882.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocssl.batch import Step, StepOutput
from ocssl.losses import between_views, cross_entropies, each_sample, prototype_scores, sinkhorn, soft_cross_entropy
from ocssl.methods.base import Dims, Method, register
from ocssl.nn import Encoder, mlp
from ocssl.options import setting

LEAST_EPSILON = 0.025  # float32 holds exp(−2 / ε), the smallest share of a prototype beside the largest


@register("swav")
class SwAV(Method):
    """Predicts the cluster assignment of one view from the others.

    Source: Caron et al., NeurIPS 2020, arXiv:2006.09882.
    """

    class Options(Method.Options):
        temperature: float = setting(0.1, "Divisor of the cosine similarities to the prototypes.", gt=0)
        prototypes: int = setting(3000, "Number of prototypes.", ge=1, le=524_288)
        sinkhorn_epsilon: float = setting(0.05, "Softness of the assignments to prototypes.", ge=LEAST_EPSILON)

    options: Options

    def __init__(self, dims: Dims, options: Options | None = None) -> None:
        super().__init__(dims, options)
        self.prototypes = nn.Parameter(F.normalize(torch.randn(self.options.prototypes, dims.output), dim=-1))

    def projector(self) -> nn.Module:
        """Two layers, no batch norm at the end."""
        return mlp(self.dims.feature, self.dims.hidden, self.dims.output)

    def loss(self, step: Step) -> Tensor:
        """The cross-entropy between the codes of each view and the predictions from the others."""
        return between_views(soft_cross_entropy, *self._logits_and_codes(step))

    def sample_losses(self, step: Step) -> Tensor:
        """The cross-entropies of each sample."""
        return each_sample(cross_entropies, *self._logits_and_codes(step))

    def _logits_and_codes(self, step: Step) -> tuple[Tensor, Tensor]:
        scores = prototype_scores(step.features.projected, self.prototypes)
        return scores / self.options.temperature, sinkhorn(scores, self.options.sinkhorn_epsilon)

    def after_step(self, output: StepOutput, encoder: Encoder) -> None:
        """Bring the prototypes back to length 1."""
        self.prototypes.copy_(F.normalize(self.prototypes, dim=-1))
