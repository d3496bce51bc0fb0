"""Storage shared by all memories.

Everything is a preallocated tensor on one device and every operation has a fixed shape and never asks the device for a
value, so that a training step that samples and writes here can be captured as a graph.

Behind the ``capacity`` slots lie a few more, the *staging*: newcomers are written there first, the policy then says which
slot each of them takes, and who gets none simply stays on the staging and is overwritten by the next.

In a group of processes each holds its part of the images and columns (:mod:`ocssl.memory.shelf`); everybody keeps the
books, and features too where the policy compares them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ocssl.device import check_fits
from ocssl.distributed import Group, current
from ocssl.errors import CheckpointError, ConfigError
from ocssl.memory.shelf import RowLayout
from ocssl.registry import Registry

_registry: Registry[type[Memory]] = Registry("memory", group="ocssl.memories")
register = _registry.register
names = _registry.names
get = _registry.get


@dataclass(frozen=True)
class Column:
    """One tensor kept per sample, e.g. ``Column((2048,))`` for a feature vector."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32


class Memory:
    """Keeps images, and whatever else a strategy wants to remember of each.

    A policy is a subclass that implements :meth:`assign_slots`. Storage, sampling and bookkeeping are here.

    Args:
        capacity: how many samples stay.
        image_shape: ``(3, height, width)``; images are kept as uint8.
        staging: the largest number of newcomers in one :meth:`add`.
        columns: further tensors per sample. A column named ``"features"`` may be written with :meth:`update_features`.
        device: where everything lives.

    >>> from ocssl.memory import Fifo
    >>> memory = Fifo(capacity=3, image_shape=(3, 1, 1), staging=2)
    >>> g = torch.Generator().manual_seed(0)
    >>> for value in range(2):
    ...     memory.add(torch.full((2, 3, 1, 1), value, dtype=torch.uint8), {}, g)
    >>> len(memory), memory.images[:3, 0, 0, 0].tolist()
    (3, [1, 0, 1])
    """

    needs_features: ClassVar[bool] = False
    """Whether the policy reads the ``"features"`` column."""

    host_work: ClassVar[bool] = False
    """Whether the policy asks the device for values, which a captured step cannot do."""

    def __init__(
        self,
        capacity: int,
        image_shape: tuple[int, ...],
        *,
        staging: int,
        columns: Mapping[str, Column] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if staging > capacity:
            raise ConfigError(f"memory_size ({capacity}) must be at least stream_batch ({staging})")
        columns = dict(columns or {})
        if taken := columns.keys() & {"images", "featured", "born"}:
            raise ConfigError(f"a memory has a column '{min(taken)}' of its own; call yours something else")
        if self.needs_features and "features" not in columns:
            raise ConfigError(f"memory '{type(self).__name__.lower()}' needs a column 'features'")
        rows = capacity + staging
        self.capacity = capacity
        self.staging = staging
        self.device = torch.device(device)
        self._divided, self._kept_by_all = (
            RowLayout(capacity, staging, current()),
            RowLayout(capacity, staging, Group()),
        )
        sizes = [self._layout(name).rows * math.prod(c.shape) * c.dtype.itemsize for name, c in columns.items()]
        whole = self._divided.rows * math.prod(image_shape) + sum(sizes)
        check_fits(self.device, whole, f"memory_size {capacity:,} for images of {'×'.join(map(str, image_shape[1:]))}")
        self.images = torch.zeros(self._divided.rows, *image_shape, dtype=torch.uint8, device=device)
        self.columns = {
            name: torch.zeros(self._layout(name).rows, *column.shape, dtype=column.dtype, device=device)
            for name, column in columns.items()
        }
        self.featured = torch.zeros(rows, dtype=torch.bool, device=device)
        self.born = torch.zeros(rows, dtype=torch.int64, device=device)
        self.arrived = torch.zeros((), dtype=torch.int64, device=device)
        self.slots = torch.arange(rows, device=device)
        self.seen = 0

    # ------------------------------------------------------------------ the policy

    def assign_slots(self, n: int, generator: torch.Generator) -> Tensor:
        """The slot each of the n newcomers on the staging takes, ``(n,)`` int64, all different.

        Newcomer i lies at row ``capacity + i``; giving it that row means that it is not kept. ``self.arrived`` counts
        the samples before them. Tensor work of fixed shape only.
        """
        raise NotImplementedError

    def on_write(self, rows: Tensor) -> None:
        """Called after the contents of some rows changed, for policies that keep books on features."""

    # ------------------------------------------------------------------ what strategies use

    def __len__(self) -> int:
        """How many slots are filled; known to the host without asking the device."""
        return min(self.seen, self.capacity)

    def add(self, images: Tensor, columns: Mapping[str, Tensor], generator: torch.Generator) -> None:
        """Offer newcomers to the memory: ``images`` is ``(n, 3, h, w)`` uint8, each column ``(n, …)``."""
        self.insert(images, columns, generator)
        self.count(len(images))

    def insert(self, images: Tensor, columns: Mapping[str, Tensor], generator: torch.Generator) -> None:
        """The device's part of :meth:`add`."""
        n = len(images)
        newcomers: dict[str, Any] = {
            "images": images,
            "featured": "features" in columns,
            "born": self.arrived + self.slots[:n],
        }
        newcomers |= {name: columns.get(name, 0) for name in self.columns}
        for name, rows in self._rows().items():
            rows[self._layout(name).staging_rows(n)] = newcomers[name]
        self.on_write(self.slots[self.capacity : self.capacity + n])
        slots = self.assign_slots(n, generator)
        for name, rows in self._rows().items():
            shelf = self._layout(name)
            rows[shelf.local(slots)] = rows[shelf.staging_rows(n)].clone()
        self.on_write(slots)
        self.arrived += n

    def count(self, n: int) -> None:
        """The host's part of :meth:`add`."""
        self.seen += n

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """n different filled slots, uniformly: ``(n,)`` int64. At least n must be filled."""
        keys = torch.rand(self.capacity, generator=generator, device=self.device)
        keys = torch.where(self.slots[: self.capacity] < self.arrived, keys, 2.0)
        return keys.topk(n, largest=False, sorted=False).indices

    def recall(self, slots: Tensor, columns: Iterable[str] = ()) -> tuple[Tensor, dict[str, Tensor]]:
        """What is kept of the samples in the given slots: images ``(n, 3, h, w)`` uint8, and columns by name."""
        kept = {name: self._layout(name).read(self.columns[name], slots) for name in columns}
        return self._divided.read(self.images, slots), kept

    def update_features(self, slots: Tensor, features: Tensor, keep: float = 0.5, normalize: bool = False) -> None:
        """z* ← keep · z* + (1 − keep) · z for the given slots; a slot without a feature takes z as it is.

        Args:
            slots: ``(n,)``, all different.
            features: ``(n, d)``.
            normalize: scale the result to length 1.
        """
        stored, rows = self.columns["features"], self._layout("features").local(slots)
        features = features.to(stored.dtype)
        blended = torch.where(self.featured[slots, None], torch.lerp(features, stored[rows], keep), features)
        stored[rows] = torch.nn.functional.normalize(blended, dim=-1) if normalize else blended
        self.featured.index_fill_(0, slots, True)
        self.on_write(slots)

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Tensor]:
        """Every tensor that the memory's future depends on, whole in every process. Alone: references, not copies."""
        rows = {self._saved_as(name): self._layout(name).whole(rows) for name, rows in self._rows().items()}
        return rows | {"arrived": self.arrived} | self._extra_state()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over a saved state exactly; :class:`CheckpointError` if it belongs to another memory."""
        mine = self.state_dict()
        if missing := mine.keys() ^ state.keys():
            raise CheckpointError(f"the saved memory does not fit: {sorted(missing)} only on one side")
        for name, tensor in mine.items():
            here, there = (f"{tuple(t.shape)} of {t.dtype}" for t in (tensor, state[name]))
            if here != there:
                raise CheckpointError(f"the saved memory does not fit: '{name}' is {there}, not {here}")
        for name, rows in self._rows().items():
            self._layout(name).restore(rows, state[self._saved_as(name)])
        for name, tensor in ({"arrived": self.arrived} | self._extra_state()).items():
            tensor.copy_(state[name])
        self.seen = int(self.arrived)

    def _extra_state(self) -> dict[str, Tensor]:
        """Further tensors of a policy that belong to the state."""
        return {}

    def _rows(self) -> dict[str, Tensor]:
        """Every tensor with a row per sample."""
        return {"images": self.images, "featured": self.featured, "born": self.born, **self.columns}

    def _layout(self, name: str) -> RowLayout:
        compared = name == "features" and self.needs_features
        return self._kept_by_all if compared or name in ("featured", "born") else self._divided

    def _saved_as(self, name: str) -> str:
        return f"column.{name}" if name in self.columns else name
