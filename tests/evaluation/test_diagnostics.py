"""Label-free signs of health, on clouds whose spread and rank are known."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from ocssl.errors import InputError
from ocssl.evaluation import alignment, collapsed, diagnose_features, diagnostics, effective_rank, feature_std

CORES = 3


def cloud(count: int, dim: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def test_a_round_cloud_has_spread_one_and_full_rank():
    assert feature_std(cloud(20_000, 16)) == pytest.approx(1, abs=0.01)
    assert effective_rank(cloud(20_000, 16)) == pytest.approx(16, abs=0.01)


@pytest.mark.parametrize("length", [1e-35, 1e3, 1e30])
def test_spread_and_alignment_do_not_depend_on_the_length_of_the_features(length):
    rows, targets = cloud(500, 8), cloud(500, 8, seed=1)
    assert feature_std(rows * length) == pytest.approx(feature_std(rows), rel=1e-5)
    assert alignment(rows * length, targets) == pytest.approx(alignment(rows, targets), abs=1e-6)


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
    signs = diagnose_features(features)
    assert signs == {"feature_std": feature_std(features), "effective_rank": effective_rank(features)}
    return collapsed(std=signs["feature_std"], rank=signs["effective_rank"])


def test_collapse_is_called_by_its_name():
    point = torch.ones(64, 16) + 1e-3 * cloud(64, 16)
    line = cloud(64, 1) * cloud(1, 16, seed=1)
    assert health(cloud(64, 16)) is None
    assert "to a point" in str(health(point))
    assert "to a line" in str(health(line))
    assert "diverged" in str(collapsed(std=math.nan, rank=3.0))


@pytest.mark.parametrize(("rows", "enough"), [(1, False), (2, False), (7, False), (8, True), (9, True)])
def test_a_batch_too_small_to_tell_is_not_called_collapsed(rows, enough):
    signs = diagnose_features(torch.ones(rows, 4))
    assert ("feature_std" in signs, "effective_rank" in signs) == (enough, enough)
    assert (collapsed(signs.get("feature_std"), signs.get("effective_rank")) is not None) == enough


@pytest.fixture
def cores() -> Iterator[None]:
    """Any number but one, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(CORES)
    yield
    torch.set_num_threads(before)


def test_features_are_diagnosed_on_one_core(cores, monkeypatch):
    seen = []
    monkeypatch.setattr(diagnostics, "effective_rank", lambda features: seen.append(torch.get_num_threads()) or 9.0)
    assert diagnose_features(cloud(16, 4))["effective_rank"] == 9.0
    assert (seen, torch.get_num_threads()) == ([1], CORES)


def test_the_cores_come_back_after_an_error(cores, monkeypatch):
    monkeypatch.setattr(diagnostics, "effective_rank", lambda features: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        diagnose_features(cloud(16, 4))
    assert torch.get_num_threads() == CORES


def test_two_threads_at_once_leave_the_cores_as_they_were(cores, monkeypatch):
    """The second thread must not take the first one's single core for the program's number."""
    together = threading.Barrier(2)

    def waits(features: torch.Tensor) -> float:
        try:  # where both could be in here at once, the one that came first leaves first
            together.wait(timeout=0.2)
        except threading.BrokenBarrierError:
            return 1.0
        return 2.0

    monkeypatch.setattr(diagnostics, "effective_rank", waits)
    with ThreadPoolExecutor(2) as threads:
        ranks = [signs["effective_rank"] for signs in threads.map(diagnose_features, [cloud(16, 4)] * 2)]
    assert ranks == [1.0, 1.0]  # one after the other
    assert torch.get_num_threads() == CORES
