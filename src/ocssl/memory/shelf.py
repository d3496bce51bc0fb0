"""Where the rows of a memory lie: all of them here, or each process of a group holding its part."""

from __future__ import annotations

import torch
from torch import Tensor

from ocssl.distributed import Group


class RowLayout:
    """Row tensors of a memory, one row per slot and a staging behind them.

    In a group slot s lies with process ``s mod size``; the staging, where newcomers wait, is with everybody; behind it is
    one more row for what is written here but lies elsewhere.

    Args:
        capacity, staging: rows of either kind.

    >>> shelf = RowLayout(capacity=5, staging=2, group=Group(rank=1, size=2))
    >>> shelf.rows, shelf.local(torch.tensor([0, 1, 3, 4, 5])).tolist()
    (6, [5, 0, 1, 5, 3])
    """

    def __init__(self, capacity: int, staging: int, group: Group) -> None:
        self.group = group
        self.capacity, self.staging = capacity, staging
        self._own = -(-capacity // group.size)
        self.rows = capacity + staging if group.single else self._own + staging + 1

    def local(self, slots: Tensor) -> Tensor:
        """The row here of each slot."""
        if self.group.single:
            return slots
        here = torch.where(slots % self.group.size == self.group.rank, slots // self.group.size, self.rows - 1)
        return torch.where(slots < self.capacity, here, self._own + slots - self.capacity)

    def staging_rows(self, n: int) -> slice:
        """The rows here of the first n places on the staging."""
        start = self.capacity if self.group.single else self._own
        return slice(start, start + n)

    def read(self, rows: Tensor, slots: Tensor) -> Tensor:
        """What lies in the given slots, for everybody: ``(n, …)``. The slots are no staging."""
        found = rows[self.local(slots)]
        if self.group.single:
            return found
        mine = (slots % self.group.size == self.group.rank).view(-1, *[1] * (rows.ndim - 1))
        return self.group.all_reduce(torch.where(mine, found, 0))

    def whole(self, rows: Tensor) -> Tensor:
        """All rows in the order of the slots, the staging behind them: ``(capacity + staging, …)``."""
        if self.group.single:
            return rows
        slots = torch.arange(self.capacity, device=rows.device)
        return torch.cat([self.read(rows, slots), rows[self.staging_rows(self.staging)]])

    def restore(self, rows: Tensor, whole: Tensor) -> None:
        """Take this process's part of what :meth:`whole` gave, with whatever number of processes."""
        slots = torch.arange(self.capacity + self.staging, device=rows.device)
        rows[self.local(slots)] = whole.to(rows.device)
