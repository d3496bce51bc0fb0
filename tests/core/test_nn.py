"""Networks: names, sizes and beginnings by the books, averages in closed form, statistics of views."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ocssl.errors import ConfigError, MissingExtraError
from ocssl.nn import (
    Encoder,
    Features,
    ResNet18,
    build_backbone,
    ema_update,
    frozen_copy,
    mlp,
    predictor,
    projector,
)
from ocssl.nn.ema import copy_weights
from ocssl.nn.encoder import over_views


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def shape_of(module: nn.Module, image_size: int) -> tuple[int, ...]:
    with torch.no_grad():
        return tuple(module(torch.zeros(2, 3, image_size, image_size)).shape)


# --------------------------------------------------------------------------------------------------------- ResNet-18


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
    ours = {name: tuple(tensor.shape) for name, tensor in ResNet18(width, stem).state_dict().items()}
    assert ours == documented_resnet18(width, kernel)


def test_the_standard_network_has_11176512_parameters():
    assert sum(p.numel() for p in ResNet18(stem="standard").parameters()) == 11_176_512
    assert sum(p.numel() for p in ResNet18(stem="small").parameters()) == 11_176_512 - 64 * 3 * (49 - 9)


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
def test_the_stem_follows_the_image_size_unless_told_otherwise(image_size, stem, chosen):
    backbone, _ = build_backbone("resnet18-w16", image_size, stem)
    small = chosen == "small"
    assert backbone.conv1.kernel_size == ((3, 3) if small else (7, 7))
    assert backbone.conv1.stride == ((1, 1) if small else (2, 2))
    assert isinstance(backbone.maxpool, nn.MaxPool2d) != small


@pytest.mark.parametrize(("stem", "image_size", "last"), [("small", 32, 4), ("standard", 224, 7), ("standard", 64, 2)])
def test_resolution_shrinks_eightfold_with_the_small_stem_and_32fold_with_the_standard_one(stem, image_size, last):
    seen = []
    network = ResNet18(8, stem)
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
    network = ResNet18(8)
    for name, parameter in network.named_parameters():
        if name.endswith("bn2.weight"):
            assert torch.equal(parameter, torch.zeros_like(parameter)), name
        elif name.endswith(("bn1.weight", "downsample.1.weight")):
            assert torch.equal(parameter, torch.ones_like(parameter)), name
    x = torch.rand(2, 8, 4, 4)
    torch.testing.assert_close(network.layer1[0](x), x)


def test_a_trained_network_computes_what_its_documentation_says():
    """The whole forward pass once more, written with functions, on weights that hide nothing."""
    network = ResNet18(4, "standard").eval()
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
    with pytest.raises(ConfigError, match="unknown stem 'smal'; did you mean 'small'"):
        build_backbone("resnet18", 32, "smal")


def test_without_timm_its_backbones_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ocssl\[timm\]'"):
        build_backbone("timm:resnet10t", 32)


# ------------------------------------------------------------------------------------------------------------ heads


def described(head: nn.Sequential) -> list[str]:
    words = []
    for layer in head:
        match layer:
            case nn.Linear():
                words.append(f"{layer.in_features}→{layer.out_features}" + (" bias" if layer.bias is not None else ""))
            case nn.BatchNorm1d():
                words.append(f"norm {layer.num_features}" + (" affine" if layer.affine else ""))
            case nn.ReLU():
                words.append("relu")
    return words


def test_the_projector_is_that_of_the_paper():
    hidden = ["512→512", "norm 512 affine", "relu"]
    assert described(projector(512, 512, 2048)) == [*hidden, *hidden, "512→2048", "norm 2048"]


def test_predictor_and_aligner_are_the_bottleneck_of_the_paper():
    assert described(predictor(2048, 512)) == ["2048→512", "norm 512 affine", "relu", "512→2048 bias"]


def test_an_mlp_without_norms_is_plain_linear_layers_with_bias():
    assert described(mlp(512, 512, 128, hidden_norm=False)) == ["512→512 bias", "relu", "512→128 bias"]


def test_projected_features_have_mean_zero_and_variance_one_over_the_batch():
    out = projector(6, 8, 10)(torch.randn(50, 6))
    torch.testing.assert_close(out.mean(0), torch.zeros(10), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.var(0, unbiased=False), torch.ones(10), atol=1e-2, rtol=0)


# ----------------------------------------------------------------------------------------------- averages and copies


def small_network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


@pytest.mark.parametrize("tau", [0.0, 0.5, 0.9, 0.999, 1.0])
def test_a_moving_average_has_its_closed_form_after_many_updates(tau):
    """θ′ₙ = τⁿ θ′₀ + (1 − τ) Σₖ τⁿ⁻ᵏ θₖ, in double precision."""
    teacher, student = small_network(), small_network()
    start = [p.detach().double().clone() for p in teacher.parameters()]
    history: list[list[torch.Tensor]] = []
    for _ in range(7):
        for parameter in student.parameters():
            parameter.data.normal_()
        history.append([p.detach().double().clone() for p in student.parameters()])
        ema_update(teacher, student, tau)
    n = len(history)
    for i, parameter in enumerate(teacher.parameters()):
        expected = tau**n * start[i] + (1 - tau) * sum(tau ** (n - 1 - k) * history[k][i] for k in range(n))
        torch.testing.assert_close(parameter.double(), expected, atol=1e-5, rtol=1e-5)


def test_the_average_runs_over_parameters_only():
    teacher, student = small_network(), small_network()
    student(torch.randn(8, 3) * 5 + 2)
    ema_update(teacher, student, 0.5)
    assert torch.equal(teacher[1].running_mean, torch.zeros(4))
    assert teacher[1].num_batches_tracked == 0


def test_the_average_leaves_the_student_alone():
    teacher, student = small_network(), small_network()
    before = {name: tensor.clone() for name, tensor in student.state_dict().items()}
    ema_update(teacher, student, 0.3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in student.state_dict().items())


def test_a_frozen_copy_takes_no_gradient_and_shares_nothing():
    network = small_network()
    copy = frozen_copy(network)
    (network(torch.randn(5, 3)) - copy(torch.randn(5, 3))).square().sum().backward()
    assert all(p.grad is None and not p.requires_grad for p in copy.parameters())
    assert all(p.grad is not None for p in network.parameters())
    network[0].weight.data.zero_()
    assert copy[0].weight.abs().sum() > 0


def test_copied_weights_are_equal_buffers_included_and_stay_apart():
    target, source = frozen_copy(small_network()), small_network()
    source(torch.randn(8, 3) + 1)
    copy_weights(target, source)
    assert all(
        torch.equal(a, b) for a, b in zip(target.state_dict().values(), source.state_dict().values(), strict=True)
    )
    source[0].weight.data.zero_()
    assert target[0].weight.abs().sum() > 0


# ------------------------------------------------------------------------------------------------- views and encoder


def standardised(x: torch.Tensor) -> torch.Tensor:
    """Batch norm by hand: over the rows, biased variance."""
    return (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()


def test_joint_views_share_batch_statistics_and_separate_views_have_their_own():
    views = torch.stack([torch.randn(6, 4), 10 + 3 * torch.randn(6, 4)])
    norm = nn.BatchNorm1d(4)
    torch.testing.assert_close(over_views(norm, views, joint=False), torch.stack([standardised(v) for v in views]))
    together = standardised(torch.cat([*views])).view(2, 6, 4)
    torch.testing.assert_close(over_views(norm, views, joint=True), together)
    assert not torch.allclose(over_views(norm, views, joint=False), together, atol=0.1)


def test_running_statistics_move_once_jointly_and_once_per_view_separately():
    views = torch.randn(2, 6, 4) + torch.tensor([0.0, 5.0]).view(2, 1, 1)
    joint, separate = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    over_views(joint, views, joint=True)
    over_views(separate, views, joint=False)
    torch.testing.assert_close(joint.running_mean, 0.1 * views.mean((0, 1)))
    torch.testing.assert_close(separate.running_mean, 0.9 * 0.1 * views[0].mean(0) + 0.1 * views[1].mean(0))


def small_encoder() -> Encoder:
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.BatchNorm1d(5))
    return Encoder(backbone, projector(5, 6, 7), feature_dim=5)


@pytest.mark.parametrize("joint", [True, False])
def test_the_encoder_gives_backbone_and_projected_features_of_every_view(joint):
    encoder, views = small_encoder(), torch.randn(2, 6, 3, 2, 2)
    assert encoder.output_dim == 7
    features = encoder(views, joint)
    if joint:
        backbone = encoder.backbone(views.flatten(0, 1))
        expected = backbone.view(2, 6, 5), encoder.projector(backbone).view(2, 6, 7)
    else:
        backbones = [encoder.backbone(view) for view in views]
        expected = torch.stack(backbones), torch.stack([encoder.projector(b) for b in backbones])
    torch.testing.assert_close(features.backbone, expected[0])
    torch.testing.assert_close(features.projected, expected[1])


def test_building_an_encoder_leaves_no_trace_in_its_statistics():
    encoder = small_encoder()
    assert encoder.projector.training
    assert all(m.num_batches_tracked == 0 for m in encoder.modules() if isinstance(m, nn.BatchNorm1d))


@pytest.mark.parametrize("joint", [True, False])
def test_heads_treat_views_as_the_encoder_did(joint):
    head, projected = nn.BatchNorm1d(4), torch.randn(2, 6, 4) + torch.tensor([0.0, 9.0]).view(2, 1, 1)
    features = Features(backbone=torch.randn(2, 6, 4), projected=projected, joint=joint)
    torch.testing.assert_close(features.through(head), over_views(head, projected, joint))
    torch.testing.assert_close(features.through(head, features.backbone), over_views(head, features.backbone, joint))


def test_detached_features_have_no_history():
    features = small_encoder()(torch.randn(2, 4, 3, 2, 2), joint=True)
    detached = features.detach()
    assert features.projected.requires_grad
    assert not detached.projected.requires_grad
    assert not detached.backbone.requires_grad
    assert torch.equal(detached.projected, features.projected)
