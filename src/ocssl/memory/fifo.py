"""First in, first out: the last ``capacity`` samples of the stream."""

from __future__ import annotations

import torch
from torch import Tensor

from ocssl.memory.base import Memory, register


@register("fifo")
class Fifo(Memory):
    """The newest samples stay. Every sample of the stream spends the same time in the memory."""

    label = "FIFO"

    def assign_slots(self, n: int, generator: torch.Generator) -> Tensor:
        """Round and round: the oldest slot first."""
        return (self.arrived + self.slots[:n]) % self.capacity
