"""BYOL: L = mean over ordered pairs of views of 2 − 2 cos(p(z₁), z′₂).

z are the projected features of the encoder, z′ those of the target network, and p is the predictor. The target network
is a moving average of the encoder. The paper has the sum over both orders of two views, twice this mean, and lets τ
rise from 0.996 to 1; the end of a stream is not known, so τ is constant here.

Jean-Bastien Grill, Florian Strub, Florent Altché, Corentin Tallec, Pierre H. Richemond, Elena Buchatskaya, Carl
Doersch, Bernardo Avila Pires, Zhaohan Daniel Guo, Mohammad Gheshlaghi Azar, Bilal Piot, Koray Kavukcuoglu, Rémi Munos
and Michal Valko. Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning. NeurIPS 2020. arXiv:2006.07733.
"""

from __future__ import annotations

from torch import Tensor, nn

from ocssl.batch import Step
from ocssl.losses import between_views, cosine_losses, each_sample, negative_cosine
from ocssl.methods.base import Dims, register
from ocssl.methods.target import TargetMethod
from ocssl.nn import mlp, predictor


@register("byol")
class BYOL(TargetMethod):
    """Predicts the target network's features of the other views, without negatives.

    Source: Grill et al., NeurIPS 2020, arXiv:2006.07733.
    """

    def __init__(self, dims: Dims, options: TargetMethod.Options | None = None) -> None:
        super().__init__(dims, options)
        self.predictor = predictor(dims.output, dims.hidden)

    def projector(self) -> nn.Module:
        """Two layers, no batch norm at the end."""
        return mlp(self.dims.feature, self.dims.hidden, self.dims.output)

    def loss(self, step: Step) -> Tensor:
        """2 − 2 cos of each view's prediction and the target network's features of the other views."""
        predicted = step.features.through(self.predictor)
        return 2 + 2 * between_views(negative_cosine, predicted, self.target_features(step).projected)

    def sample_losses(self, step: Step) -> Tensor:
        """2 − 2 cos of each sample."""
        predicted = step.features.through(self.predictor)
        return 2 + 2 * each_sample(cosine_losses, predicted, self.target_features(step).projected)

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """2 − 2 cos."""
        return 2 + 2 * negative_cosine(predicted, target)

    def distillation(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The same as :meth:`distance`."""
        return self.distance(predicted, target)
