"""Copies of a network without gradient: frozen copies and moving averages."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

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
