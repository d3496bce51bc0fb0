"""LeJEPA: L = (1 − λ) · mean of (z − z̄)² + λ · mean over views of SIGReg(Z).

z are the projected features of a view, z̄ is the mean of all views of a sample, and SIGReg(Z) says how far the features
of a batch are from a standard normal distribution: the Epps–Pulley statistic along random directions, drawn anew in
every step. The paper predicts the mean of two large crops from these and from small crops; here all views have the same
size, and there are as many.

Randall Balestriero and Yann LeCun. LeJEPA: Provable and Scalable Self-Supervised Learning Without the Heuristics. 2025.
arXiv:2511.08544.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ocssl.batch import Step
from ocssl.losses import full, sigreg
from ocssl.methods.base import Method, register
from ocssl.nn import mlp
from ocssl.options import setting


@register("lejepa")
class LeJEPA(Method):
    """Brings views to their mean, while the features of a batch are normally distributed.

    Source: Balestriero and LeCun, 2025, arXiv:2511.08544.
    """

    class Options(Method.Options):
        views: int = Method.Options.with_default("views", 8)
        sigreg_weight: float = setting(
            0.05, "Weight of SIGReg; the rest to 1 weighs the distance of the views.", ge=0, le=1
        )
        directions: int = setting(1024, "Random directions along which features are tested.", ge=1, le=65_536)

    options: Options

    def projector(self) -> nn.Module:
        """Three layers, no batch norm at the end."""
        return mlp(self.dims.feature, self.dims.hidden, self.dims.hidden, self.dims.output)

    def loss(self, step: Step) -> Tensor:
        """The views' squared distance from their mean, and SIGReg of each view."""
        views = full(step.features.projected)
        shape, weight = (views.shape[-1], self.options.directions), self.options.sigreg_weight
        drawn = torch.randn(shape, generator=step.generator, device=step.generator.device, dtype=views.dtype)
        apart = (views - views.mean(0)).square().mean()
        return (1 - weight) * apart + weight * sigreg(views, drawn)
