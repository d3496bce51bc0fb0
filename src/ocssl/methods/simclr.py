"""SimCLR: tell a sample's other view from all other samples."""

from __future__ import annotations

import torch
from torch import Tensor

from ocssl.batch import Batch
from ocssl.losses import nt_xent
from ocssl.methods.base import Dims, Method, register
from ocssl.nn import Features


@register("simclr")
class SimCLR(Method):
    """NT-Xent over both views of the batch, all 2b − 2 others as negatives.

    Args:
        temperature: divides the cosine similarities.
    """

    def __init__(self, dims: Dims, temperature: float = 0.5) -> None:
        super().__init__(dims)
        self.temperature = temperature

    def loss(self, features: Features, batch: Batch) -> Tensor:
        """Contrast of the two views."""
        return nt_xent(features.projected[0], features.projected[1], self.temperature)

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """NT-Xent between prediction and target, view by view, averaged."""
        target = target.detach()
        return torch.stack([nt_xent(p, t, self.temperature) for p, t in zip(predicted, target, strict=True)]).mean()
