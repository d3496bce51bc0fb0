"""Minimum redundancy: keep samples that are far from each other in feature space."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ocssl.memory.base import Memory, register
from ocssl.registry import unknown

DROPS = ("sequential", "simultaneous")


@register("minred")
class MinRed(Memory):
    """When full, drops the sample whose nearest neighbour is nearest (cosine); of two equals, the older.

    The matrix of similarities is kept up to date row by row, so an update costs O(n × capacity × d) instead of
    O(capacity² × d), and takes capacity² numbers of memory.

    Args:
        drops: ``"sequential"`` looks again after each drop, so of two twins one stays; ``"simultaneous"`` takes all
            drops of a minibatch from one look.

    Samples without a feature are like nobody and go only when there is nobody else to drop.
    """

    needs_features = True

    def __init__(self, *args: Any, drops: str = "sequential", **kwargs: Any) -> None:
        if drops not in DROPS:
            raise unknown("way to drop", drops, DROPS)
        super().__init__(*args, **kwargs)
        self.drops = drops
        rows = self.capacity + self.staging
        self.similarity = torch.full((rows, rows), float("-inf"), device=self.device)
        self.norm = torch.ones(rows, device=self.device)

    def on_write(self, rows: Tensor) -> None:
        """Refresh the similarities of the rows."""
        features = self.columns["features"].float()
        self.norm[rows] = features[rows].norm(dim=1).clamp(min=1e-12)
        cosine = features[rows] @ features.T / (self.norm[rows, None] * self.norm)
        known = self.featured[rows, None] & self.featured & (self.slots != rows[:, None])
        cosine = cosine.masked_fill(~known, float("-inf"))
        # Among themselves the rows were computed twice; make the two agree to the bit, so that ties are ties.
        among = cosine[:, rows]
        cosine[:, rows] = torch.maximum(among, among.T)
        self.similarity[rows] = cosine
        self.similarity[:, rows] = cosine.T

    def assign_slots(self, n: int, generator: torch.Generator) -> Tensor:
        """Drop as many as there are too many, then give the survivors on the staging the free slots."""
        filled = self.slots[: self.capacity] < self.arrived
        waiting = self.slots[self.capacity :] < self.capacity + n
        kept = self._drop(torch.cat([filled, waiting]), n)
        free = (~kept[: self.capacity]).int().argsort(stable=True, descending=True)[:n]
        survivor = kept[self.capacity : self.capacity + n]
        rank = (survivor.cumsum(0) - 1).clamp(min=0)
        return torch.where(survivor, free[rank], self.capacity + self.slots[:n])

    def _drop(self, present: Tensor, n: int) -> Tensor:
        """``present`` without its most redundant members, as many as exceed the capacity."""
        surplus = self.arrived + n - self.capacity
        similarity = self.similarity.masked_fill(~present, float("-inf"))
        nearest = similarity.amax(dim=1)
        kept = present
        for i in range(n):
            drop = self._most_redundant(nearest, kept)
            really = i < surplus
            kept = kept & ~((self.slots == drop) & really)
            if self.drops == "sequential":
                column = similarity.index_select(1, drop)
                similarity.index_copy_(1, drop, column.masked_fill(really, float("-inf")))
                nearest = similarity.amax(dim=1)
        return kept

    def _most_redundant(self, nearest: Tensor, kept: Tensor) -> Tensor:
        """Row of the next to drop, ``(1,)``: the one nearest to its nearest neighbour, the older of equals."""
        redundancy = nearest.clamp(min=-1.5)  # without neighbours: less redundant than any cosine says
        redundancy = redundancy.masked_fill(~self.featured, -2.0).masked_fill(~kept, float("-inf"))
        tied = redundancy == redundancy.amax()
        return self.born.masked_fill(~tied, torch.iinfo(torch.int64).max).argmin(keepdim=True)

    def _extra_state(self) -> dict[str, Tensor]:
        return {"similarity": self.similarity, "norm": self.norm}
