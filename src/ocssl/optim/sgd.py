"""Stochastic gradient descent with momentum: v ← μ v + ∇L + λ θ, then θ ← θ − η v.

The arithmetic is torch's. ``torch.optim.SGD`` is not used because its constructor imports torch's compiler, which takes
seconds; the functional form does not (times are in ``docs/dependencies.md``).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from ocssl.optim.base import Optimizer, register
from ocssl.options import setting


@register("sgd")
class SGD(Optimizer):
    """SGD with momentum and weight decay.

    Velocities are zeros from the start, which is what the first step begins with anyway. So every step does the same
    work, also for parameters whose first gradient comes late. A parameter without a gradient keeps value and velocity.

    >>> weight = nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = SGD([weight], SGD.Options(lr=0.1, momentum=0.5, weight_decay=0.0))
    >>> for _ in range(2):
    ...     optimizer.zero_grad()
    ...     (2 * weight).sum().backward()
    ...     optimizer.step()
    >>> weight.item(), optimizer.state_dict()
    (0.5, {'momentum.0': tensor([3.])})
    """

    class Options(Optimizer.Options):
        momentum: float = setting(0.9, "Momentum.", ge=0)
        weight_decay: float = setting(1e-4, "Weight decay.", ge=0)

    options: Options

    def __init__(self, parameters: Iterable[nn.Parameter], options: Options, *, fused: bool = False) -> None:
        super().__init__(parameters, options, fused=fused)
        self.velocities: list[Tensor] = [torch.zeros_like(parameter) for parameter in self.parameters]
        self._fused = fused

    @torch.no_grad()
    def update(self, lr: float | Tensor) -> None:
        """Move every parameter that has a gradient."""
        moved = self.moved()
        sgd(
            [parameter for parameter, _, _ in moved],
            [gradient for _, gradient, _ in moved],
            [self.velocities[i] for _, _, i in moved],
            fused=self._fused or isinstance(lr, Tensor),  # only the fused kernel takes a tensor as learning rate
            lr=lr,  # type: ignore[arg-type]
            momentum=self.options.momentum,
            weight_decay=self.options.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )

    def moments(self) -> dict[str, Tensor]:
        """The velocity of each parameter, as ``momentum.0``, ``momentum.1``, …"""
        return {f"momentum.{i}": velocity for i, velocity in enumerate(self.velocities)}
