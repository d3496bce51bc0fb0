"""Weights to start from: every kind of source, what follows from it, and what is refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from helpers.settings import TINY
from ocssl import Learner, pretrained
from ocssl.cli import app
from ocssl.errors import CheckpointError, ConfigError, MissingExtraError, OcsslError
from ocssl.export import load, of_learner, publish
from ocssl.export.formats import export
from ocssl.nn import ConvNet, EfficientNetLite0, ResNet18, build_backbone
from ocssl.nn.backbones import InputSpec
from ocssl.nn.efficientnet import PACKAGE

MEAN, STD = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)


def convnet(seed: int = 0, width: int = 8) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return ConvNet(ConvNet.Options(width=width)).state_dict()


def has(learner: Learner, weights: dict[str, Tensor]) -> bool:
    """Whether the network begins with these weights."""
    found = learner.network.state_dict()
    return all(torch.equal(found[name], tensor) for name, tensor in weights.items())


def images(size: int, count: int = 6) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, size, size, 3), dtype=np.uint8)


# ---------------------------------------------------------------------- state dicts


@pytest.mark.parametrize(
    ("name", "wrap"),
    [
        ("w.safetensors", lambda weights: weights),
        ("w.pth", lambda weights: weights),
        ("w.pt", lambda weights: {"epoch": 3, "state_dict": weights}),
        ("w.bin", lambda weights: {"model": {f"module.{key}": value for key, value in weights.items()}}),
        ("w.ckpt", lambda weights: {**{f"backbone.{k}": v for k, v in weights.items()}, "head.w": torch.ones(1)}),
        ("w.pth", lambda weights: {**weights, "fc.weight": torch.ones(10, 32)}),
        ("w.pth", lambda weights: {k: v for k, v in weights.items() if "num_batches" not in k}),
    ],
)
def test_a_state_dict_is_where_the_network_begins(
    tmp_path: Path, name: str, wrap: Callable[[dict[str, Tensor]], Any]
) -> None:
    weights, path = convnet(), tmp_path / name
    (save_file if path.suffix == ".safetensors" else torch.save)(wrap(weights), path)
    learner = Learner(backbone="convnet", weights=str(path), image_size=8, **TINY)
    assert has(learner, weights)
    assert (learner.config.weights, learner.config.width) == (str(path), 8)  # type: ignore[attr-defined]
    own = Learner(backbone=ConvNet(ConvNet.Options(width=8)), weights=str(path), image_size=8, **TINY)
    assert has(own, weights)


def test_of_two_copies_of_a_network_the_first_is_taken_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copies = {"module.encoder_q.": convnet(1), "module.encoder_k.": convnet(2)}
    save_file(
        {prefix + key: one for prefix, copy in copies.items() for key, one in copy.items()}, tmp_path / "w.safetensors"
    )
    learner = Learner(backbone="convnet", weights=str(tmp_path / "w.safetensors"), image_size=8, **TINY)
    (chosen,) = [prefix for prefix, copy in copies.items() if has(learner, copy)]
    assert f"the network more than once, its names begin with '{chosen}', " in caplog.text


@pytest.mark.parametrize("stem", ["small", "standard"])
def test_stem_and_width_of_a_resnet_follow_from_its_weights(tmp_path: Path, stem: str) -> None:
    network = ResNet18(ResNet18.Options(width=4, stem=stem))  # type: ignore[arg-type]
    torch.save({**network.state_dict(), "fc.bias": torch.zeros(5)}, path := tmp_path / "r.pth")
    for size in (32, 96):
        learner = Learner(backbone="resnet18", weights=str(path), image_size=size, **TINY)
        assert has(learner, network.state_dict())
        assert learner.config.stem == stem  # type: ignore[attr-defined]


class Malice:
    """A pickle that would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def changed(key: str, tensor: Tensor | None) -> dict[str, Tensor]:
    weights = {**convnet(), **({} if tensor is None else {key: tensor})}
    return {name: value for name, value in weights.items() if tensor is not None or name != key}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (changed("convs.1.weight", None), "does not fit backbone 'convnet': it has no convs.1.weight"),
        (changed("convs.1.weight", torch.ones(2)), r"convs.1.weight is \(2,\), not \(16, 8, 3, 3\)"),
        (changed("convs.0.weight", torch.ones(8, 1, 3, 3)), r"convs.0.weight is \(8, 1, 3, 3\), not \(8, 3, 3, 3\)"),
        (changed("layer9.weight", torch.ones(2)), "it has layer9.weight, which the network has not"),
        (changed("norms.0.bias", torch.full((8,), float("nan"))), "norms.0.bias holds NaN"),
        (
            changed("convs.0.weight", torch.ones(8, 3, 3, 3, dtype=torch.int8)),
            "convs.0.weight is torch.int8, not floating point",
        ),
        (ResNet18(ResNet18.Options(width=4)).state_dict(), "it has no convs.0.weight"),
        ({"epoch": 3}, "holds no tensors by name"),
        ([1, 2], "holds no tensors by name"),
        (torch.ones(3), "holds no tensors by name"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_the_first_name(tmp_path: Path, content: Any, why: str) -> None:
    torch.save(content, path := tmp_path / "w.pth")
    with pytest.raises(OcsslError, match=why) as error:
        Learner(backbone="convnet", weights=str(path), image_size=8, **TINY)
    assert "\n" not in str(error.value)


def test_nothing_of_a_file_is_executed_and_what_is_broken_is_named(tmp_path: Path) -> None:
    torch.save({"w": Malice(tmp_path / "made")}, tmp_path / "code.pth")
    torch.save(convnet(), tmp_path / "whole.pth")
    save_file(convnet(), tmp_path / "whole.safetensors")
    for suffix in (".pth", ".safetensors"):
        whole = (tmp_path / f"whole{suffix}").read_bytes()
        for share in (0, 10, len(whole) // 2, len(whole) - 1):
            (tmp_path / f"cut-{share}{suffix}").write_bytes(whole[:share])
    (tmp_path / "w.onnx").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe.pth")
    torch.save(ConvNet(), tmp_path / "module.pth")
    for path in tmp_path.iterdir():
        if path.name.startswith("whole"):
            continue
        with pytest.raises(CheckpointError) as error:
            Learner(backbone="convnet", weights=str(path), image_size=8, **TINY)
        assert path.name in str(error.value)
        assert "\n" not in str(error.value)
        assert "SafetensorError" not in str(error.value)
    assert not (tmp_path / "made").exists()
    with pytest.raises(CheckpointError, match="running its code is refused; save its state_dict"):
        Learner(backbone="convnet", weights=str(tmp_path / "code.pth"), **TINY)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"weights": "no-such-file.pth"}, "there are no weights at 'no-such-file.pth'; name a"),
        ({"weights": "x" * 5000}, "there are no weights"),
        ({"weights": "a\0b"}, "there are no weights|embedded null"),
        ({"weights": 3}, "weights must be a text or unset, not 3"),
        ({"weights": ""}, "there are no weights at ''"),
    ],
)
def test_what_names_no_weights_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Learner(backbone="convnet", image_size=8, **settings, **TINY)


def test_a_state_dict_needs_the_name_of_its_backbone(tmp_path: Path) -> None:
    torch.save(convnet(), path := tmp_path / "w.pth")
    with pytest.raises(ConfigError, match="does not say its backbone; give it"):
        Learner(weights=str(path), **TINY)


# ---------------------------------------------------------------------- encoders of ours


def test_an_encoder_of_ours_brings_everything(tmp_path: Path) -> None:
    first = Learner(backbone="resnet18-w16", stem="standard", image_size=24, mean=MEAN, std=STD, **TINY)
    first.partial_fit(images(24))
    publish(first, tmp_path / "encoder")
    first.save(tmp_path / "learner")
    export(of_learner(first), tmp_path / "e.safetensors", "safetensors")
    for source in ("encoder", "learner", "e.safetensors"):
        second = Learner(weights=str(tmp_path / source), **TINY)
        settings = second.config.to_dict()
        assert has(second, first.network.state_dict())
        wanted = {"backbone": "resnet18", "width": 16, "stem": "standard", "image_size": 24, "mean": [*MEAN]}
        assert settings.items() >= wanted.items()
        np.testing.assert_array_equal(first.transform(images(24)), second.transform(images(24)))
    assert Learner(weights=str(tmp_path / "encoder"), image_size=16, **TINY).config.image_size == 16
    with pytest.raises(ConfigError, match="has the weights of backbone 'resnet18', not of 'convnet'"):
        Learner(weights=str(tmp_path / "encoder"), backbone="convnet", **TINY)
    with pytest.raises(ConfigError, match="brings a network of its own"):
        Learner(weights=str(tmp_path / "encoder"), backbone=ConvNet(), **TINY)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="there is no encoder in"):
        Learner(weights=str(tmp_path / "empty"), **TINY)


def test_a_saved_learner_does_not_need_its_source_again(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    torch.save(convnet(), path := tmp_path / "secret" / "w.pth")
    learner = Learner(backbone="convnet", weights=str(path), image_size=8, **TINY).partial_fit(images(8))
    learner.save(tmp_path / "learner")
    publish(learner, tmp_path / "encoder")
    path.unlink()
    again = Learner.load(tmp_path / "learner")
    assert again.config == learner.config
    assert has(again, learner.network.state_dict())
    encoder = load(tmp_path / "encoder")
    assert encoder.facts["weights"] == "w.pth"
    assert "secret" not in (tmp_path / "encoder" / "encoder.json").read_text()
    again.partial_fit(images(8))
    with pytest.raises(ConfigError, match="there are no weights at"):
        again.fit(images(8))  # begins anew, and would need it


def test_the_teacher_of_a_strategy_begins_with_the_weights(tmp_path: Path) -> None:
    torch.save(weights := convnet(), path := tmp_path / "w.pth")
    learner = Learner(strategy="cla-e", backbone="convnet", weights=str(path), image_size=8, **TINY)
    state = learner.train_state.strategy.state_dict()
    first = [tensor for name, tensor in state.items() if name.endswith("convs.0.weight")]
    assert first
    assert all(torch.equal(tensor, weights["convs.0.weight"]) for tensor in first)


# ---------------------------------------------------------------------- factories

FACTORY = """
import torch
from torch import nn
from ocssl.nn.backbones import InputSpec

class Net(nn.Sequential):
    inputs = InputSpec(12, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    def __init__(self):
        super().__init__(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.AdaptiveAvgPool2d(1), nn.Flatten())

def make():
    net = Net()
    nn.init.ones_(net[0].weight)
    return net

def number():
    return 3

def broken():
    raise RuntimeError("no weights today")

Tensor = torch.Tensor
"""


def test_a_factory_is_kept_as_text_and_gives_its_weights_and_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "factory_net.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    learner = Learner(weights="factory_net:make", **TINY)
    assert (
        learner.config.to_dict().items() >= {"backbone": "factory_net:make", "image_size": 12, "mean": [*MEAN]}.items()
    )
    assert (learner.network[0].weight == 1).all()  # type: ignore[index]
    learner.partial_fit(images(12)).save(tmp_path / "learner")
    assert [plugin.module for plugin in learner.config.plugins()] == ["factory_net"]
    assert has(Learner.load(tmp_path / "learner"), learner.network.state_dict())
    assert load(tmp_path / "learner").transform(images(12)).shape == (6, 5)
    for name, why in {
        "factory_net:number": "must return a torch module, not int",
        "factory_net:broken": "cannot be made: RuntimeError: no weights today",
        "factory_net:missing": "defines no function or class 'missing'",
        "factory_net:Tensor": "defines no function or class 'Tensor'",
        "no_such_module:make": "cannot import 'no_such_module'",
        "os:getcwd": "is of Python's own library",
        "subprocess:Popen": "is of Python's own library",
    }.items():
        for settings in ({"weights": name}, {"backbone": name}):
            with pytest.raises(ConfigError, match=why):
                Learner(image_size=12, **settings, **TINY)
    monkeypatch.delitem(sys.modules, "factory_net")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(tmp_path)])
    with pytest.raises(CheckpointError, match=r"module 'factory_net', which cannot be imported .*--plugin fact"):
        Learner.load(tmp_path / "learner")


# ---------------------------------------------------------------------- timm


class Timm(SimpleNamespace):
    """As much of timm as is asked for."""

    def __init__(self, **config: Any) -> None:
        weights = {"url": "https://example.org", "input_size": (3, 16, 16), "mean": MEAN, "std": STD}
        super().__init__(config={**weights, "architecture": "tiny", **config}, asked=[])

    def is_model(self, name: str) -> bool:
        return name == "tiny"

    def list_models(self, pattern: str) -> list[str]:
        return ["tiny"]

    def get_pretrained_cfg(self, name: str) -> Any:
        return SimpleNamespace(fixed_input_size=self.config.get("fixed_input_size", False))

    def create_model(self, name: str, *, pretrained: bool, num_classes: int, img_size: int = 16) -> nn.Module:
        self.asked.append((name, pretrained))
        if img_size % 4:
            raise AssertionError("not divisible by the patch size\nof 4")
        module = ConvNet(ConvNet.Options(width=4))
        if pretrained:
            module.load_state_dict(convnet(7, width=4))
        module.pretrained_cfg = self.config  # type: ignore[assignment]
        return module


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> Timm:
    fake = Timm()
    monkeypatch.setitem(sys.modules, "timm", fake)  # type: ignore[arg-type]
    return fake


@pytest.mark.parametrize("name", ["timm:tiny", "hf-hub:timm/tiny.in1k"])
def test_a_model_of_timm_comes_with_its_weights_and_inputs(timm: Timm, tmp_path: Path, name: str) -> None:
    learner = Learner(weights=name, **TINY)
    wanted = {"backbone": "timm:tiny", "weights": name, "image_size": 16, "mean": [*MEAN], "std": [*STD]}
    assert learner.config.to_dict().items() >= wanted.items()
    assert has(learner, convnet(7, width=4))
    learner.save(tmp_path / "learner")
    timm.asked.clear()
    assert has(Learner.load(tmp_path / "learner"), convnet(7, width=4))
    assert timm.asked == [("tiny", False)]  # a saved state reaches no network


def test_a_named_backbone_of_timm_alone_has_random_weights(timm: Timm) -> None:
    assert not has(Learner(backbone="timm:tiny", image_size=16, **TINY), convnet(7, width=4))
    assert not any(pretrained for _, pretrained in timm.asked)


@pytest.mark.parametrize(
    ("config", "settings", "why"),
    [
        ({"url": ""}, {}, "timm has no weights for 'tiny'"),
        ({"input_size": (1, 16, 16)}, {}, "not of 3 channels"),
        ({"fixed_input_size": True}, {"image_size": 15}, "for images of 15×15: AssertionError: not divisible"),
        ({}, {"weights": "timm:huge"}, "unknown timm backbone 'huge'"),
        ({}, {"backbone": "convnet"}, "has the weights of backbone 'timm:tiny', not of 'convnet'"),
    ],
)
def test_a_model_of_timm_that_cannot_be_used(
    timm: Timm, config: dict[str, Any], settings: dict[str, Any], why: str
) -> None:
    timm.config.update(config)
    with pytest.raises(ConfigError, match=why) as error:
        Learner(**{"weights": "timm:tiny", **settings, **TINY})
    assert "\n" not in str(error.value)


def test_the_hint_for_timm_leaves_torch_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    wanted = (
        r"pip install --no-deps timm huggingface_hub torchvision==0.28.0\+cpu --extra-index-url https://\S+/whl/cpu$"
    )
    with pytest.raises(MissingExtraError, match=wanted):
        Learner(weights="timm:resnet18", **TINY)
    monkeypatch.delitem(sys.modules, "timm")
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist\\nfor you')")
    monkeypatch.syspath_prepend(tmp_path)
    for settings in ({"weights": "timm:resnet18"}, {"backbone": "timm:resnet18"}, {"weights": "hf-hub:a/b"}):
        with pytest.raises(ConfigError, match=r"installed but cannot be imported beside torch 2\.13") as error:
            Learner(image_size=16, **settings, **TINY)
        assert "\n" not in str(error.value)


def test_a_size_that_a_network_cannot_take_is_refused() -> None:
    with pytest.raises(ConfigError, match="backbone of your own takes no images of 2×2: RuntimeError: "):
        build_backbone(nn.Sequential(nn.Conv2d(3, 4, 5), nn.Flatten()), 2)


# ---------------------------------------------------------------------- a package with weights


def fake_package(folder: Path, weights: dict[str, Tensor]) -> None:
    models = folder / PACKAGE / "models"
    models.mkdir(parents=True)
    (folder / PACKAGE / "__init__.py").write_text("raise SystemExit('its code was executed')")
    torch.save(weights, models / "lite0.pth")


def test_a_package_gives_weights_without_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if pretrained.installed() is None:
        with pytest.raises(MissingExtraError, match=f"pip install --no-deps {PACKAGE}$"):
            Learner(weights="efficientnet-lite0", **TINY)
    torch.manual_seed(5)
    weights = EfficientNetLite0().state_dict()
    fake_package(tmp_path, {**weights, "_fc.weight": torch.ones(10, 1280)})
    monkeypatch.syspath_prepend(tmp_path)
    assert pretrained.installed() == "efficientnet-lite0"
    learner = Learner(weights="efficientnet-lite0", **TINY)
    assert has(learner, weights)
    spec = EfficientNetLite0.inputs
    assert (learner.config.image_size, learner.config.mean) == (spec.image_size, spec.mean)  # type: ignore[attr-defined]


def test_a_pretrained_network_embeds_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(5)
    weights = EfficientNetLite0().state_dict()
    fake_package(tmp_path / "site", weights)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "frames").mkdir()
    Image.fromarray(images(40)[0]).save(tmp_path / "frames" / "a.png")
    app(["embed", "efficientnet-lite0", "frames", "-o", "f.npy"], standalone_mode=False)
    learner = Learner(weights="efficientnet-lite0", fit="squash", **TINY)
    np.testing.assert_allclose(np.load("f.npy"), learner.transform(images(40)[:1]), atol=1e-4)
    encoder = load("efficientnet-lite0")
    assert (encoder.facts["weights"], encoder.facts["seen"]) == ("efficientnet-lite0", 0)
    (tmp_path / "efficientnet-lite0").mkdir()  # what lies there goes first
    with pytest.raises(CheckpointError, match="there is no encoder in"):
        load("efficientnet-lite0")
    monkeypatch.setattr("ocssl.export.encoder.open_source", lambda name: pretrained.Source(name, dict, {}))
    with pytest.raises(ConfigError, match="'timm:some' does not say what images it takes"):
        load("timm:some")


def test_our_network_is_that_of_the_package() -> None:
    package = pytest.importorskip("efficientnet_lite_pytorch")
    try:
        file = EfficientNetLite0.weights_file()
    except MissingExtraError:
        pytest.skip("the package with weights is not installed")
    theirs = package.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(file)).eval()
    ours = EfficientNetLite0().eval()
    pretrained.read_weights("efficientnet-lite0", ours, "efficientnet-lite0", 128)
    for size in (32, 128, 224):
        x = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(size))
        with torch.no_grad():
            torch.testing.assert_close(ours(x), theirs.extract_features(x).mean((2, 3)), rtol=1e-5, atol=1e-5)


def test_weights_are_adapted_unless_another_strategy_is_chosen(tmp_path: Path) -> None:
    torch.save(ConvNet(ConvNet.Options(width=4)).state_dict(), file := tmp_path / "w.pth")
    known = {"weights": str(file), "backbone": "convnet", **TINY}
    assert Learner(**known).config.strategy == "adapt"
    for part in ({"method": "byol"}, {"memory": "anchored"}, {"optimizer": "sgd"}):
        assert Learner(**known, **part).config.strategy == "adapt"
    assert Learner(**known, strategy="er").config.strategy == "er"
    assert Learner(**known, tau=0.9).config.strategy == "cla-e"
    assert Learner(**{**known, "backbone": ConvNet(ConvNet.Options(width=4))}).config.strategy == "adapt"


def test_a_module_of_ones_own_says_what_it_expects() -> None:
    from ocssl.live.start import start_settings

    network = ConvNet(ConvNet.Options(width=4))
    network.inputs = InputSpec(200, MEAN, STD)  # type: ignore[assignment]
    config = Learner(backbone=network, **TINY).config
    assert (config.image_size, config.mean, config.std) == (200, MEAN, STD)
    assert Learner(backbone=network, image_size=16, **TINY).config.image_size == 16
    for fixed, size in ((False, 128), (True, 200)):
        network.inputs = InputSpec(200, MEAN, STD, fixed)  # type: ignore[assignment]
        found = start_settings({"backbone": network, "device": "cpu"}, 48)
        assert (found["image_size"], found["mean"], found["backbone"]) == (size, MEAN, network)
