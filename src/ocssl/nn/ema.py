"""Copies of a network without gradient: frozen copies and moving averages."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


def frozen_copy(module: M) -> M:
    """A deep copy whose parameters require no gradient.

    >>> frozen_copy(nn.Linear(2, 2)).weight.requires_grad
    False
    """
    return copy.deepcopy(module).requires_grad_(False)


@torch.no_grad()
def copy_weights(target: nn.Module, source: nn.Module) -> None:
    """Copy all parameters and buffers of ``source`` to ``target``, in place."""
    torch._foreach_copy_([*target.parameters()], [*source.parameters()])
    for old, new in zip(target.buffers(), source.buffers(), strict=True):
        old.copy_(new)


@torch.no_grad()
def ema_update(target: nn.Module, source: nn.Module, tau: float) -> None:
    """θ′ ← τ θ′ + (1 − τ) θ for the parameters; buffers are not changed.

    >>> teacher, student = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.zeros_(teacher.weight), nn.init.ones_(student.weight)
    >>> ema_update(teacher, student, tau=0.75)
    >>> teacher.weight.item()
    0.25
    """
    torch._foreach_lerp_([*target.parameters()], [*source.parameters()], 1 - tau)


class Average(nn.Module):
    """A moving average of a network's weights: θ̄ₜ ← θ̄ₜ₋₁ + (θₜ − θ̄ₜ₋₁) max[(1 − τ)/(1 − τᵗ), (γ + 1)/(t + γ)].

    With γ = 0 this is the exponential moving average with its bias corrected: after one step it is the network itself,
    after many it forgets at the rate τ. With γ > 0 it is the polynomial-decay average (Shamir and Zhang, ICML 2013)
    until that forgets as slowly as τ: the weight of step s grows as s^γ, so that the average always reaches back over
    the same share of all steps, about 1/(γ + 1). Buffers, such as the statistics of batch norm, are averaged too;
    integers are copied.

    Args:
        network: what is averaged; a copy of it is made.
        tau: decay τ of the average.
        power: γ.

    >>> source = nn.Linear(1, 1, bias=False)
    >>> average = Average(source, tau=0.5)
    >>> for value in (1.0, 4.0):
    ...     _ = nn.init.constant_(source.weight, value)
    ...     average.update(source)
    >>> average.network.weight.item()   # (½ · 1 + 4) / (½ + 1)
    3.0
    """

    steps: Tensor

    def __init__(self, network: nn.Module, tau: float, power: float = 0.0) -> None:
        super().__init__()
        self.network = frozen_copy(network)
        self.tau, self.power = tau, power
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def update(self, source: nn.Module) -> None:
        """Include the present weights of ``source``, which has the architecture of the network."""
        self.steps.add_(1)
        steps = self.steps.double()
        weight = (1 - self.tau) / (1 - self.tau**steps)
        if self.power:
            weight = torch.maximum(weight, (self.power + 1) / (steps + self.power))
        old, new = ([*network.parameters(), *network.buffers()] for network in (self.network, source))
        pairs = [*zip(old, new, strict=True)]
        counts = [pair for pair in pairs if not pair[0].is_floating_point()]
        if counts:
            torch._foreach_copy_([mine for mine, _ in counts], [count for _, count in counts])
        pairs = [pair for pair in pairs if pair[0].is_floating_point()]
        difference = torch._foreach_sub([now for _, now in pairs], [mine for mine, _ in pairs])
        torch._foreach_mul_(difference, weight.to(difference[0].dtype))
        torch._foreach_add_([mine for mine, _ in pairs], difference)
