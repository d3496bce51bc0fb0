"""SimSiam: predict one view's features from the other's, without negatives."""

from __future__ import annotations

from torch import Tensor

from ocssl.batch import Batch
from ocssl.losses import negative_cosine
from ocssl.methods.base import Dims, Method, register
from ocssl.nn import Features, predictor


@register("simsiam")
class SimSiam(Method):
    """−½ cos(p(z₁), z₂) − ½ cos(p(z₂), z₁), the targets without gradient."""

    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.predictor = predictor(dims.output, dims.hidden)

    def loss(self, features: Features, batch: Batch) -> Tensor:
        """Each view's prediction against the other view."""
        return negative_cosine(features.through(self.predictor), features.projected.flip(0))

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """Negative cosine."""
        return negative_cosine(predicted, target)
