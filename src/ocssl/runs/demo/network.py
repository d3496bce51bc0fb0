"""A ResNet narrow and shallow enough to train on two CPU cores while somebody watches."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from ocssl.nn.resnet import BasicBlock


class NarrowResNet(nn.Module):
    """32×32 images to vectors of ``4 × width`` numbers: a strided stem and two residual blocks that halve the side.

    >>> import torch
    >>> NarrowResNet(width=8)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 32])
    """

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(
            BasicBlock(width, 2 * width, stride=2),
            BasicBlock(2 * width, 4 * width, stride=2),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """``(n, 3, s, s)`` normalised images to ``(n, 4 * width)``."""
        x = functional.relu(self.norm(self.stem(images)))
        return functional.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1)
