"""DINO: L = −mean over ordered pairs of views of Σₖ softmax((s′₁ − m) / t′)ₖ log softmax(s₂ / t)ₖ.

s are the cosines of the projected features and the prototypes, s′ those of the target network, which has its own
prototypes; both are moving averages. The centre m is a moving average of s′ over batches. The temperatures are t = 0.1
and t′ = 0.04. All views have the same size. The paper raises τ and t′ over the run and fixes the last layer for the
first epoch; the end of a stream is not known, so nothing is scheduled here.

Mathilde Caron, Hugo Touvron, Ishan Misra, Hervé Jégou, Julien Mairal, Piotr Bojanowski and Armand Joulin. Emerging
Properties in Self-Supervised Vision Transformers. ICCV 2021. arXiv:2104.14294.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocssl.batch import Step, StepOutput
from ocssl.losses import between_views, cross_entropies, each_sample, prototype_scores, soft_cross_entropy
from ocssl.methods.base import Dims, register
from ocssl.methods.target import TargetMethod
from ocssl.nn import Encoder, mlp
from ocssl.options import setting


@register("dino")
class DINO(TargetMethod):
    """Predicts the target network's sharpened distribution over prototypes from the other views.

    Source: Caron et al., ICCV 2021, arXiv:2104.14294.
    """

    class Options(TargetMethod.Options):
        temperature: float = setting(0.1, "Divisor of the cosine similarities to the prototypes.", gt=0)
        target_temperature: float = setting(0.04, "Divisor of the same similarities in the target network.", gt=0)
        centre_tau: float = setting(0.9, "Decay of the centre, a moving average of the target's scores.", ge=0, le=1)
        prototypes: int = setting(4096, "Number of prototypes.", ge=1, le=524_288)

    options: Options
    centre: Tensor

    def __init__(self, dims: Dims, options: Options | None = None) -> None:
        super().__init__(dims, options)
        self.prototypes = nn.Parameter(F.normalize(torch.randn(self.options.prototypes, dims.output), dim=-1))
        self.target_prototypes = nn.Parameter(self.prototypes.detach().clone(), requires_grad=False)
        self.register_buffer("centre", torch.zeros(self.options.prototypes))
        self._scores: Tensor | None = None  # from the loss of a step to its end

    def projector(self) -> nn.Module:
        """Three layers, no batch norm at the end."""
        return mlp(self.dims.feature, self.dims.hidden, self.dims.hidden, self.dims.output)

    def loss(self, step: Step) -> Tensor:
        """The cross-entropy of each view and the target network's distributions of the others."""
        return between_views(soft_cross_entropy, *self._logits_and_target(step))

    def sample_losses(self, step: Step) -> Tensor:
        """The cross-entropies of each sample."""
        return each_sample(cross_entropies, *self._logits_and_target(step))

    def _logits_and_target(self, step: Step) -> tuple[Tensor, Tensor]:
        scores = prototype_scores(step.features.projected, self.prototypes) / self.options.temperature
        self._scores = theirs = prototype_scores(self.target_features(step).projected, self.target_prototypes)
        return scores, ((theirs - self.centre) / self.options.target_temperature).softmax(-1)

    def after_step(self, output: StepOutput, encoder: Encoder) -> None:
        """Move the target network, its prototypes and the centre."""
        super().after_step(output, encoder)
        self.target_prototypes.lerp_(self.prototypes, 1 - self.options.target_tau)
        if self._scores is not None:
            self.centre.lerp_(self._scores.mean((0, 1)), 1 - self.options.centre_tau)
            self._scores = None
