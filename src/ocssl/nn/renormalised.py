"""A network beside one that takes images in another normalisation and size."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Renormalised(nn.Module):
    """A network for images that were normalised and sized for another one: ``(n, 3, s, s)`` to ``(n, d)``.

    Args:
        size: side of the images that the network takes; None: any.
        scale, shift: of each channel, to the network's own normalisation.

    >>> network = Renormalised(nn.Flatten(), 4, scale=(2, 2, 2), shift=(1, 1, 1))
    >>> network(torch.ones(1, 3, 8, 8)).unique(), network(torch.ones(1, 3, 8, 8)).shape
    (tensor([3.]), torch.Size([1, 48]))
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, network: nn.Module, size: int | None, scale: Sequence[float], shift: Sequence[float]) -> None:
        super().__init__()
        self.network, self.size = network, size
        self.register_buffer("scale", torch.tensor([*scale], dtype=torch.float32).view(3, 1, 1))
        self.register_buffer("shift", torch.tensor([*shift], dtype=torch.float32).view(3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Features of the network."""
        images = images * self.scale + self.shift
        if self.size is not None and images.shape[-1] != self.size:
            images = nn.functional.interpolate(images, (self.size, self.size), mode="bilinear", antialias=True)
        features: Tensor = self.network(images)
        return features
