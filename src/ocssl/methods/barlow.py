"""Barlow Twins: L = Σₖ (1 − Cₖₖ)² + λ Σₖ≠ₗ Cₖₗ².

C is the cross-correlation over the batch of the projected features of two views. With more views, L is the mean over
all pairs of them. L grows with the width of the features.

Jure Zbontar, Li Jing, Ishan Misra, Yann LeCun and Stéphane Deny. Barlow Twins: Self-Supervised Learning via Redundancy
Reduction. ICML 2021. arXiv:2103.03230.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from ocssl.batch import Step
from ocssl.losses import barlow_twins, per_view
from ocssl.methods.base import Method, register
from ocssl.nn import mlp
from ocssl.options import setting


@register("barlow")
class BarlowTwins(Method):
    """Makes the cross-correlation of the features of two views the identity matrix.

    Source: Zbontar et al., ICML 2021, arXiv:2103.03230.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"sgd.lr": 0.01}

    class Options(Method.Options):
        redundancy: float = setting(0.0051, "Weight of the off-diagonal correlations.", ge=0)

    options: Options

    def projector(self) -> nn.Module:
        """Three layers, no batch norm at the end: the loss normalises."""
        return mlp(self.dims.feature, self.dims.hidden, self.dims.hidden, self.dims.output)

    def loss(self, step: Step) -> Tensor:
        """The distance of the cross-correlations from the identity."""
        return barlow_twins(step.features.projected, self.options.redundancy)

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The loss of prediction and target, averaged over the views."""
        return per_view(partial(barlow_twins, redundancy=self.options.redundancy), predicted, target)

    def distillation(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The same with λ = 0.005, times 0.1."""
        return 0.1 * per_view(partial(barlow_twins, redundancy=0.005), predicted, target)
