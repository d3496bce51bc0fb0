"""MultiView-R: what it aligns to, with the step of CLA-R or of CLA-E."""

from __future__ import annotations

import pytest
import torch

from ocssl.checks import check_strategy, small_learner, small_stream
from ocssl.errors import ConfigError
from ocssl.runs.presets import resolve
from ocssl.strategies import MultiViewR

SAME = {
    "method": "emp", "views": 3, "rate_weight": 0.01, "optimizer": "lars", "memory": "reservoir", "omega": 0.4,
    "joint_views": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("align_to", "other", "options"), [("stored", "cla-r", {}), ("average", "cla-e", {"tau": 0.9})]
)
def test_its_steps_are_those_of_cla_to_the_bit(align_to: str, other: str, options: dict[str, float]) -> None:
    stream = small_stream(50)
    ours = small_learner("multiview-r", align_to=align_to, average=0.9, **SAME).partial_fit(stream)
    cla = small_learner(other, average=0.9, **SAME, **options).partial_fit(stream)
    assert ours.losses == cla.losses
    assert "alignment" in ours.losses
    for name, tensor in cla.train_state.encoder.state_dict().items():
        assert torch.equal(ours.train_state.encoder.state_dict()[name], tensor), name
    assert ours.budget == cla.budget
    assert ("features" in ours.train_state.memory.columns) == (align_to == "stored")


@pytest.mark.parametrize("settings", [{}, {"align_to": "average"}, {"memory": "minred"}])
def test_it_keeps_the_contract(settings: dict[str, object]) -> None:
    check_strategy("multiview-r", views=3, **settings)


def test_an_average_to_align_to_is_needed() -> None:
    with pytest.raises(ConfigError, match="set average above 0"):
        small_learner("multiview-r", align_to="average", average=0.0)
    with pytest.raises(ConfigError, match="average_power needs an average"):
        small_learner("multiview-r", average_power=4.0, average=0.0)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, (0.9998, 19.0)),
        ({"average": 0.999}, (0.999, 0.0)),
        ({"average": 0.0}, (0.0, 0.0)),
        ({"average": 0.999, "average_power": 4.0}, (0.999, 4.0)),
    ],
)
def test_its_power_is_that_of_its_own_average(given: dict[str, float], found: tuple[float, float]) -> None:
    config = small_learner("multiview-r", **given).config
    assert (config.average, config.average_power) == found


def test_the_rate_has_less_weight_the_more_often_an_image_is_seen() -> None:
    weights = [resolve({"strategy": "multiview-r", "budget": budget}).learner.rate_weight for budget in ("low", "high")]
    low, high = weights
    assert low > MultiViewR.defaults["rate_weight"] > high


def test_eight_views_cost_at_most_what_two_of_the_paper_do() -> None:
    assert 8 * MultiViewR.default_batch(10) <= 2 * 138
