"""Two parts: the newest samples, and a selection of the older ones.

A sample that is no longer among the newest competes for a place in the second part, by a draw or by its redundancy.

Jeffrey S. Vitter. Random Sampling with a Reservoir. ACM Transactions on Mathematical Software 11(1), 1985.

Senthil Purushwalkam, Pedro Morgado and Abhinav Gupta. The Challenges of Continuous Self-Supervised Learning. ECCV 2022.
arXiv:2203.12710.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ocssl.errors import ConfigError
from ocssl.memory.base import Column, Memory, register
from ocssl.memory.minred import MinRed
from ocssl.options import setting


class Recent(Memory):
    """Base of the memories with two parts: the first holds the newest samples."""

    class Options(Memory.Options):
        """Settings of the memory."""

        recent: float = setting(0.5, "Share of the memory that holds the newest samples.", gt=0, lt=1)

    options: Options

    def __init__(self, capacity: int, *args: Any, staging: int, **kwargs: Any) -> None:
        super().__init__(capacity, *args, staging=staging, **kwargs)
        share = self.options.recent
        self.recent = int(share * capacity)
        if self.recent < staging or capacity - self.recent < staging:
            raise ConfigError(
                f"recent ({share:g}) of memory_size {capacity} must leave room for {staging} samples in both parts, "
                "those of one stream minibatch"
            )


@register("hybrid")
class Hybrid(Recent):
    """Part FIFO, part reservoir: the newest samples, and a uniform sample of all that are older.

    Each sample has a random key from the beginning. Of the older samples, those with the largest keys stay, which makes
    every one of them equally likely to be there.

    Source: Vitter, ACM Transactions on Mathematical Software 11(1), 1985, for the second part.
    """

    label = "FIFO + reservoir"

    def own_columns(self) -> dict[str, Column]:
        """The key of each sample."""
        return {"key": Column(())}

    def new_columns(self, n: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Uniform keys."""
        return {"key": torch.rand(n, generator=generator, device=self.device)}

    def assign_slots(self, n: int, generator: torch.Generator) -> Tensor:
        """Slots in turn while there is room, then those of the older samples with the smallest keys."""
        order = self.arrived + self.slots[:n]
        newest = self.born[: self.capacity] >= self.arrived + n - self.recent
        empty = self.slots[: self.capacity] >= self.arrived
        keys = self.columns["key"][: self.capacity].masked_fill(newest | empty, 2.0)
        dropped = keys.topk(n, largest=False, sorted=True).indices
        full = order >= self.capacity
        return torch.where(full, dropped[(full.cumsum(0) - 1).clamp(min=0)], order)


@register("hybrid-minred")
class HybridMinRed(Recent, MinRed):
    """Part FIFO, part MinRed: the newest samples, and of the older ones those that are far from each other.

    Source: Purushwalkam et al., ECCV 2022, arXiv:2203.12710, for the second part.
    """

    label = "FIFO + MinRed"

    def _most_redundant(self, nearest: Tensor, kept: Tensor) -> Tensor:
        newest = self.born >= self.born.amax() + 1 - self.recent
        return super()._most_redundant(nearest, kept & ~newest)
