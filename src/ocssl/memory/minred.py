"""Minimum redundancy: keeps samples that are far from each other in feature space.

While there are too many samples, it drops argmaxᵢ maxⱼ≠ᵢ cos(zᵢ, zⱼ).

Senthil Purushwalkam, Pedro Morgado and Abhinav Gupta. The Challenges of Continuous Self-Supervised Learning. ECCV 2022.
arXiv:2203.12710.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from ocssl.memory.base import Memory, register
from ocssl.options import setting


@register("minred")
class MinRed(Memory):
    """When full, drops the sample with the highest cosine to its nearest neighbour; of equals, the oldest.

    Samples are dropped one by one, each time from those that are left, so that one of two identical samples stays. The
    matrix of similarities is updated row by row and searched once for each drop, which takes O(n · capacity · (d +
    capacity)) time per minibatch of n samples and capacity² numbers. Samples without a feature are dropped last.

    Source: Purushwalkam et al., ECCV 2022, arXiv:2203.12710.
    """

    label = "MinRed"

    needs_features = True
    sequential = True
    """Whether redundancy is computed again after each drop."""

    least = -1.5
    """Smallest redundancy of a sample with a feature; below every cosine."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rows = self.capacity + self.staging
        self.similarity = torch.full((rows, rows), float("-inf"), device=self.device)
        self.norm = torch.ones(rows, device=self.device)

    def on_write(self, rows: Tensor) -> None:
        """Compute the similarities of the rows again."""
        features = self.columns["features"].float()
        self.norm[rows] = features[rows].norm(dim=1).clamp(min=1e-12)
        cosine = features[rows] @ features.T / (self.norm[rows, None] * self.norm)
        known = self.featured[rows, None] & self.featured & (self.slots != rows[:, None])
        cosine = cosine.masked_fill(~known, float("-inf"))
        # Pairs among these rows were computed twice; make both values equal to the bit, so that ties are ties.
        among = cosine[:, rows]
        cosine[:, rows] = torch.maximum(among, among.T)
        self.similarity[rows] = cosine
        self.similarity[:, rows] = cosine.T

    def assign_slots(self, n: int, generator: torch.Generator) -> Tensor:
        """Drop the surplus, then assign the free slots to the new samples that were not dropped."""
        filled = self.slots[: self.capacity] < self.arrived
        waiting = self.slots[self.capacity :] < self.capacity + n
        return self.slots_for(self._kept(filled, waiting, n), n)

    def _kept(self, filled: Tensor, waiting: Tensor, n: int) -> Tensor:
        """Rows of stored and new samples that stay, ``(capacity + staging,)``."""
        return self._drop(torch.cat([filled, waiting]), n)

    def _drop(self, present: Tensor, n: int) -> Tensor:
        """``present`` without its most redundant samples, so many that the rest fits the capacity."""
        surplus = self.arrived + n - self.capacity
        similarity = self.similarity.masked_fill(~present, float("-inf"))
        nearest = similarity.amax(dim=1)
        kept = present
        for i in range(n):
            drop = self._most_redundant(nearest, kept)
            really = i < surplus
            kept = kept & ~((self.slots == drop) & really)
            if self.sequential:
                column = similarity.index_select(1, drop)
                similarity.index_copy_(1, drop, column.masked_fill(really, float("-inf")))
                nearest = similarity.amax(dim=1)
        return kept

    def _most_redundant(self, nearest: Tensor, kept: Tensor) -> Tensor:
        """Row of the next sample to drop, ``(1,)``: the highest similarity to a neighbour, the oldest of equals."""
        redundancy = nearest.clamp(min=self.least)  # also of samples without neighbours
        redundancy = redundancy.masked_fill(~self.featured, -2.0).masked_fill(~kept, float("-inf"))
        tied = redundancy == redundancy.amax()
        return self.born.masked_fill(~tied, torch.iinfo(torch.int64).max).argmin(keepdim=True)

    def extra_state(self) -> dict[str, Tensor]:
        """Similarities and norms."""
        return {"similarity": self.similarity, "norm": self.norm}


@register("minred", variant="authors")
class MinRedAuthors(MinRed):
    """As the public code of the CLA paper: every new sample is kept, and only stored samples are dropped.

    They are compared among themselves, before the new samples are there.
    """

    class Options(Memory.Options):
        newcomers: Literal["kept", "compete"] = setting(
            "kept", "Whether all new samples are kept, or compete with the stored ones."
        )

    options: Options

    least = 0.0  # a sample's distance to itself is set to 1, that of a cosine of 0

    def _kept(self, filled: Tensor, waiting: Tensor, n: int) -> Tensor:
        if self.options.newcomers == "compete":
            return super()._kept(filled, waiting, n)
        stored = self._drop(torch.cat([filled, torch.zeros_like(waiting)]), n)
        return torch.cat([stored[: self.capacity], waiting])


@register("minred", variant="original")
class MinRedOriginal(MinRed):
    """As the method's own code, where new samples have no feature.

    Samples with a feature are dropped one by one. While there are fewer than twice as many as must go, the samples that
    were kept longest go instead.
    """

    class Options(Memory.Options):
        selection: Literal["sequential", "simultaneous"] = setting(
            "sequential",
            "Whether the samples to drop are chosen one by one, or all at once as version 0.1 did by mistake.",
        )
        drop_oldest: bool = setting(
            True, "Drop the oldest samples while fewer than twice as many as must go have features."
        )

    options: Options

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sequential = self.options.selection == "sequential"

    def _drop(self, present: Tensor, n: int) -> Tensor:
        kept = super()._drop(present, n)
        if not self.options.drop_oldest:
            return kept
        number = (self.arrived + n - self.capacity).clamp(0, n)
        described = (present & self.featured).sum()
        age = self.born.masked_fill(~present, torch.iinfo(torch.int64).max).argsort(stable=True).argsort()
        return torch.where(described < 2 * number, present & (age >= number), kept)
