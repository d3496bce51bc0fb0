"""EMP-SSL: L = −mean over views of cos(z, z̄) − λ · mean over views of ½ log det(I + d/(n ε) Z Zᵀ).

z are the projected features of a view at length 1, z̄ is the mean of all views of a sample, and Z has the n samples of
one view as rows. The second term, the total coding rate, is large where features spread in all directions. The paper
multiplies both terms by 200.

λ and n. Let α = d/(n ε). The gradient of the rate with respect to row i is α Σⱼ [(I + α Z Zᵀ)⁻¹]ᵢⱼ zⱼ. For rows that
are nearly orthogonal, with cosines ρᵢⱼ, its part across zᵢ is −(α/(1 + α))² Σⱼ≠ᵢ ρᵢⱼ zⱼ. It does not depend on n
while n is well below d/ε (5,120 for d = 1024). The rate is a sum over samples: at orthogonal rows it is n/2 · log(1 +
α). The first term is a mean over samples, and its gradient for a row is proportional to 1/n. With the same λ the rate
therefore weighs n times as much in a batch of n. The paper's code has n = 100, λ = 1/200 and no rule for n; nor has
MCR², where the rate comes from. With ``rate_batch`` = m, λ is multiplied by m/n, and the two gradients keep the
proportion that they have at n = m.

Shengbang Tong, Yubei Chen, Yi Ma and Yann LeCun. EMP-SSL: Towards Self-Supervised Learning in One Training Epoch. 2023.
arXiv:2304.03977.
"""

from __future__ import annotations

from torch import Tensor, nn

from ocssl.batch import Step
from ocssl.losses import coding_rate, mean_agreement
from ocssl.methods.base import Method, register
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
        rate_batch: int | None = setting(
            None,
            "Samples for which rate_weight holds; with n samples it is rate_weight · rate_batch / n. Unset: it holds "
            "for any n.",
            ge=1,
            since="0.2",
        )
        rate_epsilon: float = setting(0.2, "Squared precision of the coding rate.", gt=0)

    options: Options

    def projector(self) -> nn.Module:
        """Two layers, no batch norm at the end."""
        return mlp(self.dims.feature, self.dims.hidden, self.dims.output)

    def loss(self, step: Step) -> Tensor:
        """The views' agreement with their mean, and the coding rate of each view."""
        views, options = step.features.projected, self.options
        by_n = 1.0 if options.rate_batch is None else options.rate_batch / views.shape[1]
        return -mean_agreement(views) - options.rate_weight * by_n * coding_rate(views, options.rate_epsilon)
