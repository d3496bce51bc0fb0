"""Two parts: the first samples, which stay for good, and the newest ones.

The second part is the memory of CLA: Giacomo Cignoni, Andrea Cossu, Alexandra Gomez-Villa, Joost van de Weijer and
Antonio Carta. CLA: Latent Alignment for Online Continual Self-Supervised Learning. CoLLAs 2025. arXiv:2507.10434.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ocssl.errors import ConfigError
from ocssl.memory.base import Memory, register
from ocssl.options import setting


@register("anchored")
class Anchored(Memory):
    """Keeps the first samples for good, and the newest ones.

    For streams that begin with images that must not be forgotten, such as some that the network was trained on before.

    Source: our own; the second part is the memory of CLA, Cignoni et al., CoLLAs 2025, arXiv:2507.10434.
    """

    label = "first + FIFO"

    class Options(Memory.Options):
        """Settings of the memory."""

        first: float = setting(0.5, "Share of the memory that the first samples keep.", gt=0, lt=1, since="0.2")

    options: Options

    def __init__(self, capacity: int, *args: Any, staging: int, **kwargs: Any) -> None:
        super().__init__(capacity, *args, staging=staging, **kwargs)
        share = self.options.first
        self.first = int(share * capacity)
        if self.first == 0:
            raise ConfigError(f"first ({share:g}) of memory_size {capacity} keeps no sample; choose a larger share")
        if capacity - self.first < staging:
            raise ConfigError(
                f"first ({share:g}) of memory_size {capacity} must leave room for {staging} newer samples, those of "
                "one stream minibatch"
            )

    def assign_slots(self, n: int, generator: torch.Generator) -> Tensor:
        """Slots in turn, after the first part always those of the second."""
        order = self.arrived + self.slots[:n]
        newer = self.first + (order - self.first) % (self.capacity - self.first)
        return torch.where(order < self.first, order, newer)
