"""The network that is deployed: the average, a teacher, or the backbone; the same wherever it is used."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import ocssl
from ocssl.checks import check_strategy, small_learner, small_stream
from ocssl.errors import ConfigError
from ocssl.export import encoder as encoders
from ocssl.export.formats import to_safetensors
from ocssl.runs.folder import RunFolder
from ocssl.runs.presets import resolve
from ocssl.runs.run import start
from ocssl.strategies import ClaE


def tensors(network: torch.nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


@pytest.mark.parametrize("tau", [0.5, 0.9])
def test_the_average_weighs_all_steps_with_its_bias_corrected(tau: float) -> None:
    learner = small_learner("er", average=tau, passes=1)
    history: list[dict[str, Tensor]] = []
    learner.partial_fit(
        small_stream(40), callback=lambda now: history.append(tensors(now.train_state.encoder.backbone))
    )
    weights = torch.tensor([tau ** (len(history) - 1 - step) for step in range(len(history))], dtype=torch.float64)
    for name, tensor in learner.network.state_dict().items():
        if tensor.is_floating_point():
            expected = sum(w * past[name].double() for w, past in zip(weights / weights.sum(), history, strict=True))
            torch.testing.assert_close(tensor.double(), expected, rtol=1e-4, atol=1e-5)
        else:
            assert torch.equal(tensor, history[-1][name])


def test_after_one_step_the_average_is_the_network_itself() -> None:
    learner = small_learner("er", average=0.999, passes=1).partial_fit(small_stream(4))
    for name, tensor in learner.train_state.encoder.backbone.state_dict().items():
        torch.testing.assert_close(learner.network.state_dict()[name], tensor)


def test_the_average_changes_nothing_that_is_learned() -> None:
    plain, averaged = small_learner("cla-e"), small_learner("cla-e", average=0.9)
    for learner in (plain, averaged):
        learner.partial_fit(small_stream(20))
    for name, tensor in plain.train_state.encoder.state_dict().items():
        assert torch.equal(tensor, averaged.train_state.encoder.state_dict()[name])
    images = small_stream(8, seed=5)
    assert not np.allclose(plain.transform(images), averaged.transform(images))


class Teaching(ClaE):
    """CLA-E that deploys its teacher."""

    def deployed(self, encoder):
        return self.target.network.backbone


@pytest.fixture
def teaching(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(ocssl.strategies.registry._entries, "teaching", Teaching)
    return "teaching"


def test_a_strategy_may_deploy_the_average_of_its_teacher(teaching: str) -> None:
    check_strategy(teaching, average=0.9)  # without an average: the documentation prints this strategy and its check


@pytest.mark.parametrize(
    ("strategy", "average"), [("cla-e", 0.0), ("cla-e", 0.9), ("teaching", 0.0), ("teaching", 0.9)]
)
def test_transform_save_export_and_publish_use_one_network(
    strategy: str, average: float, teaching: str, tmp_path: Path
) -> None:
    learner = small_learner(strategy, average=average).partial_fit(small_stream(20))
    images = small_stream(9, seed=3)
    expected = learner.transform(images)
    learner.save(tmp_path / "saved")
    encoders.publish(learner, tmp_path / "published")
    to_safetensors(encoders.of_learner(learner), tmp_path / "encoder.safetensors")
    found = {
        "a saved learner, loaded": ocssl.Learner.load(tmp_path / "saved").transform(images),
        "the encoder of a saved learner": encoders.load(tmp_path / "saved").transform(images),
        "a copy": encoders.of_learner(learner).transform(images),
        "a published encoder": encoders.load(tmp_path / "published").transform(images),
        "an exported file": encoders.load(tmp_path / "encoder.safetensors").transform(images),
    }
    for what, features in found.items():
        np.testing.assert_allclose(features, expected, rtol=1e-5, atol=1e-6, err_msg=what)
    trained = copy.deepcopy(learner.train_state.encoder.backbone).eval()
    with torch.no_grad():
        other = trained(learner.train_state.augment.normalize(images)).numpy()
    assert np.allclose(other, expected, rtol=1e-5, atol=1e-6) == (strategy == "cla-e" and not average)


def bilinear(image: np.ndarray, size: int) -> np.ndarray:
    """An image ``(3, h, h)`` at another size, pixel by pixel."""
    side = image.shape[-1]
    out = np.empty((3, size, size))
    for y in range(size):
        for x in range(size):
            at = [min(max((place + 0.5) * side / size - 0.5, 0), side - 1) for place in (y, x)]
            (top, left), (bottom, right) = [int(a) for a in at], [min(int(a) + 1, side - 1) for a in at]
            down, along = at[0] - top, at[1] - left
            upper = (1 - along) * image[:, top, left] + along * image[:, top, right]
            lower = (1 - along) * image[:, bottom, left] + along * image[:, bottom, right]
            out[:, y, x] = (1 - down) * upper + down * lower
    return out


@pytest.mark.parametrize("crops", [1, 2, 3, 6, 10])
def test_features_of_several_crops_are_the_mean_of_theirs(crops: int) -> None:
    learner, images = small_learner("multiview-r").partial_fit(small_stream(8)), small_stream(5, seed=1)
    network = copy.deepcopy(learner.network).eval()
    plain = learner.train_state.augment.normalize(images)
    corners = [(0, 0), (0, 1), (1, 0), (1, 1)]  # of seven pixels of eight
    cut = [np.stack([bilinear(i[:, y : y + 7, x : x + 7], 8) for i in plain.numpy()]) for y, x in corners]
    listed = [plain, plain.flip(-1), *map(torch.tensor, cut), *(torch.tensor(crop[..., ::-1].copy()) for crop in cut)]
    with torch.no_grad():
        expected = np.mean([network(crop.float()).numpy() for crop in listed[:crops]], axis=0)
    before = learner.train_state.generator.get_state()
    np.testing.assert_allclose(learner.transform(images, crops=crops, batch=2), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(learner.train_state.generator.get_state(), before)  # nothing is drawn


def test_one_crop_is_the_image_itself_to_the_bit() -> None:
    learner, images = small_learner("multiview-r").partial_fit(small_stream(8)), small_stream(5, seed=1)
    network = copy.deepcopy(learner.network).eval()
    with torch.no_grad():
        expected = network(learner.train_state.augment.normalize(images)).numpy()
    assert learner.transform(images, crops=1).tobytes() == learner.transform(images).tobytes() == expected.tobytes()
    for bad in (0, 11, 1.5, 2.0):
        with pytest.raises(ConfigError, match="crops must be a whole number from 1 to 10"):
            learner.transform(images, crops=bad)


def test_a_run_probes_and_writes_the_network_that_it_deploys(tmp_path: Path) -> None:
    settings = {
        "dataset": "shapes", "samples_per_class": 10, "image_size": 8, "experiences": 2, "strategy": "er",
        "backbone": "convnet-w4", "hidden_dim": 8, "output_dim": 8, "stream_batch": 10, "batch": 20, "passes": 1,
        "memory_size": 40, "device": "cpu", "evaluate": "final", "references": False, "average": 0.8,
        "probe": {"max_epochs": 3},
    }  # fmt: skip
    start(resolve(settings), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    learner = ocssl.Learner.load(folder.checkpoints.complete()[-1] / "learner")
    written = load_file(folder.encoder)
    for name, tensor in learner.network.state_dict().items():
        assert torch.equal(written[name], tensor)
    assert any(
        not torch.equal(written[name], tensor)
        for name, tensor in learner.train_state.encoder.backbone.state_dict().items()
    )


def test_a_network_that_is_no_part_of_the_strategy_cannot_be_deployed(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    class Elsewhere(ClaE):
        def deployed(self, encoder):
            return copy.deepcopy(encoder.backbone)

    monkeypatch.setitem(ocssl.strategies.registry._entries, "elsewhere", Elsewhere)
    with pytest.raises(ConfigError, match=r"Elsewhere.deployed\(\) must return a module of the encoder or of the"):
        small_learner("elsewhere").save(tmp_path / "state")
