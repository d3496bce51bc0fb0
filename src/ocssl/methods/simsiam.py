"""SimSiam: L = −½ cos(p(z₁), sg(z₂)) − ½ cos(p(z₂), sg(z₁)).

z₁ and z₂ are the projected features of two views, p is the predictor, and sg stops the gradient.

Xinlei Chen and Kaiming He. Exploring Simple Siamese Representation Learning. CVPR 2021. arXiv:2011.10566.
"""

from __future__ import annotations

from torch import Tensor

from ocssl.batch import Batch
from ocssl.losses import negative_cosine
from ocssl.methods.base import Dims, Method, register
from ocssl.nn import Features, predictor


@register("simsiam")
class SimSiam(Method):
    """Predicts the features of one view from those of the other, without negatives.

    Source: Chen and He, CVPR 2021, arXiv:2011.10566.
    """

    def __init__(self, dims: Dims, options: Method.Options | None = None) -> None:
        super().__init__(dims, options)
        self.predictor = predictor(dims.output, dims.hidden)

    def loss(self, features: Features, batch: Batch) -> Tensor:
        """The negative cosine of each view's prediction and the other view."""
        return negative_cosine(features.through(self.predictor), features.projected.flip(0))

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The negative cosine."""
        return negative_cosine(predicted, target)
