"""LARS: v ← μ v + r (∇L + λ θ), then θ ← θ − η v, where r = ρ ‖θ‖ / (‖∇L‖ + λ ‖θ‖) for each weight matrix.

ρ is the trust coefficient. Parameters with one axis (biases, batch norm) have r = 1 and no weight decay.

Yang You, Igor Gitman and Boris Ginsburg. Large Batch Training of Convolutional Networks. 2017. arXiv:1708.03888.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ocssl.optim.base import Optimizer, register
from ocssl.optim.sgd import SGD
from ocssl.options import setting


@register("lars")
class LARS(SGD):
    """SGD whose step for each weight matrix is proportional to the norm of that matrix.

    Source: You et al., 2017, arXiv:1708.03888.

    >>> weight = torch.nn.Parameter(torch.tensor([[3.0, 4.0]]))
    >>> optimizer = LARS([weight], LARS.Options(lr=1.0, trust=0.1, weight_decay=0.0))
    >>> weight.grad = torch.tensor([[0.0, 7.0]])
    >>> optimizer.step()
    >>> weight.tolist()   # a step of 0.1 · 5 along the gradient
    [[3.0, 3.5]]
    """

    class Options(SGD.Options):
        lr: float = Optimizer.Options.with_default("lr", 0.3)
        trust: float = setting(0.005, "Trust coefficient of LARS.", gt=0)

    options: Options

    @torch.no_grad()
    def update(self, lr: float | Tensor) -> None:
        """Move every parameter that has a gradient."""
        moved = sorted(self.moved(), key=lambda entry: entry[0].ndim <= 1)  # matrices first
        matrices = [entry for entry in moved if entry[0].ndim > 1]
        scaled = self._scaled([p for p, _, _ in matrices], [g for _, g, _ in matrices]) if matrices else []
        velocities = [self.velocities[i] for _, _, i in moved]
        torch._foreach_mul_(velocities, self.options.momentum)
        torch._foreach_add_(velocities, [*scaled, *(g for _, g, _ in moved[len(matrices) :])])
        step = torch._foreach_mul(velocities, lr)
        torch._foreach_sub_([p for p, _, _ in moved], step)

    def _scaled(self, weights: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """r (∇L + λ θ) for each weight matrix."""
        size, slope = (torch.stack(torch._foreach_norm(tensors)) for tensors in (weights, gradients))
        trust, decay = self.options.trust, self.options.weight_decay
        ratio = trust * size / (slope + decay * size)
        ratio = torch.where((size > 0) & (slope > 0), ratio, 1.0)
        decayed = torch._foreach_add(gradients, weights, alpha=decay)
        return [gradient * r for gradient, r in zip(decayed, ratio, strict=True)]
