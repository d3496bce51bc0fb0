"""A three-layer network for tests and small computers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ocssl.options
from ocssl.nn.backbones import register
from ocssl.options import setting


@register("convnet")
class ConvNet(nn.Module):
    """Three strided 3×3 convolutions with batch norm; images to vectors of ``4 × width`` numbers.

    >>> ConvNet(ConvNet.Options(width=4))(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 16])
    """

    class Options(ocssl.options.Options):
        width: int = setting(32, "Channels of the first layer.", ge=1, le=4096)

    def __init__(self, options: Options | None = None, image_size: int = 32) -> None:
        super().__init__()
        width = (options or self.Options()).width
        self.feature_dim = 4 * width
        channels = [3, width, 2 * width, 4 * width]
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False) for a, b in itertools.pairwise(channels)
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(c) for c in channels[1:])

    @staticmethod
    def options_from(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """The settings with which these weights fit."""
        first = tensors.get("convs.0.weight")
        return {} if first is None else {"width": first.shape[0]}

    def forward(self, images: Tensor) -> Tensor:
        """``(n, 3, s, s)`` normalised images to ``(n, feature_dim)``."""
        x = images
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x)))
        return torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)
