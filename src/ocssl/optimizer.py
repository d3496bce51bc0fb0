"""Stochastic gradient descent with momentum: torch's arithmetic, with state that is plain lists of tensors.

``torch.optim.SGD`` would do, but making one imports torch's compiler, which takes seconds that a run without compiling
has no use for; its functional form imports nothing (``docs/dependencies.md`` has the times).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd


class SGD:
    """Descends along velocities that gradients and weight decay push: ``v = momentum v + g + decay w``, ``w -= lr v``.

    Velocities are there from the start, as zeros. That is what the first step begins from anyway, and it keeps every
    later step alike, also for parameters whose first gradient comes late.

    Args:
        parameters: what is trained; one without a gradient stays as it is, and so does its velocity.
        fused: all parameters in one kernel, on a GPU.

    >>> weight = nn.Parameter(torch.tensor([1.0]))
    >>> optimizer = SGD([weight], lr=0.1, momentum=0.5, weight_decay=0.0, fused=False)
    >>> for _ in range(2):
    ...     optimizer.zero_grad()
    ...     (2 * weight).sum().backward()
    ...     optimizer.step()
    >>> weight.item(), optimizer.velocities[0].item()
    (0.5, 3.0)
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], *, lr: float, momentum: float, weight_decay: float, fused: bool
    ) -> None:
        self.parameters = list(parameters)
        self.velocities: list[Tensor] = [torch.zeros_like(parameter) for parameter in self.parameters]
        self._lr, self._momentum, self._weight_decay = lr, momentum, weight_decay
        self._fused = fused

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

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
            lr=self._lr,
            momentum=self._momentum,
            weight_decay=self._weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
        )
