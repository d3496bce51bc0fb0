"""SimSiam: L = −½ cos(p(z₁), sg(z₂)) − ½ cos(p(z₂), sg(z₁)).

z₁ and z₂ are the projected features of two views, p is the predictor, and sg stops the gradient. With more views, L is
the mean over all ordered pairs of them.

Xinlei Chen and Kaiming He. Exploring Simple Siamese Representation Learning. CVPR 2021. arXiv:2011.10566.
"""

from __future__ import annotations

from torch import Tensor

from ocssl.batch import Step
from ocssl.losses import between_views, cosine_losses, each_sample, negative_cosine
from ocssl.methods.base import Dims, Method, register
from ocssl.nn import predictor


@register("simsiam")
class SimSiam(Method):
    """Predicts the features of one view from those of the other, without negatives.

    Source: Chen and He, CVPR 2021, arXiv:2011.10566.
    """

    def __init__(self, dims: Dims, options: Method.Options | None = None) -> None:
        super().__init__(dims, options)
        self.predictor = predictor(dims.output, dims.hidden)

    def loss(self, step: Step) -> Tensor:
        """The negative cosine of each view's prediction and the other views."""
        features = step.features
        return between_views(negative_cosine, features.through(self.predictor), features.projected)

    def sample_losses(self, step: Step) -> Tensor:
        """The negative cosines of each sample."""
        features = step.features
        return each_sample(cosine_losses, features.through(self.predictor), features.projected)

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The negative cosine."""
        return negative_cosine(predicted, target)

    def distillation(self, predicted: Tensor, target: Tensor) -> Tensor:
        """2 − 2 cos: twice the gradient of :meth:`distance`."""
        return 2 + 2 * negative_cosine(predicted, target)
