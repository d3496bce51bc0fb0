"""The published encoder: whole at every moment, equal to the learner's, and a module like any other."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ocssl import Learner
from ocssl.errors import CheckpointError, ConfigError
from ocssl.export import load, of_learner, publish

TINY = {"image_size": 8, "stream_batch": 4, "batch": 8, "passes": 1, "memory_size": 8, "hidden_dim": 8, "output_dim": 8}
IMAGES = np.random.default_rng(0).integers(0, 256, (11, 8, 8, 3), dtype=np.uint8)


@pytest.fixture
def learner() -> Learner:
    return Learner(backbone="convnet-w8", device="cpu", **TINY).partial_fit(IMAGES)


def test_a_published_encoder_gives_the_learners_features_and_tells_its_story(learner: Learner, tmp_path: Path) -> None:
    assert publish(learner, tmp_path / "encoder", sources={"folder:frames": 8}) == 1
    encoder = load(tmp_path / "encoder")
    assert np.array_equal(encoder.transform(IMAGES), learner.transform(IMAGES))
    facts = encoder.facts
    assert (facts["seen"], facts["cbp"], facts["strategy"]) == (8, learner.budget.spent, "cla-e")
    assert (facts["memory_size"], facts["batch"], facts["image_size"]) == (8, 8, 8)
    assert facts["sources"] == {"folder:frames": 8}
    assert encoder.feature_dim == 32
    assert publish(learner, tmp_path / "encoder") == 2
    assert load(tmp_path / "encoder").version == 2


def test_an_encoder_is_found_wherever_a_learner_was_kept(learner: Learner, tmp_path: Path) -> None:
    expected = learner.transform(IMAGES)
    learner.save(tmp_path / "saved")
    learner.save(tmp_path / "run" / "checkpoints" / "000002" / "learner")
    publish(learner, tmp_path / "state" / "encoder")
    for place in ("saved", "run", "state"):
        assert np.array_equal(load(tmp_path / place).transform(IMAGES), expected)
    with pytest.raises(CheckpointError, match=r"there is no encoder in .* nor a run's checkpoint"):
        load(tmp_path)
    save_file(learner.network.state_dict(), weights := tmp_path / "run" / "encoder.safetensors")
    with pytest.raises(CheckpointError, match="what network it is of; give the folder of its run"):
        load(weights)


def test_a_copy_of_the_learners_encoder_leaves_the_learner_alone(learner: Learner) -> None:
    expected = learner.transform(IMAGES)
    encoder = of_learner(learner)
    assert learner.network.training
    with torch.no_grad():
        next(encoder.parameters()).zero_()
    assert np.array_equal(learner.transform(IMAGES), expected)


def test_a_copy_of_an_encoder_with_double_precision_takes_images_like_any_other() -> None:
    learner = Learner(backbone="convnet-w8", device="cpu", precision="fp64", **TINY).partial_fit(IMAGES)
    encoder = of_learner(learner)
    np.testing.assert_allclose(encoder.transform(IMAGES), learner.transform(IMAGES), rtol=1e-4, atol=1e-5)
    assert encoder(torch.rand(2, 3, 8, 8)).dtype == torch.float32


@pytest.mark.parametrize(("kind", "tolerance"), [("half", 0.01), ("bfloat16", 0.05), ("double", 1e-5)])
def test_an_encoder_transforms_in_the_precision_that_it_was_given(
    learner: Learner, kind: str, tolerance: float
) -> None:
    expected = learner.transform(IMAGES)
    found = getattr(of_learner(learner), kind)().transform(IMAGES)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_features_of_no_images_at_once_are_refused(learner: Learner) -> None:
    for batch in (0, 2.5, "many"):
        with pytest.raises(ConfigError, match=f"batch must be a whole number of at least 1, not {batch!r}"):
            of_learner(learner).transform(IMAGES, batch=batch)  # type: ignore[arg-type]


def test_an_encoder_can_be_fine_tuned_as_a_plain_module(learner: Learner) -> None:
    encoder = of_learner(learner)
    model = nn.Sequential(encoder, nn.Linear(encoder.feature_dim, 2)).train()
    before = encoder.transform(IMAGES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pixels = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255
    nn.functional.cross_entropy(model(pixels), torch.arange(11) % 2).backward()
    optimizer.step()
    assert model.training
    assert not np.array_equal(encoder.transform(IMAGES), before)
    assert model.training  # using it in between does not end training


def test_an_encoder_on_a_module_of_ones_own_asks_for_it(tmp_path: Path) -> None:
    def own() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 5))

    learner = Learner(backbone=own(), device="cpu", **TINY)
    publish(learner, tmp_path / "encoder")
    with pytest.raises(CheckpointError, match="pass it as backbone="):
        load(tmp_path / "encoder")
    assert np.array_equal(load(tmp_path / "encoder", backbone=own()).transform(IMAGES), learner.transform(IMAGES))
    with pytest.raises(CheckpointError, match="does not fit the backbone"):
        load(tmp_path / "encoder", backbone=nn.Sequential(nn.Flatten(), nn.Linear(192, 6)))


def test_an_encoder_of_an_earlier_version_is_loaded(learner: Learner, tmp_path: Path) -> None:
    """Its index named some settings, held a few more in a group, and wrote the width into the backbone's name."""
    publish(learner, tmp_path / "encoder")
    file = tmp_path / "encoder" / "encoder.json"
    content = json.loads(file.read_text())
    named = ("backbone", "image_size", "stem", "strategy", "method", "mean", "std", "seen", "cbp", "ocssl", "version")
    grouped = ("stream_batch", "batch", "passes", "memory", "memory_size", "lr", "omega", "tau", "seed")
    facts = content["facts"]
    content["facts"] = {name: facts.get(name, "auto") for name in named} | {
        "backbone": "convnet-w8",
        "variant": "origin",
        "settings": {name: facts[name] for name in grouped},
        "sources": {},
    }
    del content["checksum"]
    file.write_text(json.dumps(content))
    encoder = load(tmp_path / "encoder")
    assert np.array_equal(encoder.transform(IMAGES), learner.transform(IMAGES))
    assert (encoder.version, encoder.facts["variant"], encoder.facts["batch"]) == (1, "origin", 8)


@pytest.mark.parametrize(("place", "index", "lost"), [("encoder", "encoder", "mean"), ("saved", "learner", "budget")])
def test_an_encoder_of_another_version_is_refused_with_what_it_lacks(
    learner: Learner, tmp_path: Path, place: str, index: str, lost: str
) -> None:
    publish(learner, tmp_path / "encoder")
    learner.save(tmp_path / "saved")
    file = tmp_path / place / f"{index}.json"
    content = json.loads(file.read_text())
    del content["facts"][lost]
    del content["checksum"]
    file.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=f"{place}' does not fit this version of ocssl: '{lost}'"):
        load(tmp_path / place)


def test_a_damaged_encoder_is_refused_at_once(learner: Learner, tmp_path: Path) -> None:
    publish(learner, tmp_path / "encoder")
    (weights,) = (tmp_path / "encoder").glob("*.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CheckpointError, match="checksum"):
        load(tmp_path / "encoder")
    (tmp_path / "encoder" / "encoder.json").write_text("{}")
    with pytest.raises(CheckpointError, match="not the index of a published encoder"):
        publish(learner, tmp_path / "encoder")


WRITER = """
import sys, time, torch
from ocssl import Learner
from ocssl.export import publish
learner = Learner(backbone="convnet-w8", device="cpu", image_size=8, hidden_dim=8, output_dim=8)
version = 0
while True:
    version += 1
    with torch.no_grad():
        for tensor in learner.network.state_dict().values():
            tensor.fill_(version)
    learner.seen = version
    assert publish(learner, sys.argv[1]) == version
    time.sleep(0.01)
"""


LEAST_VERSIONS = 10


def read_while_another_writes(folder: Path, loads: int) -> set[int]:
    """The versions that a reader saw, after checking that each was whole and none older than the one before."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)])
    try:
        while not (folder / "encoder.json").exists():
            assert writer.poll() is None
            time.sleep(0.05)
        last, versions, loaded, end = 0, set(), 0, time.monotonic() + 60
        while loaded < loads or (len(versions) <= LEAST_VERSIONS and time.monotonic() < end):  # a disk may be slow
            loaded += 1
            encoder = load(folder)
            assert encoder.version >= last
            assert encoder.facts["seen"] == encoder.version
            values = {float(tensor.double().mean()) for tensor in encoder.backbone.state_dict().values()}
            assert values == {float(encoder.version)}
            last = encoder.version
            versions.add(last)
            assert writer.poll() is None
    finally:
        writer.kill()
        writer.wait()
    return versions


@pytest.mark.parametrize("loads", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_loads_while_another_process_writes_are_all_whole_and_never_go_back(tmp_path: Path, loads: int) -> None:
    versions = read_while_another_writes(tmp_path / "encoder", loads)
    assert len(versions) > LEAST_VERSIONS
    assert json.loads((tmp_path / "encoder" / "encoder.json").read_text())["facts"]["version"] >= max(versions)
    publish(Learner(backbone="convnet-w8", device="cpu", **TINY), tmp_path / "encoder")
    left = {path.suffix for path in (tmp_path / "encoder").iterdir()}
    assert left == {".json", ".safetensors"}, "the next writer removes what the killed one left"
