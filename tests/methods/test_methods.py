"""Methods: their loss from the pure functions, their settings, and a distance where they have one."""

from __future__ import annotations

import pytest
import torch

from helpers.steps import step_of
from ocssl.batch import Batch, Step
from ocssl.errors import ConfigError
from ocssl.losses import nt_xent
from ocssl.methods import Dims, SimCLR, SimSiam, registry
from ocssl.nn import Features
from ocssl.options import validate

DIMS = Dims(feature=6, hidden=5, output=7)


def some_features(joint: bool) -> Features:
    drawn = torch.Generator().manual_seed(0)
    return Features(torch.randn(2, 8, 6, generator=drawn), torch.randn(2, 8, 7, generator=drawn), joint)


def some_step(features: Features) -> Step:
    batch = Batch(torch.zeros(8, 3, 4, 4, dtype=torch.uint8), stream=8)
    return step_of(batch, torch.zeros(2, 8, 3, 4, 4), features)


def cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))


@pytest.mark.parametrize("joint", [True, False])
def test_simsiam_predicts_each_view_from_the_other(joint: bool) -> None:
    method, features = SimSiam(DIMS), some_features(joint)
    z1, z2 = features.projected
    p1, p2 = features.through(method.predictor)
    expected = -cosine(p1, z2).mean() / 2 - cosine(p2, z1).mean() / 2
    torch.testing.assert_close(method.loss(some_step(features)), expected)


@pytest.mark.parametrize("temperature", [0.5, 0.1])
def test_simclr_contrasts_the_views_at_its_temperature(temperature: float) -> None:
    method, features = SimCLR(DIMS, SimCLR.Options(temperature=temperature)), some_features(joint=True)
    z1, z2 = features.projected
    torch.testing.assert_close(method.loss(some_step(features)), nt_xent(z1, z2, temperature=temperature))
    expected = (nt_xent(z1, z2, temperature=temperature) + nt_xent(z2, z1, temperature=temperature)) / 2
    torch.testing.assert_close(method.distance(features.projected, features.projected.flip(0)), expected)


def test_settings_have_defaults_and_ranges() -> None:
    assert SimCLR(DIMS).options.temperature == 0.5
    assert set(registry.get("simsiam").Options.model_fields) == {"views"}
    for value in (0, -1.0, "hot"):
        with pytest.raises(ConfigError, match=f"temperature must be a number above 0, not {value!r}"):
            validate(SimCLR.Options, {"temperature": value})
