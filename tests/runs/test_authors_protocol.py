"""What ``protocol: authors`` implies for a run, against what the paper's public code does."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.command import SHORT
from helpers.results import PUBLISHED
from ocssl import Learner, data
from ocssl.data import authors
from ocssl.data.dataset import DatasetInfo, ResidentDataset
from ocssl.errors import ConfigError
from ocssl.imaging import decode
from ocssl.nn.resnet import ResNet18
from ocssl.results import TABLES, sections_of
from ocssl.results.read import read_results
from ocssl.runs.data import DeviceDataset, Subset, make_schedule
from ocssl.runs.evaluate import evaluate_on
from ocssl.runs.naming import overrides, run_name
from ocssl.runs.presets import AUTHORS, resolve
from ocssl.runs.run import start


def labelled(classes: int, each: int) -> Subset:
    """Black images with labels."""
    labels = torch.arange(classes).repeat_interleave(each)
    images = torch.zeros(len(labels), 3, 1, 1, dtype=torch.uint8)
    source = DeviceDataset(ResidentDataset(images, DatasetInfo("black"), labels), torch.device("cpu"))
    return Subset(source, torch.arange(len(labels)))


def test_the_classes_of_cifar100_arrive_in_the_order_that_torch_draws_from_seed_42() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        drawn = torch.randperm(100).tolist()
    train = labelled(100, 10)
    for given, expected in (({"protocol": "authors"}, drawn), ({"class_order": "authors"}, drawn)):
        schedule = make_schedule(resolve(given), train)
        assert [*map(set, schedule.experiences)] == [set(expected[start : start + 5]) for start in range(0, 100, 5)]
    plain = make_schedule(resolve({}), train)
    assert set(plain.experiences[0]) != set(drawn[:5])


def test_the_classes_of_the_authors_imagenet100_arrive_in_the_order_of_their_draw() -> None:
    schedule = make_schedule(resolve({"dataset": "imagenet100:authors", "protocol": "authors"}), labelled(100, 10))
    assert schedule.experiences[0] == (0, 1, 2, 3, 4)


def test_an_order_that_the_authors_do_not_have_is_refused_or_not_implied() -> None:
    assert resolve({"dataset": "shapes", "protocol": "authors"}).to_dict()["class_order"] == "data"
    with pytest.raises(ConfigError, match="class_order authors is known for cifar100 and imagenet100:authors, not for"):
        resolve({"dataset": "shapes", "class_order": "authors"})


def test_the_protocol_implies_its_settings_and_each_can_be_switched_alone() -> None:
    table = {"strategy": "cla-e", "budget": "low", "protocol": "authors"}
    config = resolve(table)
    settings = config.to_dict()
    implied = {**AUTHORS, "conv1_init": "torch", "joint_views": False, "normalize_first": True, "variant": "authors"}
    assert {name: settings[name] for name in implied if name != "epoch_end"} == {
        name: value for name, value in implied.items() if name != "epoch_end"
    }
    assert overrides(config) == {}
    clean = {"class_order": "data", "sample_order": "data", "fit": "crop", "conv1_init": "kaiming", "joint_views": True}
    for name, value in clean.items():
        assert overrides(resolve(table | {name: value})) == {name: value}
        assert run_name(resolve(table | {name: value})).endswith(f"-authors-{name}{value}-seed0")


def test_iid_training_takes_42_epochs_and_drops_their_remainders() -> None:
    """⌈3 · 138 / 10⌉ epochs of ⌊45,000 / 138⌋ steps; the clean protocol has the exact cost instead."""
    train = labelled(100, 450)
    given = {"stream": "iid", "budget": "high"}
    authors_run = make_schedule(resolve(given | {"protocol": "authors"}), train)
    assert authors_run.cbp == 42 * (45_000 // 138) * 138 * 2 == 3_778_992
    assert len(authors_run) == authors_run.cbp // 2
    epoch = 45_000 // 138 * 138
    first, second = authors_run.indices(0, epoch), authors_run.indices(epoch, 2 * epoch)
    assert len(set(first.tolist())) == len(set(second.tolist())) == epoch
    assert make_schedule(resolve(given), train).cbp == 3_726_000
    with pytest.raises(ConfigError, match="50 images are less than one batch of 138; set epoch_end=carry"):
        make_schedule(resolve(given | {"protocol": "authors"}), labelled(5, 10))


def test_the_first_convolution_starts_as_torch_makes_it() -> None:
    torch.manual_seed(0)
    ours = ResNet18(ResNet18.Options())
    theirs = ResNet18(ResNet18.Options(conv1_init="torch"))
    bound = 1 / math.sqrt(3 * 3 * 3)  # uniform, by fan-in
    assert theirs.conv1.weight.abs().max() <= bound
    assert theirs.conv1.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert ours.conv1.weight.std().item() == pytest.approx(math.sqrt(2 / (64 * 9)), rel=0.05)
    large = ResNet18(ResNet18.Options(conv1_init="torch"), image_size=224)  # which they leave as torchvision has it
    assert large.conv1.weight.std().item() == pytest.approx(math.sqrt(2 / (64 * 49)), rel=0.05)
    assert Learner(variant="authors", device="cpu").config.to_dict()["conv1_init"] == "torch"


def test_large_images_are_squashed() -> None:
    image = np.zeros((10, 20, 3), dtype=np.uint8)
    image[:, :5] = 255  # outside of the largest centred square
    assert decode(image, 10).max() == 0
    squashed = decode(image, 10, "squash")
    assert squashed[:, :, 0].min() == 255
    assert squashed[:, :, 4:].max() == 0


def test_a_squashed_set_has_a_cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCSSL_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "images" / "train" / "a"
    place.mkdir(parents=True)
    pixels = np.zeros((10, 20, 3), dtype=np.uint8)
    pixels[:, :5] = 255
    Image.fromarray(pixels).save(place / "0.png")
    address = f"folder:{tmp_path / 'images'}"
    cropped = data.load(address, image_size=10).images(torch.tensor([0]))
    squashed = data.load(address, image_size=10, fit="squash").images(torch.tensor([0]))
    assert (cropped.max(), squashed.max()) == (0, 255)


def test_features_are_measured_in_full_precision() -> None:
    given = {"backbone": "convnet-w8", "image_size": 16, "hidden_dim": 16, "output_dim": 32, "device": "cpu"}
    images = torch.randint(0, 256, (8, 3, 16, 16), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    exact = Learner(**given, precision="fp32").encode(images)
    half = Learner(**given, precision="bf16")
    assert torch.equal(half.encode(images, full_precision=True), exact)
    assert not torch.equal(half.encode(images), exact)
    assert resolve({"protocol": "authors"}).full_precision
    assert not resolve({}).full_precision


@pytest.mark.parametrize("protocol", ["clean", "authors"])
def test_another_set_is_normalised_as_the_protocol_says(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = resolve(SHORT | {"protocol": protocol, "evaluate": "never"})
    start(config, tmp_path / "run")
    used: list[tuple[float, ...]] = []
    monkeypatch.setitem(authors.NORMALISATION, "cifar10-like", ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))
    monkeypatch.setattr(
        "ocssl.runs.evaluate.load_splits", lambda config, *_: used.append(config.to_dict()["mean"]) or 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        evaluate_on(tmp_path / "run", "cifar10-like")
    assert used == [[0.5, 0.5, 0.5] if protocol == "authors" else config.to_dict()["mean"]]


def test_results_from_before_these_settings_fill_no_table_of_the_authors_protocol() -> None:
    store = read_results(PUBLISHED)
    old = [file for file in store.files if file.result.protocol == "authors" and "conv1_init" not in file.result.config]
    assert all(file.result.overrides for file in old)
    listed = {path for table in TABLES.values() for section in sections_of(store, table) for row in section.rows
              for path in row.ours.paths if section.protocol == "authors" and not row.ours.floor}  # fmt: skip
    assert not listed & {file.path for file in old}
