"""Backbones by name: ``resnet18``, narrow ones as ``resnet18-w16``, tiny ``convnet``, ``timm:NAME``, or any module."""

from __future__ import annotations

import re
from typing import Literal

import torch
from torch import nn

from ocssl.errors import ConfigError, missing_extra
from ocssl.nn.convnet import ConvNet
from ocssl.nn.resnet import ResNet18
from ocssl.registry import unknown

SMALL_STEM_UP_TO = 64  # pixels
STEMS = ("auto", "small", "standard")


def build_backbone(
    backbone: str | nn.Module, image_size: int, stem: Literal["auto", "small", "standard"] = "auto"
) -> tuple[nn.Module, int]:
    """The network and the width of its features.

    Args:
        backbone: a name, or a module that maps ``(n, 3, s, s)`` to ``(n, d)``.
        image_size: side of the images; decides the stem when that is ``"auto"``, and measures a foreign module's width.

    >>> build_backbone("resnet18-w16", image_size=32)[1]
    128
    """
    if stem not in STEMS:
        raise unknown("stem", stem, STEMS)
    if isinstance(backbone, nn.Module):
        return backbone, _measured_width(backbone, image_size)
    if not isinstance(backbone, str):
        raise ConfigError(f"backbone must be a name or a module, not {backbone!r}")
    if backbone.startswith("timm:"):
        module = _timm(backbone.removeprefix("timm:"))
        return module, _measured_width(module, image_size)
    match = re.fullmatch(r"(resnet18|convnet)(?:-w([1-9]\d*))?", backbone)
    if match is None:
        raise unknown("backbone", backbone, ["resnet18", "resnet18-w16", "convnet", "convnet-w8", "timm:NAME"])
    if match[1] == "convnet":
        convnet = ConvNet(int(match[2] or 32))
        return convnet, convnet.feature_dim
    if stem == "auto":
        stem = "small" if image_size <= SMALL_STEM_UP_TO else "standard"
    resnet = ResNet18(int(match[2] or 64), stem)
    return resnet, resnet.feature_dim


def _timm(name: str) -> nn.Module:
    try:
        import timm
    except ImportError as error:
        raise missing_extra("timm", "timm", "timm backbones") from error
    try:
        module: nn.Module = timm.create_model(name, num_classes=0)
    except RuntimeError as error:
        near = timm.list_models(f"*{name[:6]}*")[:5]
        raise unknown("timm backbone", name, near) from error
    return module


def _measured_width(module: nn.Module, image_size: int) -> int:
    """Feature width of any module, found by showing it one black image without touching its statistics."""
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    was_training = module.training
    module.eval()
    with torch.no_grad():
        features = module(torch.zeros(1, 3, image_size, image_size, device=device))
    module.train(was_training)
    if not isinstance(features, torch.Tensor) or features.ndim != 2:
        shape = tuple(features.shape) if isinstance(features, torch.Tensor) else type(features).__name__
        raise ConfigError(f"the backbone must map images (n, 3, s, s) to vectors (n, d); one image gave {shape}")
    return features.shape[1]
