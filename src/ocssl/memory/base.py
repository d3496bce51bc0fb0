"""Storage shared by all memories.

All contents are preallocated tensors on one device. Every operation has a fixed shape and reads no value back to the
host, so a training step that samples and writes here can be captured as a graph.

The last ``staging`` rows are a staging area. New samples are written there, and the policy assigns each of them a slot.
Samples without a slot are overwritten by the next minibatch.

In a process group each process stores its part of images and columns (:class:`RowLayout`). All processes store the
bookkeeping, and also the features where the policy compares them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

import ocssl.options
from ocssl.batch import StepOutput
from ocssl.device import check_fits
from ocssl.distributed import ProcessGroup, current
from ocssl.errors import CheckpointError, ConfigError
from ocssl.options import setting
from ocssl.registry import Registry

registry: Registry[type[Memory]] = Registry("memory", group="ocssl.memories")
register = registry.register


@dataclass(frozen=True)
class Column:
    """One tensor kept per sample, e.g. ``Column((2048,))`` for a feature vector."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32


class RowLayout:
    """Maps the slots of a memory to rows of this process.

    In a process group, slot s is stored by process ``s mod size``, and the staging area by every process. One more row
    takes what is written to slots of other processes.

    Args:
        capacity, staging: numbers of slots and of staging rows.

    >>> layout = RowLayout(capacity=5, staging=2, group=ProcessGroup(rank=1, size=2))
    >>> layout.rows, layout.local(torch.tensor([0, 1, 3, 4, 5])).tolist()
    (6, [5, 0, 1, 5, 3])
    """

    def __init__(self, capacity: int, staging: int, group: ProcessGroup) -> None:
        self.group = group
        self.capacity, self.staging = capacity, staging
        self._own = -(-capacity // group.size)
        self.rows = capacity + staging if group.single else self._own + staging + 1

    def local(self, slots: Tensor) -> Tensor:
        """The local row of each slot."""
        if self.group.single:
            return slots
        here = torch.where(slots % self.group.size == self.group.rank, slots // self.group.size, self.rows - 1)
        return torch.where(slots < self.capacity, here, self._own + slots - self.capacity)

    def staging_rows(self, n: int) -> slice:
        """The local rows of the first n staging places."""
        start = self.capacity if self.group.single else self._own
        return slice(start, start + n)

    def read(self, rows: Tensor, slots: Tensor) -> Tensor:
        """The contents of the given slots, in every process: ``(n, …)``. Staging rows cannot be read."""
        found = rows[self.local(slots)]
        if self.group.single:
            return found
        mine = (slots % self.group.size == self.group.rank).view(-1, *[1] * (rows.ndim - 1))
        return self.group.all_reduce(torch.where(mine, found, 0)).to(rows.dtype)  # the sum of booleans is a number

    def whole(self, rows: Tensor) -> Tensor:
        """All rows in the order of the slots, then the staging rows: ``(capacity + staging, …)``."""
        if self.group.single:
            return rows
        slots = torch.arange(self.capacity, device=rows.device)
        return torch.cat([self.read(rows, slots), rows[self.staging_rows(self.staging)]])

    def restore(self, rows: Tensor, whole: Tensor) -> None:
        """Copy this process's part of :meth:`whole`, which any number of processes may have saved."""
        slots = torch.arange(self.capacity + self.staging, device=rows.device)
        rows[self.local(slots)] = whole.to(rows.device)


class Memory:
    """Base of every memory: stores images and further tensors of each sample.

    A policy is a subclass that implements :meth:`assign_slots`; storage, sampling and bookkeeping are here.

    Args:
        capacity: number of samples that are kept.
        image_shape: ``(3, height, width)``; images are stored as uint8.
        staging: largest number of new samples in one :meth:`add`.
        columns: further tensors per sample. A column ``"features"`` can be written with :meth:`update_features`.
        device: where all tensors are.
        options: settings of the policy; None: their defaults.

    >>> from ocssl.memory import Fifo
    >>> memory = Fifo(capacity=3, image_shape=(3, 1, 1), staging=2)
    >>> g = torch.Generator().manual_seed(0)
    >>> for value in range(2):
    ...     memory.add(torch.full((2, 3, 1, 1), value, dtype=torch.uint8), {}, g)
    >>> len(memory), memory.images[:3, 0, 0, 0].tolist()
    (3, [1, 0, 1])
    """

    class Options(ocssl.options.Options):
        memory_size: int = setting(2000, "Samples that the memory keeps.", ge=1, le=100_000_000)

    label: ClassVar[str] = ""
    """The name in tables and figures; empty: the registered name."""

    needs_features: ClassVar[bool] = False
    """Whether the policy reads the ``"features"`` column."""

    needs_losses: ClassVar[bool] = False
    """Whether the policy reads the loss of each sample, in a column ``"losses"`` that is written for it."""

    host_work: ClassVar[bool] = False
    """Whether the policy reads values back to the host, which a captured step cannot do."""

    def __init__(
        self,
        capacity: int,
        image_shape: tuple[int, ...],
        *,
        staging: int,
        columns: Mapping[str, Column] | None = None,
        device: torch.device | str = "cpu",
        options: Options | None = None,
    ) -> None:
        if staging > capacity:
            raise ConfigError(f"memory_size ({capacity}) must be at least stream_batch ({staging})")
        policy = self.own_columns()
        columns = {**(columns or {}), **policy}
        for name, column in columns.items():
            if not isinstance(column, Column) or not isinstance(column.shape, tuple | list):
                raise ConfigError(
                    f"column '{name}' must be a Column with a tuple for its shape, Column((8,)), not {column}"
                )
        own = {"losses": Column(())} if self.needs_losses else {}
        if taken := columns.keys() & {"images", "featured", "born", *own}:
            raise ConfigError(f"column '{min(taken)}' is one of the memory's own; choose another name")
        columns |= own
        if self.needs_features and "features" not in columns:
            raise ConfigError(f"memory '{type(self).__name__.lower()}' needs a column 'features'")
        rows = capacity + staging
        self.options = options or self.Options()
        self.capacity = capacity
        self.staging = staging
        self.device = torch.device(device)
        divided, whole = RowLayout(capacity, staging, current()), RowLayout(capacity, staging, ProcessGroup())
        compared = {"featured", "born", *policy, *own} | ({"features"} if self.needs_features else set())
        self._layouts = {name: whole if name in compared else divided for name in ("images", *compared, *columns)}
        sizes = [self._layouts[name].rows * math.prod(c.shape) * c.dtype.itemsize for name, c in columns.items()]
        needed = divided.rows * math.prod(image_shape) + sum(sizes)
        check_fits(self.device, needed, f"memory_size {capacity:,} for images of {'×'.join(map(str, image_shape[1:]))}")
        self.images = torch.zeros(divided.rows, *image_shape, dtype=torch.uint8, device=device)
        self.columns = {
            name: torch.zeros(self._layouts[name].rows, *column.shape, dtype=column.dtype, device=device)
            for name, column in columns.items()
        }
        self.featured = torch.zeros(rows, dtype=torch.bool, device=device)
        self.born = torch.zeros(rows, dtype=torch.int64, device=device)
        self.arrived = torch.zeros((), dtype=torch.int64, device=device)
        self.slots = torch.arange(rows, device=device)
        self.seen = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} of {self.capacity:,} samples, {self.seen:,} seen)"

    # ------------------------------------------------------------------ the policy

    def own_columns(self) -> dict[str, Column]:
        """Columns that the policy itself reads and writes, besides those of the strategy."""
        return {}

    def new_columns(self, n: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Values of :meth:`own_columns` for n new samples, each ``(n, …)``; those left out are 0."""
        return {}

    def assign_slots(self, n: int, generator: torch.Generator) -> Tensor:
        """The slot of each of the n new samples in the staging area, ``(n,)`` int64, all different.

        New sample i is at row ``capacity + i``; assigning that row means that it is not kept. ``self.arrived`` counts
        the samples before these. The first samples get the slots 0, 1, 2, … in this order, until all slots are filled:
        :meth:`sample` relies on it. Tensor work of fixed shape only.
        """
        raise NotImplementedError

    def highest(self, scores: Tensor, n: int) -> Tensor:
        """What :meth:`assign_slots` returns where the samples with the highest scores are kept, stored and new.

        Args:
            scores: of every row, ``(capacity + staging,)``, such as a column.
        """
        stored, new = self.slots < self.arrived.clamp(max=self.capacity), self.slots >= self.capacity
        present = stored | (new & (self.slots < self.capacity + n))
        surplus = self.arrived.clamp(max=self.capacity) + n - self.capacity
        rank = scores.masked_fill(~present, float("inf")).argsort(stable=True).argsort()
        return self.slots_for(present & (rank >= surplus), n)

    def slots_for(self, kept: Tensor, n: int) -> Tensor:
        """What :meth:`assign_slots` returns where the given rows are kept, ``(capacity + staging,)``, no others."""
        free = (~kept[: self.capacity]).int().argsort(stable=True, descending=True)[:n]
        survivor = kept[self.capacity : self.capacity + n]
        rank = (survivor.cumsum(0) - 1).clamp(min=0)
        return torch.where(survivor, free[rank], self.capacity + self.slots[:n])

    def after_step(self, output: StepOutput) -> None:
        """Called after each training step, for policies that write columns of the samples in ``output.batch.slots``."""

    def boundary(self) -> None:
        """Called when an experience has ended, for policies that depend on it; tensors are changed in place."""

    def on_write(self, rows: Tensor) -> None:
        """Called after the contents of some rows changed, for policies that derive data from features."""

    def extra_state(self) -> dict[str, Tensor]:
        """Tensors of the policy other than columns, by name, that are saved; references, written in place."""
        return {}

    # ------------------------------------------------------------------ used by strategies

    def __len__(self) -> int:
        """Number of filled slots, known to the host."""
        return min(self.seen, self.capacity)

    def add(self, images: Tensor, columns: Mapping[str, Tensor], generator: torch.Generator) -> None:
        """Insert new samples: ``images`` is ``(n, 3, h, w)`` uint8, each column ``(n, …)``."""
        self.insert(images, columns, generator)
        self.count(len(images))

    def insert(self, images: Tensor, columns: Mapping[str, Tensor], generator: torch.Generator) -> None:
        """The part of :meth:`add` that runs on the device."""
        n = len(images)
        new: dict[str, Any] = {
            "images": images,
            "featured": "features" in columns,
            "born": self.arrived + self.slots[:n],
        }
        known = {**columns, **self.new_columns(n, generator)}
        self._check_columns(known, n)
        new |= {name: known.get(name, 0) for name in self.columns}
        for name, rows in self._rows().items():
            rows[self._layouts[name].staging_rows(n)] = new[name]
        self.on_write(self.slots[self.capacity : self.capacity + n])
        slots = self.assign_slots(n, generator)
        _check_slots(f"{type(self).__name__}.assign_slots({n})", slots, n)
        for name, rows in self._rows().items():
            layout = self._layouts[name]
            rows[layout.local(slots)] = rows[layout.staging_rows(n)].clone()
        self.on_write(slots)
        self.arrived += n

    def _check_columns(self, given: Mapping[str, Tensor], n: int) -> None:
        """Refuse values that do not fit; every strategy offers features, also to a memory without them."""
        for name, value in given.items():
            if name not in self.columns:
                if name == "features":
                    continue
                raise ConfigError(f"column '{name}' is not one of the memory's ({', '.join(self.columns) or 'none'})")
            column = self.columns[name]
            shape = (n, *column.shape[1:])
            if value.shape != shape or not torch.can_cast(value.dtype, column.dtype):
                wanted, found = f"{shape} of {column.dtype}", f"{tuple(value.shape)} of {value.dtype}"
                raise ConfigError(f"column '{name}' takes {wanted} for {n} new samples, not {found}")

    def count(self, n: int) -> None:
        """The part of :meth:`add` that runs on the host."""
        self.seen += n

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """n different filled slots, drawn uniformly: ``(n,)`` int64. At least n must be filled."""
        keys = torch.rand(self.capacity, generator=generator, device=self.device)
        keys = torch.where(self.slots[: self.capacity] < self.arrived, keys, 2.0)
        return keys.topk(n, largest=False, sorted=False).indices

    def recall(self, slots: Tensor, columns: Iterable[str] = ()) -> tuple[Tensor, dict[str, Tensor]]:
        """The contents of the given slots: images ``(n, 3, h, w)`` uint8, and columns by name."""
        kept = {name: self._layouts[name].read(self.columns[name], slots) for name in columns}
        return self._layouts["images"].read(self.images, slots), kept

    def update_features(self, slots: Tensor, features: Tensor, keep: float = 0.5, normalize: bool = False) -> None:
        """z* ← keep · z* + (1 − keep) · z for the given slots; a slot without a feature takes z as it is.

        Args:
            slots: ``(n,)``, all different.
            features: ``(n, d)``.
            normalize: scale the result to length 1.
        """
        stored, rows = self.columns["features"], self._layouts["features"].local(slots)
        features = features.to(stored.dtype)
        blended = torch.where(self.featured[slots, None], torch.lerp(features, stored[rows], keep), features)
        stored[rows] = torch.nn.functional.normalize(blended, dim=-1) if normalize else blended
        self.featured.index_fill_(0, slots, True)
        self.on_write(slots)

    def update_losses(self, slots: Tensor, losses: Tensor) -> None:
        """Store the losses ``(n,)`` of the samples in the given slots, all different."""
        stored = self.columns["losses"]
        stored[self._layouts["losses"].local(slots)] = losses.to(stored.dtype)
        self.on_write(slots)

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Tensor]:
        """Every tensor of the memory, complete in every process; references, not copies, in a single process."""
        rows = {self._saved_as(name): self._layouts[name].whole(rows) for name, rows in self._rows().items()}
        return rows | {"arrived": self.arrived} | self.extra_state()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy a saved state; :class:`CheckpointError` if it belongs to another memory."""
        mine = self.state_dict()
        if missing := mine.keys() ^ state.keys():
            raise CheckpointError(f"the saved memory does not fit: {sorted(missing)} exist only on one side")
        for name, tensor in mine.items():
            here, there = (f"{tuple(t.shape)} of {t.dtype}" for t in (tensor, state[name]))
            if here != there:
                raise CheckpointError(f"the saved memory does not fit: '{name}' is {there}, not {here}")
        for name, rows in self._rows().items():
            self._layouts[name].restore(rows, state[self._saved_as(name)])
        for name, tensor in ({"arrived": self.arrived} | self.extra_state()).items():
            tensor.copy_(state[name])
        self.seen = int(self.arrived)

    def _rows(self) -> dict[str, Tensor]:
        """Every tensor with one row per sample."""
        return {"images": self.images, "featured": self.featured, "born": self.born, **self.columns}

    def _saved_as(self, name: str) -> str:
        return f"column.{name}" if name in self.columns else name


def _check_slots(call: str, slots: object, n: int) -> None:
    found = f"{tuple(slots.shape)} of {slots.dtype}" if isinstance(slots, Tensor) else type(slots).__name__
    if found != f"({n},) of torch.int64":
        raise ConfigError(f"{call} must return ({n},) of torch.int64, not {found}")


registry.base = Memory
registry.required = ("assign_slots",)
