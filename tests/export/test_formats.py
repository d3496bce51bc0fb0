"""Exported encoders: each format read by its own reader and held against ``transform``."""

from __future__ import annotations

import ctypes
import json
import os
import resource
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from helpers.settings import TINY
from ocssl import Learner
from ocssl.cli import app
from ocssl.errors import CheckpointError, ConfigError, MissingExtraError
from ocssl.export import FrozenEncoder, load, of_learner, publish
from ocssl.export.formats import export, formats
from ocssl.export.hub import model_card, write_hub_folder
from ocssl.nn import EfficientNetLite0

SIZE = 16
IMAGES = np.random.default_rng(0).integers(0, 256, (9, SIZE, SIZE, 3), dtype=np.uint8)
PIXELS = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255


def make(backbone: str, stem: str | None = None, images: np.ndarray = IMAGES) -> FrozenEncoder:
    learner = Learner(
        backbone=backbone, stem=stem, image_size=SIZE, stream_batch=3, batch=9, passes=1, hidden_dim=8, output_dim=8,
        mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3), device="cpu",
    )  # fmt: skip
    return of_learner(learner.partial_fit(images))


@pytest.fixture(scope="module", params=["convnet-w8", "resnet18-w8"])
def encoder(request: pytest.FixtureRequest) -> FrozenEncoder:
    return make(request.param)


@pytest.fixture(scope="module")
def resnet18() -> FrozenEncoder:
    return make("resnet18", images=IMAGES[:1])


def test_onnx_agrees_for_every_batch_size(encoder: FrozenEncoder, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    export(encoder, tmp_path / "encoder.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "encoder.onnx", providers=["CPUExecutionProvider"])
    for count in (1, 2, 9):
        (features,) = session.run(["features"], {"images": PIXELS[:count].numpy()})
        assert np.abs(features - encoder.transform(IMAGES[:count])).max() < 1e-4
    story = json.loads(session.get_modelmeta().custom_metadata_map["ocssl"])
    assert story["cbp"] == encoder.facts["cbp"]


def test_an_adapted_pretrained_network_is_exported(tmp_path: Path) -> None:
    torch.manual_seed(3)
    torch.save(EfficientNetLite0().state_dict(), file := tmp_path / "w.pth")
    settings = {"weights": str(file), "backbone": "efficientnet-lite0", "image_size": 2 * SIZE, "heads_first": 0}
    learner = Learner(strategy="adapt", lr=0.05, **settings, **TINY).partial_fit(IMAGES[:4].repeat(2, 1).repeat(2, 2))
    publish(learner, tmp_path / "encoder")
    file.unlink()
    encoder = load(tmp_path / "encoder")
    images = np.random.default_rng(1).integers(0, 256, (3, 2 * SIZE, 2 * SIZE, 3), dtype=np.uint8)
    wanted = learner.transform(images)
    original = learner.train_state.strategy.original.network.backbone.state_dict()  # type: ignore[union-attr]
    assert not all(map(torch.equal, original.values(), learner.network.state_dict().values()))
    export(encoder, tmp_path / "e.safetensors", "safetensors")
    for one in (encoder, load(tmp_path / "e.safetensors")):
        np.testing.assert_allclose(one.transform(images), wanted, rtol=0, atol=1e-5)
    onnxruntime = pytest.importorskip("onnxruntime")
    export(encoder, tmp_path / "e.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "e.onnx", providers=["CPUExecutionProvider"])
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    for count in (1, 3):
        (features,) = session.run(["features"], {"images": pixels[:count].numpy()})
        assert np.abs(features - wanted[:count]).max() < 1e-4


def test_torchscript_agrees_without_any_of_our_code(encoder: FrozenEncoder, tmp_path: Path) -> None:
    export(encoder, tmp_path / "encoder.pt", "torchscript")
    loaded = torch.jit.load(tmp_path / "encoder.pt")
    for count in (1, 9):
        with torch.no_grad():
            assert np.abs(loaded(PIXELS[:count]).numpy() - encoder.transform(IMAGES[:count])).max() < 1e-4


def test_safetensors_come_back_exactly_and_can_be_exported_again(encoder: FrozenEncoder, tmp_path: Path) -> None:
    export(encoder, tmp_path / "a.safetensors", "safetensors")
    back = load(tmp_path / "a.safetensors")
    assert np.array_equal(back.transform(IMAGES), encoder.transform(IMAGES))
    assert back.facts == encoder.facts
    export(back, tmp_path / "b.safetensors", "safetensors")
    assert np.array_equal(load(tmp_path / "b.safetensors").transform(IMAGES), encoder.transform(IMAGES))


def test_others_may_read_exported_weights(encoder: FrozenEncoder, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        export(encoder, tmp_path / "encoder.safetensors", "safetensors")
    finally:
        os.umask(before)
    assert (tmp_path / "encoder.safetensors").stat().st_mode & 0o777 == 0o644


def torchvision_names() -> set[str]:
    """The entries of torchvision's ResNet-18 without its classifier, written out from its structure."""
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    names = {"conv1.weight", *(f"bn1.{part}" for part in norm)}
    for stage in (1, 2, 3, 4):
        for block in (0, 1):
            place = f"layer{stage}.{block}"
            for number in (1, 2):
                names |= {f"{place}.conv{number}.weight", *(f"{place}.bn{number}.{part}" for part in norm)}
        if stage > 1:
            shortcut = f"layer{stage}.0.downsample"
            names |= {f"{shortcut}.0.weight", *(f"{shortcut}.1.{part}" for part in norm)}
    return names


@pytest.mark.parametrize(("stem", "first"), [("standard", (64, 3, 7, 7)), ("small", (64, 3, 3, 3))])
def test_a_resnet18_has_torchvisions_names_and_shapes(stem: str, first: tuple[int, ...], tmp_path: Path) -> None:
    export(make("resnet18", stem, IMAGES[:1]), tmp_path / "encoder.pth", "torchvision")
    weights = torch.load(tmp_path / "encoder.pth", weights_only=True)
    assert set(weights) == torchvision_names()
    assert weights["conv1.weight"].shape == first
    assert weights["layer3.0.downsample.0.weight"].shape == (256, 128, 1, 1)
    assert weights["layer4.1.conv2.weight"].shape == (512, 512, 3, 3)


def test_other_backbones_are_not_passed_off_as_torchvisions(encoder: FrozenEncoder, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"of width 64 fits .* '{encoder.facts['backbone']}' of width 8$"):
        export(encoder, tmp_path / "encoder.pth", "torchvision")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("kind", "dtype"), [("half", "torch.float16"), ("double", "torch.float64")])
def test_an_encoder_that_is_not_in_single_precision_is_refused(kind: str, dtype: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"in float32, and this one is in {dtype}"):
        export(getattr(make("convnet-w8"), kind)(), tmp_path / "encoder.onnx", "onnx")


def test_an_encoder_in_training_goes_on_training_after_an_export(tmp_path: Path) -> None:
    encoder = make("convnet-w8").train()
    assert export(encoder, tmp_path / "encoder.safetensors", "safetensors") == 0
    assert all(module.training for module in encoder.modules())


@pytest.mark.parametrize("error", [0.01, float("nan")])
def test_a_file_that_disagrees_never_gets_its_name(tmp_path: Path, error: float) -> None:
    @formats.register(f"off-by-{error}")
    def write(original: FrozenEncoder, path: Path):  # type: ignore[no-untyped-def]
        path.write_text("a file")
        return lambda images: original(images) + error

    with pytest.raises(CheckpointError, match="differs from the original by"):
        export(make("convnet-w8"), tmp_path / "encoder.bin", f"off-by-{error}")
    assert not list(tmp_path.iterdir())


def test_an_encoder_that_diverged_is_not_taken_for_a_faulty_file(tmp_path: Path) -> None:
    encoder = make("convnet-w8")
    with torch.no_grad():
        next(encoder.parameters()).fill_(float("nan"))
    with pytest.raises(CheckpointError, match="the encoder's own features are NaN or infinite"):
        export(encoder, tmp_path / "encoder.safetensors", "safetensors")
    assert not list(tmp_path.iterdir())


class Transformer(nn.Module):
    """A class token and the patches of an image in one layer of torch's transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, stride=8)
        self.token = nn.Parameter(torch.ones(1, 1, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        return self.layer(torch.cat([self.token.expand(self.count(images), -1, -1), tokens], dim=1))[:, 0]

    def count(self, images: Tensor) -> int:
        return images.shape[0]


class FixedCount(Transformer):
    def count(self, images: Tensor) -> int:
        return len(images)


def frozen(backbone: nn.Module) -> FrozenEncoder:
    return FrozenEncoder(backbone, 16, SIZE, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


@pytest.mark.parametrize("to", ["torchscript", "onnx"])
def test_a_transformer_of_torchs_own_layers_is_exported(to: str, tmp_path: Path) -> None:
    assert export(frozen(Transformer()), tmp_path / "encoder", to) < 1e-5


def test_a_network_of_tied_weights_is_exported(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Conv2d(3, 16, SIZE), nn.Flatten(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    network[4].weight = network[2].weight
    assert export(frozen(network), tmp_path / "encoder", "safetensors") == 0.0
    kept = load_file(tmp_path / "encoder")
    assert all(torch.equal(kept[name], tensor) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize("to", ["torchscript", "onnx"])
def test_a_network_that_a_trace_fixes_to_one_number_of_images_is_refused_in_a_sentence(to: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"fails on a batch of 1, .* not from len"):
        export(frozen(FixedCount()), tmp_path / "encoder", to)
    assert not list(tmp_path.iterdir())


class Unknown(nn.Module):
    """A network with an operation that ONNX does not have."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mT.flatten(1)[:, :16]


class Uneven(nn.Module):
    """A network with an operation that ONNX has for other sizes only."""

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(images, 5).flatten(1)[:, :16]


@pytest.mark.parametrize(("network", "said"), [(Unknown, "'aten::mT'"), (Uneven, "adaptive_avg_pool2d")])
def test_a_network_that_onnx_cannot_express_is_refused_without_its_graph(
    network: type[nn.Module], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CheckpointError, match=said) as caught:
        export(frozen(network()), tmp_path / "encoder", "onnx")
    assert "defined in" not in str(caught.value)
    ctypes.CDLL(None).fflush(None)  # what C++ has printed is in its buffer yet
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("to", ["safetensors", "torchscript", "torchvision", "onnx"])
def test_a_file_that_cannot_be_written_whole_is_said_in_a_line_and_an_earlier_one_stays(
    to: str, resnet18: FrozenEncoder, tmp_path: Path
) -> None:
    if to == "onnx":
        pytest.importorskip("onnxruntime")
    target = tmp_path / "encoder"
    target.write_text("an earlier one")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(CheckpointError, match=f"cannot write '{target}': ") as caught:
            export(resnet18, target, to, force=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["an earlier one"]


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    encoder = make("convnet-w8")
    with pytest.raises(CheckpointError, match="file' is a file; choose another place"):
        write_hub_folder(encoder, file)
    with pytest.raises(CheckpointError, match="cannot write"):
        export(encoder, file / "encoder.pt", "torchscript")
    assert file.read_text() == "mine"


def test_unknown_formats_and_missing_packages_are_named(
    encoder: FrozenEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="did you mean 'onnx'"):
        export(encoder, tmp_path / "encoder", "onx")
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ocssl\[onnx\]'"):
        export(encoder, tmp_path / "encoder.onnx", "onnx")


def test_a_hub_folder_loads_back_and_its_card_tells_protocol_budget_and_data(tmp_path: Path) -> None:
    learner = Learner(backbone="convnet-w8", image_size=SIZE, batch=20, passes=2, hidden_dim=8, output_dim=8, lr=0.05)
    learner.partial_fit(np.concatenate([IMAGES] * 4))
    publish(learner, tmp_path / "encoder", sources={"folder:frames": 36})
    encoder = load(tmp_path / "encoder")
    folder = write_hub_folder(encoder, tmp_path / "hub", license="apache-2.0")
    assert {path.name for path in folder.iterdir()} == {"README.md", "config.json", "model.safetensors"}
    assert np.array_equal(load(folder).transform(IMAGES), encoder.transform(IMAGES))
    card = (folder / "README.md").read_text()
    for part in (
        "license: apache-2.0",
        "| strategy | cla-e |",
        "| variant | default |",
        "| image_size | 16 |",
        "| images seen | 30 |",
        f"| cumulative backward passes (CBP) | {learner.budget.spent:,} |",
        "| lr | 0.05 |",
        "folder frames: 36 images",
    ):
        assert part in card
    assert np.array_equal(load(folder / "model.safetensors").transform(IMAGES), encoder.transform(IMAGES))
    assert json.loads((folder / "config.json").read_text())["image_size"] == SIZE
    assert (
        "Photographs of a mill."
        in (write_hub_folder(encoder, tmp_path / "hub", data="Photographs of a mill.") / "README.md").read_text()
    )
    with pytest.raises(CheckpointError, match="holds something else"):
        write_hub_folder(encoder, tmp_path)


def test_a_card_does_not_say_that_an_encoder_learned_which_did_not(tmp_path: Path) -> None:
    learner = Learner(backbone="convnet-w8", image_size=SIZE, batch=20, hidden_dim=8, output_dim=8)
    before = model_card(of_learner(learner))
    learned = model_card(of_learner(learner.partial_fit(np.concatenate([IMAGES] * 4))))
    for text in (
        "An encoder learned from a stream",
        "It learned online and without labels",
        "- self-supervised-learning",
    ):
        assert text in learned
        assert text not in before
    assert "| images seen | 0 |" in before
    assert "It has not learned from a stream" in before


@pytest.mark.parametrize("license", ["apache-2.0", "other: of the lab", "yes"])
def test_a_card_has_any_license_as_text(license: str) -> None:
    _, front, _ = model_card(make("convnet-w8"), license=license).split("---\n", 2)
    assert yaml.safe_load(front)["license"] == license


def test_a_card_names_a_source_whose_name_is_no_valid_text(tmp_path: Path) -> None:
    encoder = make("convnet-w8")
    encoder.facts["sources"] = {os.fsdecode("folder:Tür ".encode() + b"d\xe9p\xf4t"): 9}
    card = (write_hub_folder(encoder, tmp_path / "hub") / "README.md").read_text(encoding="utf-8")
    assert "- folder Tür d\\udce9p\\udcf4t: 9 images" in card


def test_the_command_writes_and_tells_the_difference(
    encoder: FrozenEncoder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(encoder, tmp_path / "encoder.safetensors", "safetensors")
    source, target = str(tmp_path / "encoder.safetensors"), str(tmp_path / "new" / "encoder.pt")
    app(["export", source, "--to", "torchscript", "-o", target], standalone_mode=False)
    assert f"wrote {target}; features differ from the original by at most" in capsys.readouterr().out
    app(["export", source, "--to", "hub", "-o", str(tmp_path / "hub")], standalone_mode=False)
    assert (tmp_path / "hub" / "README.md").exists()
    with pytest.raises(ConfigError, match="unknown format 'torchscipt'; did you mean 'torchscript'"):
        app(["export", source, "--to", "torchscipt"], standalone_mode=False)
    with pytest.raises(ConfigError, match="only --to hub"):
        app(["export", source, "--to", "torchscript", "--data", "x"], standalone_mode=False)


def test_a_file_with_the_ending_of_another_format_is_refused(encoder: FrozenEncoder, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"encoder.PT' has the ending of torchscript; name it .safetensors, or export"
    ):
        export(encoder, tmp_path / "encoder.PT", "safetensors")
    assert not list(tmp_path.iterdir())
    words = ["export", str(tmp_path / "state"), "--to", "onnx", "-o", str(tmp_path / "encoder.pth")]
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"has the ending of torchvision; name it .onnx"):
            app(words, standalone_mode=False)
        (tmp_path / "encoder.pth").write_text("mine")  # --force would not help either


def test_an_onnx_file_may_take_pixels_as_bytes(encoder: FrozenEncoder, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    export(encoder, tmp_path / "a.safetensors", "safetensors")
    path = tmp_path / "encoder.onnx"
    words = ["export", str(tmp_path / "a.safetensors"), "--to", "onnx", "--uint8", "-o", str(path)]
    app(words, standalone_mode=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for count in (1, 2, 9):
        (features,) = session.run(["features"], {"images": IMAGES[:count]})
        np.testing.assert_allclose(features, encoder.transform(IMAGES[:count]), atol=1e-4)
    with pytest.raises(Exception, match="uint8"):
        session.run(None, {"images": PIXELS.numpy()})
    meta = session.get_modelmeta()
    said = json.loads(meta.custom_metadata_map["preprocess"])
    assert (said["layout"], said["dtype"], said["range"], said["size"]) == ("NHWC", "uint8", [0, 255], SIZE)
    assert f"uint8 (n, {SIZE}, {SIZE}, 3)" in said["words"]
    assert "255 in [0, 1]" not in meta.description


@pytest.mark.parametrize("to", ["torchscript", "safetensors", "torchvision", "hub"])
def test_only_onnx_takes_bytes(encoder: FrozenEncoder, tmp_path: Path, to: str) -> None:
    with pytest.raises(ConfigError, match="only --to onnx takes uint8; leave --uint8 out"):
        app(["export", str(tmp_path), "--to", to, "--uint8", "-o", str(tmp_path / "e")], standalone_mode=False)
    if to != "hub":
        with pytest.raises(ConfigError, match="only --to onnx takes uint8"):
            export(encoder, tmp_path / "e", to, uint8=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fit", ["crop", "squash"])
def test_an_onnx_file_says_what_to_feed_it(tmp_path: Path, fit: str) -> None:
    onnx = pytest.importorskip("onnx")
    learner = Learner(backbone="convnet-w8", image_size=8, hidden_dim=8, output_dim=8, fit=fit, device="cpu")
    export(of_learner(learner), path := tmp_path / "encoder.onnx", "onnx")
    model = onnx.load(path)
    said = json.loads({entry.key: entry.value for entry in model.metadata_props}["preprocess"])
    for text in (model.doc_string, model.graph.input[0].doc_string, said["words"]):
        assert "not normalised" in text
        assert ("largest centred square" if fit == "crop" else "the whole image") in text
        assert ("the box of Pillow's resize" in text) == (fit == "crop")  # to cut it out first gives other pixels
    picture = np.random.default_rng(0).integers(0, 256, (30, 20, 3), dtype=np.uint8)
    filters = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
    side, (height, width) = min(picture.shape[:2]), picture.shape[:2]
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side) if said["fit"] == "crop" else None
    image = Image.fromarray(picture).resize((said["size"],) * 2, filters[said["interpolation"]], box=box)
    fed = np.asarray(image, dtype=np.float32).transpose(2, 0, 1)[None] / 255
    session = pytest.importorskip("onnxruntime").InferenceSession(path, providers=["CPUExecutionProvider"])
    found = session.run(None, {"images": fed})[0]
    np.testing.assert_allclose(found, learner.transform([picture]), atol=1e-4)
