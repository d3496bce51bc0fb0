"""First in, first out: keeps the last ``capacity`` samples of the stream, the default of CLA-E and CLA-R.

Giacomo Cignoni, Andrea Cossu, Alexandra Gomez-Villa, Joost van de Weijer and Antonio Carta. CLA: Latent Alignment for
Online Continual Self-Supervised Learning. CoLLAs 2025. arXiv:2507.10434.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ocssl.memory.base import Memory, register


@register("fifo")
class Fifo(Memory):
    """Keeps the newest samples. Every sample of the stream stays in the memory for the same time.

    Source: the memory of CLA, Cignoni et al., CoLLAs 2025, arXiv:2507.10434.
    """

    label = "FIFO"

    def assign_slots(self, n: int, generator: torch.Generator) -> Tensor:
        """Slots in turn: the oldest sample is overwritten first."""
        return (self.arrived + self.slots[:n]) % self.capacity
