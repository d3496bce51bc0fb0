"""Images kept evenly from a stream whose length is unknown, for measuring an encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ocssl.errors import CheckpointError


class EvenSample:
    """Every k-th image of a stream. Whenever ``size`` images are there, every second one is dropped and k doubles.

    So it holds between ``size / 2`` and ``size`` images of a long stream, evenly spaced and in order, and no draw is
    needed.

    Args:
        size: most images; an even number.
        side: of the images.

    Attributes:
        count: images that came by.
        every: k.

    >>> sample = EvenSample(size=4, side=1)
    >>> sample.add(torch.arange(11, dtype=torch.uint8).view(11, 1, 1, 1).expand(11, 3, 1, 1))
    >>> sample.positions.tolist(), sample.images[:, 0, 0, 0].tolist()
    ([0, 4, 8], [0, 4, 8])
    """

    def __init__(self, size: int, side: int) -> None:
        self.count, self.every = 0, 1
        self._size = size
        self._images = torch.empty(size, 3, side, side, dtype=torch.uint8)

    def __len__(self) -> int:
        return -(-self.count // self.every)

    @property
    def images(self) -> Tensor:
        """The kept images ``(n, 3, s, s)`` uint8, in the order of their arrival."""
        return self._images[: len(self)]

    @property
    def positions(self) -> Tensor:
        """The place of each kept image in the stream, ``(n,)``."""
        return torch.arange(len(self)) * self.every

    def add(self, images: Tensor) -> None:
        """Images ``(n, 3, s, s)`` uint8 that come next in the stream."""
        for image in images:
            if self.count % self.every == 0:
                if len(self) == self._size:
                    self._images[: self._size // 2] = self._images[::2].clone()
                    self.every *= 2
                self._images[len(self)] = image
            self.count += 1

    def facts(self) -> dict[str, int]:
        """What :meth:`restore` needs besides the images."""
        return {"count": self.count, "every": self.every}

    def restore(self, facts: Mapping[str, Any], images: Tensor) -> None:
        """Go on with the facts and images of a saved sample; of a larger one every second image is dropped."""
        count, every, kept = facts["count"], facts["every"], len(images)
        sound = type(count) is int and type(every) is int and every >= 1 and kept == -(-count // every)
        if not sound or images.shape[1:] != self._images.shape[1:] or images.dtype != torch.uint8:
            raise CheckpointError(f"its sample of {kept} images does not fit: {dict(facts)}, {tuple(images.shape)}")
        while len(images) > self._size:
            images, every = images[::2], 2 * every
        self.count, self.every = count, every
        self._images[: len(images)] = images
