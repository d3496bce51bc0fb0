"""Reservoir sampling (algorithm R): at any time a uniform sample of all samples so far.

Jeffrey S. Vitter. Random Sampling with a Reservoir. ACM Transactions on Mathematical Software 11(1), 1985.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ocssl.memory.base import Memory, register


@register("reservoir")
class Reservoir(Memory):
    """Contains each sample of the stream with the same probability, ``capacity / seen``.

    Source: Vitter, ACM Transactions on Mathematical Software 11(1), 1985.
    """

    label = "reservoir"

    def assign_slots(self, n: int, generator: torch.Generator) -> Tensor:
        """Sample t gets slot t while there is room, then a uniform number of 0 … t, if that is a slot."""
        order = self.arrived + self.slots[:n]
        uniform = torch.rand(n, generator=generator, device=self.device, dtype=torch.float64)
        slot = torch.where(order < self.capacity, order, (uniform * (order + 1)).long())
        # Inserted one by one, a later sample would overwrite an earlier one in the same slot.
        later = torch.ones(n, n, dtype=torch.bool, device=self.device).triu(diagonal=1)
        overwritten = ((slot[:, None] == slot[None, :]) & later).any(dim=1)
        staging = self.capacity + self.slots[:n]
        return torch.where((slot < self.capacity) & ~overwritten, slot, staging)
