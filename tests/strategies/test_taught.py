"""A network taught by one that learned before: what it is aligned to, what it keeps, and what it says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ocssl import Learner
from ocssl.checks import check_strategy, small_learner, small_stream
from ocssl.errors import CheckpointError, ConfigError
from ocssl.export import load, publish

MEAN, STD = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A published encoder that learned from some images."""
    place = tmp_path_factory.mktemp("teacher") / "encoder"
    publish(small_learner("er", fit="squash", mean=MEAN).partial_fit(small_stream(40)), place)
    return str(place)


def taught(teacher: str, **settings: Any) -> Learner:
    return small_learner("taught", **{"taught_by": teacher, "backbone": "convnet-w6", "image_size": None, **settings})


def its_features(learner: Learner, images: torch.Tensor) -> np.ndarray:
    """What the teacher inside a learner gives for images as the learner normalises them."""
    network = learner.train_state.strategy.teacher.network
    with torch.no_grad():
        return network(learner.train_state.augment.normalize(images)[None], True).backbone[0].numpy()


def test_the_contracts_hold_with_a_teacher_of_another_network(teacher: str) -> None:
    check_strategy("taught", taught_by=teacher, backbone="resnet18-w4")


@pytest.mark.parametrize("settings", [{}, {"mean": (0.5, 0.5, 0.5), "std": (0.3, 0.2, 0.1)}])
def test_the_teacher_sees_images_as_it_did_when_it_learned(teacher: str, settings: dict[str, Any]) -> None:
    learner, images = taught(teacher, **settings).partial_fit(small_stream(40)), small_stream(6, seed=5)
    np.testing.assert_allclose(its_features(learner, images), load(teacher).transform(images), atol=1e-5)


def test_images_of_another_size_are_resized_for_the_teacher(teacher: str) -> None:
    learner = taught(teacher, image_size=16)
    images = small_stream(6).repeat_interleave(2, 2).repeat_interleave(2, 3)
    assert learner.partial_fit(images).seen == 4
    found = its_features(learner, torch.full((1, 3, 16, 16), 90, dtype=torch.uint8))
    np.testing.assert_allclose(found, load(teacher).transform(np.full((1, 8, 8, 3), 90, np.uint8)), atol=1e-5)


def test_what_the_teacher_expects_is_taken_unless_it_is_given(teacher: str) -> None:
    config = Learner(taught_by=teacher, backbone="convnet-w6", device="cpu").config
    assert (config.strategy, config.method, config.optimizer) == ("taught", "emp", "lars")
    assert (config.image_size, config.mean, config.fit) == (8, MEAN, "squash")
    config = Learner(taught_by=teacher, backbone="convnet-w6", mean=STD, method="simclr", device="cpu").config
    assert (config.strategy, config.mean, config.method) == ("taught", STD, "simclr")


def test_features_come_nearer_to_the_teachers(teacher: str) -> None:
    learner = taught(teacher, passes=1)
    begun = learner.partial_fit(small_stream(4)).losses["alignment"]
    for _ in range(15):
        learner.partial_fit(small_stream(20))
    assert learner.losses["alignment"] < begun - 0.2
    assert "alignment" not in taught(teacher, omega=0.0).partial_fit(small_stream(4)).losses


def test_a_saved_learner_needs_its_teacher_no_more(teacher: str, tmp_path: Path) -> None:
    place = tmp_path / "encoder"
    shutil.copytree(teacher, place)
    whole = taught(str(place)).partial_fit(small_stream(40))
    half = taught(str(place)).partial_fit(small_stream(40)[:22])
    half.save(tmp_path / "saved")
    shutil.rmtree(place)
    resumed = Learner.load(tmp_path / "saved").partial_fit(small_stream(40)[22:])
    for name, tensor in whole._tensors().items():
        assert torch.equal(tensor, resumed._tensors()[name]), name
    publish(resumed, tmp_path / "published")
    assert load(tmp_path / "published").facts["taught_by"] == "encoder"  # without its folders


def test_wrong_teachers_are_refused_in_a_sentence(teacher: str, tmp_path: Path) -> None:
    torch.save({"w": torch.ones(1)}, tmp_path / "w.pth")
    for given, error, why in (
        ({"taught_by": str(tmp_path / "gone")}, ConfigError, "there are no weights at"),
        ({"taught_by": str(tmp_path / "w.pth")}, ConfigError, "does not say its backbone; a teacher is an encoder"),
        ({"taught_by": teacher, "strategy": "er"}, ConfigError, "'er' does not read taught_by"),
        ({"taught_by": str(tmp_path)}, CheckpointError, "there is no encoder in"),
        ({"teacher_network": "{}", "strategy": "taught"}, ConfigError, "follows from taught_by; give that instead"),
    ):
        with pytest.raises(error, match=why):
            Learner(**{"backbone": "convnet-w6", "device": "cpu", **given})


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"backbone": "os:getcwd"}', '{"backbone": "convnet", "std": [0, 1, 1]}']
)
def test_an_edited_teacher_is_refused(teacher: str, text: str) -> None:
    learner = taught(teacher)
    settings = {**learner.config.to_dict(), "teacher_network": text}
    with pytest.raises(ConfigError, match="teacher_network is not what taught_by gives; leave it out"):
        Learner._restored(settings, learner._facts(), learner._tensors())


def test_the_network_of_the_teacher_is_part_of_the_configuration(teacher: str) -> None:
    known = json.loads(taught(teacher).config.to_dict()["teacher_network"])
    assert known == {"backbone": "convnet", "image_size": 8, "mean": [*MEAN], "std": known["std"], "width": 4}
