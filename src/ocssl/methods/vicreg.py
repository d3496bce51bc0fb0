"""VICReg: L = 25 s(Z₁, Z₂) + 25 · ½ [v(Z₁) + v(Z₂)] + c(Z₁) + c(Z₂).

s is the mean squared difference of the projected features of two views, v the mean of max(0, 1 − standard deviation)
over the features, and c the sum of squared covariances of different features, divided by their number. With more views,
s is the mean over all pairs, and v and c are means over the views, c counted twice. The weights and the ½ are those of
the paper's code.

Adrien Bardes, Jean Ponce and Yann LeCun. VICReg: Variance-Invariance-Covariance Regularization for Self-Supervised
Learning. ICLR 2022. arXiv:2105.04906.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from ocssl.batch import Step
from ocssl.losses import full, per_view, vicreg
from ocssl.methods.base import Method, register
from ocssl.nn import mlp
from ocssl.options import setting


@register("vicreg")
class VICReg(Method):
    """Brings views together, while each feature varies over the batch and no two features covary.

    Source: Bardes et al., ICLR 2022, arXiv:2105.04906.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"sgd.lr": 0.01}

    class Options(Method.Options):
        invariance: float = setting(25.0, "Weight of the squared differences between views.", ge=0)
        variance: float = setting(25.0, "Weight of the hinge on the standard deviations.", ge=0)
        covariance: float = setting(1.0, "Weight of the squared covariances.", ge=0)

    options: Options

    @property
    def weights(self) -> tuple[float, float, float]:
        """Of invariance, variance and covariance."""
        return self.options.invariance, self.options.variance, self.options.covariance

    def projector(self) -> nn.Module:
        """Three layers, no batch norm at the end, which would fix the variances."""
        return mlp(self.dims.feature, self.dims.hidden, self.dims.hidden, self.dims.output)

    def loss(self, step: Step) -> Tensor:
        """Invariance, variance and covariance of all views."""
        return vicreg(step.features.projected, *self.weights)

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The loss of prediction and target, averaged over the views."""
        return per_view(lambda pair: vicreg(pair, *self.weights), predicted, target)

    def distillation(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The mean squared difference times 25, its weight in CaSSLe's own code."""
        return 25 * F.mse_loss(full(predicted), full(target.detach()))
