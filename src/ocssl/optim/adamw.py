"""AdamW: m ← β₁ m + (1 − β₁) ∇L, s ← β₂ s + (1 − β₂) ∇L², then θ ← θ − η (m̂ / (√ŝ + ε) + λ θ).

m̂ = m / (1 − β₁ᵗ) and ŝ = s / (1 − β₂ᵗ) after t steps. The arithmetic is torch's.

Ilya Loshchilov and Frank Hutter. Decoupled Weight Decay Regularization. ICLR 2019. arXiv:1711.05101.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from ocssl.optim.base import Optimizer, register
from ocssl.options import setting


@register("adamw")
class AdamW(Optimizer):
    """Adam with weight decay apart from the gradient.

    Source: Loshchilov and Hutter, ICLR 2019, arXiv:1711.05101.

    >>> weight = nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = AdamW([weight], AdamW.Options(lr=0.1, weight_decay=0.0))
    >>> weight.grad = torch.tensor([5.0])
    >>> optimizer.step()
    >>> round(weight.item(), 6)   # the first step has the length of the learning rate
    0.9
    """

    class Options(Optimizer.Options):
        lr: float = Optimizer.Options.with_default("lr", 1e-3)
        weight_decay: float = setting(0.01, "Weight decay.", ge=0)
        beta1: float = setting(0.9, "Decay of the mean of gradients.", ge=0, lt=1)
        beta2: float = setting(0.999, "Decay of the mean of squared gradients.", ge=0, lt=1)

    options: Options

    def __init__(self, parameters: Iterable[nn.Parameter], options: Options, *, fused: bool = False) -> None:
        super().__init__(parameters, options, fused=fused)
        self.means: list[Tensor] = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.squares: list[Tensor] = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps: list[Tensor] = [torch.zeros((), device=parameter.device) for parameter in self.parameters]

    @torch.no_grad()
    def update(self, lr: float | Tensor) -> None:
        """Move every parameter that has a gradient, in one kernel."""
        moved = self.moved()
        adamw(
            [parameter for parameter, _, _ in moved],
            [gradient for _, gradient, _ in moved],
            [self.means[i] for _, _, i in moved],
            [self.squares[i] for _, _, i in moved],
            [],
            [self.steps[i] for _, _, i in moved],
            fused=True,
            amsgrad=False,
            beta1=self.options.beta1,
            beta2=self.options.beta2,
            lr=lr,
            weight_decay=self.options.weight_decay,
            eps=1e-8,
            maximize=False,
        )

    def moments(self) -> dict[str, Tensor]:
        """Means, mean squares and steps of each parameter."""
        kinds = {"mean": self.means, "square": self.squares, "steps": self.steps}
        return {f"adamw.{kind}.{i}": tensor for kind, tensors in kinds.items() for i, tensor in enumerate(tensors)}
