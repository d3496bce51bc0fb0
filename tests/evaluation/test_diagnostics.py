"""Label-free signs of health, on clouds whose spread and rank are known."""

from __future__ import annotations

import math

import pytest
import torch

from ocssl.errors import InputError
from ocssl.evaluation import alignment, collapsed, effective_rank, feature_std


def cloud(count: int, dim: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def test_a_round_cloud_has_spread_one_and_full_rank():
    assert feature_std(cloud(20_000, 16)) == pytest.approx(1, abs=0.01)
    assert effective_rank(cloud(20_000, 16)) == pytest.approx(16, abs=0.01)


def test_spread_does_not_depend_on_the_length_of_the_features():
    rows = cloud(500, 8)
    assert feature_std(rows * 1000) == pytest.approx(feature_std(rows), rel=1e-5)


@pytest.mark.parametrize("shape", [(200, 30), (30, 200)])
def test_effective_rank_is_the_entropy_of_the_singular_values(shape):
    rows = cloud(*shape) * torch.linspace(0.01, 3, shape[1])
    singular = torch.linalg.svdvals((rows - rows.mean(0)).double())
    share = singular / singular.sum()
    entropy = -(share * share.clamp(min=1e-300).log()).sum().item()
    assert effective_rank(rows) == pytest.approx(math.exp(entropy), rel=1e-4)


def test_points_on_a_line_have_rank_one_wherever_the_line_lies():
    line = cloud(100, 1) * cloud(1, 12, seed=1) + cloud(1, 12, seed=2)
    assert effective_rank(line) == pytest.approx(1, abs=0.01)


def test_one_point_has_neither_spread_nor_rank():
    point = torch.full((50, 6), 0.25)
    assert feature_std(point) == pytest.approx(0, abs=1e-6)
    assert effective_rank(point) == pytest.approx(0)


def test_alignment_is_the_mean_cosine():
    features, targets = torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.tensor([[-5.0, 0.0], [2.0, 0.0]])
    assert alignment(features, targets) == pytest.approx((-1 + math.sqrt(0.5)) / 2, abs=1e-6)


def test_alignment_needs_a_target_for_every_row():
    with pytest.raises(InputError, match=r"shape \(4, 3\), not \(2, 3\)"):
        alignment(cloud(4, 3), cloud(2, 3))


def health(features: torch.Tensor) -> str | None:
    return collapsed(std=feature_std(features), rank=effective_rank(features))


def test_collapse_is_called_by_its_name():
    point = torch.ones(64, 16) + 1e-3 * cloud(64, 16)
    line = cloud(64, 1) * cloud(1, 16, seed=1)
    assert health(cloud(64, 16)) is None
    assert "to a point" in str(health(point))
    assert "to a line" in str(health(line))
    assert "diverged" in str(collapsed(std=math.nan, rank=3.0))
