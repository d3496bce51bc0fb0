"""Backbones: names and shapes of torchvision, settings, and modules of users."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ocssl.errors import ConfigError, MissingExtraError
from ocssl.nn import ConvNet, ResNet18, build_backbone, register_backbone
from ocssl.nn.backbones import options_of, split_name
from ocssl.options import Options, setting, validate


def shape_of(module: nn.Module, image_size: int) -> tuple[int, ...]:
    with torch.no_grad():
        return tuple(module(torch.zeros(2, 3, image_size, image_size)).shape)


def batch_norm(name: str, channels: int) -> dict[str, tuple[int, ...]]:
    vectors = {f"{name}.{part}": (channels,) for part in ("weight", "bias", "running_mean", "running_var")}
    return {**vectors, f"{name}.num_batches_tracked": ()}


def documented_resnet18(width: int = 64, stem_kernel: int = 7) -> dict[str, tuple[int, ...]]:
    """Names and shapes of torchvision's resnet18 without its classifier: four stages of two basic blocks."""
    shapes = {"conv1.weight": (width, 3, stem_kernel, stem_kernel), **batch_norm("bn1", width)}
    channels_in = width
    for stage in range(1, 5):
        channels = width * 2 ** (stage - 1)
        for block in range(2):
            name = f"layer{stage}.{block}"
            shapes[f"{name}.conv1.weight"] = (channels, channels_in, 3, 3)
            shapes |= batch_norm(f"{name}.bn1", channels)
            shapes[f"{name}.conv2.weight"] = (channels, channels, 3, 3)
            shapes |= batch_norm(f"{name}.bn2", channels)
            if channels_in != channels:
                shapes[f"{name}.downsample.0.weight"] = (channels, channels_in, 1, 1)
                shapes |= batch_norm(f"{name}.downsample.1", channels)
            channels_in = channels
    return shapes


@pytest.mark.parametrize(("stem", "kernel", "width"), [("standard", 7, 64), ("small", 3, 64), ("small", 3, 16)])
def test_weights_are_named_and_shaped_as_in_torchvision(stem, kernel, width):
    ours = {
        name: tuple(tensor.shape)
        for name, tensor in ResNet18(ResNet18.Options(width=width, stem=stem)).state_dict().items()
    }
    assert ours == documented_resnet18(width, kernel)


def test_the_standard_network_has_11176512_parameters():
    assert sum(p.numel() for p in ResNet18(ResNet18.Options(stem="standard")).parameters()) == 11_176_512
    assert sum(p.numel() for p in ResNet18(ResNet18.Options(stem="small")).parameters()) == 11_176_512 - 64 * 3 * (
        49 - 9
    )


@pytest.mark.parametrize(
    ("image_size", "stem", "chosen"),
    [
        (32, "auto", "small"),
        (64, "auto", "small"),
        (65, "auto", "standard"),
        (224, "auto", "standard"),
        (32, "standard", "standard"),
        (96, "small", "small"),
    ],
)
def test_the_stem_follows_the_image_size_unless_it_is_chosen(image_size, stem, chosen):
    backbone, _ = build_backbone("resnet18", image_size, ResNet18.Options(width=16, stem=stem))
    small = chosen == "small"
    assert backbone.conv1.kernel_size == ((3, 3) if small else (7, 7))
    assert backbone.conv1.stride == ((1, 1) if small else (2, 2))
    assert isinstance(backbone.maxpool, nn.MaxPool2d) != small


@pytest.mark.parametrize(("stem", "image_size", "last"), [("small", 32, 4), ("standard", 224, 7), ("standard", 64, 2)])
def test_resolution_shrinks_eightfold_with_the_small_stem_and_32fold_with_the_standard_one(stem, image_size, last):
    seen = []
    network = ResNet18(ResNet18.Options(width=8, stem=stem))
    network.layer4.register_forward_hook(lambda module, inputs, output: seen.append(tuple(output.shape[2:])))
    shape_of(network, image_size)
    assert seen == [(last, last)]


@pytest.mark.parametrize(
    ("name", "width"),
    [("resnet18", 512), ("resnet18-w32", 256), ("resnet18-w1", 8), ("convnet", 128), ("convnet-w4", 16)],
)
def test_a_name_says_the_width(name, width):
    backbone, feature_dim = build_backbone(name, 32)
    assert feature_dim == width
    assert shape_of(backbone, 16) == (2, width)


def test_every_fresh_block_is_its_shortcut():
    """The last scale of each block starts at 0, all others at 1."""
    network = ResNet18(ResNet18.Options(width=8))
    for name, parameter in network.named_parameters():
        if name.endswith("bn2.weight"):
            assert torch.equal(parameter, torch.zeros_like(parameter)), name
        elif name.endswith(("bn1.weight", "downsample.1.weight")):
            assert torch.equal(parameter, torch.ones_like(parameter)), name
    x = torch.rand(2, 8, 4, 4)
    torch.testing.assert_close(network.layer1[0](x), x)


def test_a_trained_network_computes_what_its_documentation_says():
    """The whole forward pass once more, written with functions, on weights that hide nothing."""
    network = ResNet18(ResNet18.Options(width=4, stem="standard")).eval()
    for tensor in network.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape) * 0.5 + 0.1)
    weights = network.state_dict()

    def norm(x, name):
        parts = (weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        mean, variance, scale, shift = (part.view(1, -1, 1, 1) for part in parts)
        return (x - mean) / (variance + 1e-5).sqrt() * scale + shift

    images = torch.randn(2, 3, 64, 64)
    x = F.relu(norm(F.conv2d(images, weights["conv1.weight"], stride=2, padding=3), "bn1"))
    x = F.max_pool2d(x, 3, stride=2, padding=1)
    for stage in range(1, 5):
        for block in range(2):
            name = f"layer{stage}.{block}"
            stride = 2 if stage > 1 and block == 0 else 1
            shortcut = x
            if f"{name}.downsample.0.weight" in weights:
                shortcut = norm(
                    F.conv2d(x, weights[f"{name}.downsample.0.weight"], stride=stride), f"{name}.downsample.1"
                )
            y = F.relu(norm(F.conv2d(x, weights[f"{name}.conv1.weight"], stride=stride, padding=1), f"{name}.bn1"))
            x = F.relu(norm(F.conv2d(y, weights[f"{name}.conv2.weight"], padding=1), f"{name}.bn2") + shortcut)
    torch.testing.assert_close(network(images), x.mean((2, 3)), rtol=1e-4, atol=1e-4)


# -------------------------------------------------------------------------------------------------- other backbones


def test_a_module_of_ones_own_is_measured_and_otherwise_left_alone():
    module = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    backbone, width = build_backbone(module, 16)
    assert backbone is module
    assert width == 20
    assert module.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


@pytest.mark.parametrize("module", [nn.Conv2d(3, 5, 3), nn.Identity()])
def test_a_module_that_does_not_give_vectors_is_refused(module):
    with pytest.raises(ConfigError, match=r"must map images \(n, 3, s, s\) to vectors \(n, d\); one image gave \(1, "):
        build_backbone(module, 16)


@pytest.mark.parametrize("name", ["resnet81", "resnet18_w16", "resnet18-w", "resnet"])
def test_an_unknown_backbone_is_refused_with_the_nearest_name(name):
    with pytest.raises(ConfigError, match=f"unknown backbone '{name}'; did you mean 'resnet18"):
        build_backbone(name, 32)


def test_a_width_of_zero_and_an_unknown_stem_are_refused():
    with pytest.raises(ConfigError, match="backbone 'resnet18-w0'"):
        build_backbone("resnet18-w0", 32)
    with pytest.raises(ConfigError, match="width must be a whole number from 1 to 4,096, not 0"):
        validate(ResNet18.Options, {"width": 0})
    with pytest.raises(ConfigError, match="stem must be 'auto', 'small' or 'standard', not 'smal'"):
        validate(ResNet18.Options, {"stem": "smal"})


@pytest.mark.parametrize("name", ["timm:", "timm", "resnet18:50", "", 3, None])
def test_what_is_no_name_of_a_backbone_is_refused(name):
    with pytest.raises(ConfigError, match="backbone"):
        build_backbone(name, 32)
    with pytest.raises(ConfigError, match="backbone"):
        options_of(name)


def test_a_short_name_is_a_name_and_a_width():
    assert split_name("resnet18-w16") == ("resnet18", {"width": 16})
    for name in ("resnet18", "timm:resnet18-w16", "resnet18-w0", "no-such-w16"):
        assert split_name(name) == (name, {})
    assert options_of("convnet-w8") is ConvNet.Options
    assert not options_of("timm:resnet50").model_fields


def test_a_registered_backbone_is_built_with_its_settings_and_the_image_size():
    @register_backbone("linear")
    class Linear(nn.Sequential):
        class Options(Options):
            width: int = setting(6, "Width of the features.", ge=1)

        def __init__(self, options, image_size):
            super().__init__(nn.Flatten(), nn.Linear(3 * image_size**2, options.width))

    assert build_backbone("linear", 4)[1] == 6
    assert build_backbone("linear-w5", 4)[1] == 5
    backbone, width = build_backbone("linear", 4, Linear.Options(width=3))
    assert (type(backbone), width) == (Linear, 3)
    assert shape_of(backbone, 4) == (2, 3)


def test_a_registered_name_is_no_short_form():
    @register_backbone("convnet-w8")
    def own(options, image_size):
        return nn.Flatten()

    assert split_name("convnet-w8") == ("convnet-w8", {})
    assert build_backbone("convnet-w8", 2)[1] == 12


def test_without_timm_its_backbones_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError, match="pip install --no-deps timm"):
        build_backbone("timm:resnet10t", 32)
