"""Reservoir sampling: at any time a uniform sample of everything seen (Vitter's algorithm R)."""

from __future__ import annotations

import torch
from torch import Tensor

from ocssl.memory.base import Memory, register


@register("reservoir")
class Reservoir(Memory):
    """Each sample of the stream is in the memory with the same probability, ``capacity / seen``."""

    label = "reservoir"

    def assign_slots(self, n: int, generator: torch.Generator) -> Tensor:
        """Sample t takes slot t while there is room, then a uniform slot among 0 … t, if that is one of ours."""
        order = self.arrived + self.slots[:n]
        uniform = torch.rand(n, generator=generator, device=self.device, dtype=torch.float64)
        slot = torch.where(order < self.capacity, order, (uniform * (order + 1)).long())
        # One after another, a later newcomer would overwrite an earlier one in the same slot.
        later = torch.ones(n, n, dtype=torch.bool, device=self.device).triu(diagonal=1)
        overwritten = ((slot[:, None] == slot[None, :]) & later).any(dim=1)
        staging = self.capacity + self.slots[:n]
        return torch.where((slot < self.capacity) & ~overwritten, slot, staging)
