"""EMP-SSL: L = −mean over views of cos(z, z̄) − λ · mean over views of ½ log det(I + d/(n ε) Z Zᵀ).

z are the projected features of a view at length 1, z̄ is the mean of all views of a sample, and Z has the n samples of
one view as rows. The second term, the total coding rate, is large where features spread in all directions. The paper
multiplies both terms by 200.

Shengbang Tong, Yubei Chen, Yi Ma and Yann LeCun. EMP-SSL: Towards Self-Supervised Learning in One Training Epoch. 2023.
arXiv:2304.03977.
"""

from __future__ import annotations

from torch import Tensor, nn

from ocssl.batch import Step
from ocssl.losses import coding_rate, mean_agreement
from ocssl.methods.base import Dims, Method, register
from ocssl.nn import mlp
from ocssl.options import setting


@register("emp")
class EMP(Method):
    """Brings many views of a sample to their mean, while the features of a batch fill the space.

    Source: Tong et al., 2023, arXiv:2304.03977.
    """

    class Options(Method.Options):
        views: int = Method.Options.with_default("views", 20)
        rate_weight: float = setting(0.005, "Weight of the coding rate.", ge=0)
        rate_epsilon: float = setting(0.2, "Squared precision of the coding rate.", gt=0)

    def __init__(self, dims: Dims, options: Options | None = None) -> None:
        options = options or self.Options()
        super().__init__(dims, options)
        self.rate_weight, self.epsilon = options.rate_weight, options.rate_epsilon

    def projector(self) -> nn.Module:
        """Two layers, no batch norm at the end."""
        return mlp(self.dims.feature, self.dims.hidden, self.dims.output)

    def loss(self, step: Step) -> Tensor:
        """The views' agreement with their mean, and the coding rate of each view."""
        views = step.features.projected
        return -mean_agreement(views) - self.rate_weight * coding_rate(views, self.epsilon)
