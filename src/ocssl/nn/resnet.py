"""ResNet-18 without a classifier, for small and for large images.

Parameter names are those of torchvision's ``resnet18``. With the standard stem and width 64, weights can be exchanged:
``torchvision_model.load_state_dict(ours.state_dict(), strict=False)`` sets everything but ``fc``.

Kaiming He, Xiangyu Zhang, Shaoqing Ren and Jian Sun. Deep Residual Learning for Image Recognition. CVPR 2016.
arXiv:1512.03385.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ocssl.options
from ocssl.nn.backbones import register
from ocssl.options import setting

SMALL_STEM_UP_TO = 64  # pixels


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut. The last scale starts at 0, so that a fresh block is the identity."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        nn.init.zeros_(self.bn2.weight)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels_in != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """``(n, channels_in, h, w)`` to ``(n, channels, h / stride, w / stride)``."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.bn2(self.conv2(x))
        return F.relu(x + shortcut, inplace=True)


@register("resnet18")
class ResNet18(nn.Module):
    """Images to vectors of ``8 × width`` numbers.

    Args:
        image_size: side of the images; decides the stem where that is ``"auto"``.

    >>> ResNet18(ResNet18.Options(width=16))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 128])
    """

    class Options(ocssl.options.Options):
        width: int = setting(64, "Channels of the first stage; 64 is the usual network.", ge=1, le=4096)
        stem: Literal["auto", "small", "standard"] = setting(
            "auto",
            "First layers: one 3×3 convolution ('small'), or a 7×7 one with stride 2 and max-pooling ('standard'); "
            "'auto' is 'small' up to 64 pixels.",
        )
        conv1_init: Literal["kaiming", "torch"] = setting(
            "kaiming",
            "Start of the small stem's convolution; `kaiming`: normal, by fan-out, as all others; `torch`: uniform, by "
            "fan-in, as in the paper's public code. Unset: `torch` in the variant `authors`.",
            since="0.2",
        )

    def __init__(self, options: Options | None = None, image_size: int = 32) -> None:
        super().__init__()
        options = options or self.Options()
        width = options.width
        small = image_size <= SMALL_STEM_UP_TO if options.stem == "auto" else options.stem == "small"
        self.feature_dim = 8 * width
        self.conv1 = nn.Conv2d(3, width, 3 if small else 7, 1 if small else 2, padding=1 if small else 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = self._stage(width, width, stride=1)
        self.layer2 = self._stage(width, 2 * width, stride=2)
        self.layer3 = self._stage(2 * width, 4 * width, stride=2)
        self.layer4 = self._stage(4 * width, 8 * width, stride=2)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if small and options.conv1_init == "torch":
            self.conv1.reset_parameters()

    @staticmethod
    def options_from(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """The settings with which these weights fit."""
        first = tensors.get("conv1.weight")
        if first is None or first.ndim != 4:
            return {}
        return {"width": first.shape[0], "stem": "small" if first.shape[2] == 3 else "standard"}

    @staticmethod
    def _stage(channels_in: int, channels: int, stride: int) -> nn.Sequential:
        return nn.Sequential(BasicBlock(channels_in, channels, stride), BasicBlock(channels, channels, 1))

    def forward(self, images: Tensor) -> Tensor:
        """``(n, 3, s, s)`` normalised images to ``(n, feature_dim)``."""
        x = self.maxpool(F.relu(self.bn1(self.conv1(images)), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)
