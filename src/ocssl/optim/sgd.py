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
    """SGD with momentum, weight decay and a constant learning rate.

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
        lr: float = setting(
            0.1,
            "Learning rate; constant over the stream. Unset: the strategy's, as tuned; smaller for small batches.",
            common=True,
            ge=0,
        )
        momentum: float = setting(0.9, "Momentum of SGD.", ge=0)
        weight_decay: float = setting(1e-4, "Weight decay (L2 penalty) of SGD.", ge=0)

    def __init__(self, parameters: Iterable[nn.Parameter], options: Options, *, fused: bool = False) -> None:
        super().__init__(parameters, options, fused=fused)
        self.options = options
        self.velocities: list[Tensor] = [torch.zeros_like(parameter) for parameter in self.parameters]
        self._fused = fused

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        moved = [
            (parameter, parameter.grad, velocity)
            for parameter, velocity in zip(self.parameters, self.velocities, strict=True)
            if parameter.grad is not None
        ]
        sgd(
            [parameter for parameter, _, _ in moved],
            [gradient for _, gradient, _ in moved],
            [velocity for _, _, velocity in moved],
            fused=self._fused,
            lr=self.options.lr,
            momentum=self.options.momentum,
            weight_decay=self.options.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )

    def state_dict(self) -> dict[str, Tensor]:
        """The velocity of each parameter, as ``momentum.0``, ``momentum.1``, …"""
        return {f"momentum.{i}": velocity for i, velocity in enumerate(self.velocities)}
