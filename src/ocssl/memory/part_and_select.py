"""Part and select: keeps a set of samples that is spread out in feature space, as SCALE's own paper does.

Shaul Salomon, Gideon Avigad, Alex Goldvard and Oliver Schütze. PSA – A New Scalable Space Partition Based Selection
Algorithm for MOEAs. EVOLVE 2012.
"""

from __future__ import annotations

import heapq

import numpy as np
import torch
from torch import Tensor

from ocssl.memory.base import Memory, register


def part_and_select(points: np.ndarray, count: int) -> np.ndarray:
    """Indices of ``count`` representative points, ascending.

    The set is divided until there are ``count`` parts: the part with the largest extent along one axis is cut in the
    middle of that extent. Each part is represented by the point nearest to the centre of its bounding box; of equals,
    by the first. Identical points cannot be divided; other points then make up the number.

    Args:
        points: ``(n, d)``, n ≥ count.

    >>> part_and_select(np.array([[0.0], [0.1], [5.0], [9.0]]), 3).tolist()
    [0, 2, 3]
    """
    order = iter(range(2 * len(points)))  # of parts with equal extents, the oldest is cut first

    def entry(members: np.ndarray) -> tuple[float, int, int, np.ndarray]:
        extent = points[members].max(0) - points[members].min(0)
        axis = int(extent.argmax())
        return -float(extent[axis]), next(order), axis, members

    parts = [entry(np.arange(len(points)))]
    while len(parts) < count and parts[0][0] < 0:
        _, _, axis, members = heapq.heappop(parts)
        along = points[members, axis]
        low = along <= (along.min() + along.max()) / 2
        heapq.heappush(parts, entry(members[low]))
        heapq.heappush(parts, entry(members[~low]))

    chosen = [_middle(points, members) for *_, members in parts]
    missing = np.setdiff1d(np.arange(len(points)), chosen)[: count - len(chosen)]
    return np.sort(np.concatenate([chosen, missing]).astype(np.int64))


def _middle(points: np.ndarray, members: np.ndarray) -> int:
    own = points[members]
    centre = (own.min(0) + own.max(0)) / 2
    return int(members[((own - centre) ** 2).sum(1).argmin()])


@register("part-and-select", listed=False)
class PartAndSelect(Memory):
    """Keeps the samples that part and select chooses among stored and new samples, by their features.

    The selection loops on the host over as many cuts as there are slots, so a step with this memory cannot be captured
    as a graph. It is used by SCALE's own code only; the CLA paper replaces it by a reservoir because of its cost.

    Source: Salomon et al., EVOLVE 2012.
    """

    needs_features = True
    host_work = True

    def assign_slots(self, n: int, generator: torch.Generator) -> Tensor:
        """Fill the slots first, then select among all samples."""
        staging = self.capacity + self.slots[:n]
        held = int(self.arrived)
        if held + n <= self.capacity:
            return held + self.slots[:n]
        present = torch.cat([self.slots[: min(held, self.capacity)], staging])
        points = self.columns["features"][present].double().cpu().numpy()
        kept = torch.zeros(self.capacity + self.staging, dtype=torch.bool)
        kept[present.cpu()[torch.from_numpy(part_and_select(points, self.capacity))]] = True
        return self.slots_for(kept.to(self.device), n)
