"""Barlow Twins and VICReg against NumPy, their closed forms and their distances."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.steps import begun
from ocssl.losses import barlow_twins, vicreg


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    own, shared = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    return own + 2 * shared[:1] + torch.arange(shape[-1])  # views of a sample resemble each other


# ---------------------------------------------------------------------- slow versions


def slow_barlow(one: np.ndarray, other: np.ndarray, redundancy: float) -> float:
    n, d = one.shape
    first, second = ((z - z.mean(0)) / np.sqrt(z.var(0) + 1e-5) for z in (one, other))
    loss = 0.0
    for k in range(d):
        for m in range(d):
            correlation = sum(first[i, k] * second[i, m] for i in range(n)) / n
            loss += (1 - correlation) ** 2 if k == m else redundancy * correlation**2
    return loss


def slow_vicreg(one: np.ndarray, other: np.ndarray, weights: tuple[float, float, float]) -> float:
    d = one.shape[1]
    invariance = ((one - other) ** 2).mean()
    variance, covariance = 0.0, 0.0
    for z in (one, other):
        variance += np.maximum(0, 1 - np.sqrt(z.var(0, ddof=1) + 1e-4)).mean() / 2
        matrix = np.cov(z.T)
        covariance += sum(matrix[k, m] ** 2 for k, m in itertools.permutations(range(d), 2)) / d
    return weights[0] * invariance + weights[1] * variance + weights[2] * covariance


# ---------------------------------------------------------------------- Barlow Twins


@pytest.mark.parametrize(("views", "n", "d"), [(2, 6, 4), (2, 3, 9), (4, 5, 5), (3, 2, 3)])
@pytest.mark.parametrize("redundancy", [0.0051, 1.0])
def test_barlow_twins_agrees_with_the_slow_version(views: int, n: int, d: int, redundancy: float) -> None:
    z = drawn(views, n, d)
    pairs = [slow_barlow(*pair, redundancy) for pair in itertools.combinations(z.numpy(), 2)]
    assert barlow_twins(z, redundancy).item() == pytest.approx(np.mean(pairs), rel=1e-9)


def test_barlow_twins_is_zero_for_equal_views_of_independent_features() -> None:
    independent = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    assert barlow_twins(torch.stack([independent, 5 * independent + 3])).item() == pytest.approx(0, abs=1e-9)


def test_barlow_twins_counts_every_feature_where_one_view_is_the_opposite() -> None:
    column = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    opposite = torch.stack([column, -column]).repeat(1, 1, 3)  # every correlation is −1
    assert barlow_twins(opposite, 0.5).item() == pytest.approx(3 * 4 + 0.5 * 6, rel=1e-4)


@pytest.mark.parametrize("joint", [True, False])
def test_the_method_has_the_loss_at_its_weight(joint: bool) -> None:
    method, _, step = begun("barlow", 3, joint=joint, redundancy=0.3)
    assert torch.equal(method.loss(step), barlow_twins(step.features.projected, 0.3))
    predicted, target = drawn(3, 5, 7, seed=1), drawn(3, 5, 7, seed=2)
    pairs = [*zip(predicted.numpy(), target.numpy(), strict=True)]
    assert method.distance(predicted, target).item() == pytest.approx(np.mean([slow_barlow(*p, 0.3) for p in pairs]))
    distilled = 0.1 * np.mean([slow_barlow(*pair, 0.005) for pair in pairs])
    assert method.distillation(predicted, target).item() == pytest.approx(distilled)


# ---------------------------------------------------------------------- VICReg


@pytest.mark.parametrize(("views", "n", "d"), [(2, 6, 4), (2, 3, 9), (4, 5, 5), (3, 2, 3)])
@pytest.mark.parametrize("weights", [(25.0, 25.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 3.0)])
def test_vicreg_agrees_with_the_slow_version(views: int, n: int, d: int, weights: tuple[float, float, float]) -> None:
    z = drawn(views, n, d) / 3
    pairs = [slow_vicreg(*pair, weights) for pair in itertools.combinations(z.numpy(), 2)]
    assert vicreg(z, *weights).item() == pytest.approx(np.mean(pairs), rel=1e-9)


def test_the_variance_term_alone_remains_where_all_features_are_equal() -> None:
    same = torch.full((2, 6, 4), 3.0, dtype=torch.float64)
    assert vicreg(same).item() == pytest.approx(25 * (1 - 0.01), abs=1e-9)


def test_vicreg_has_its_weights_and_distances() -> None:
    method, _, step = begun("vicreg", 3, invariance=2.0, variance=3.0, covariance=4.0)
    assert torch.equal(method.loss(step), vicreg(step.features.projected, 2.0, 3.0, 4.0))
    predicted, target = drawn(3, 5, 7, seed=1), drawn(3, 5, 7, seed=2)
    pairs = zip(predicted.numpy(), target.numpy(), strict=True)
    expected = np.mean([slow_vicreg(*pair, (2.0, 3.0, 4.0)) for pair in pairs])
    assert method.distance(predicted, target).item() == pytest.approx(expected)
    squared = 25 * (predicted - target).square().mean().item()
    assert method.distillation(predicted, target).item() == pytest.approx(squared)


@pytest.mark.parametrize("loss", [barlow_twins, vicreg])
def test_a_batch_of_one_sample_has_a_finite_loss_and_gradient(loss) -> None:
    alone = drawn(2, 1, 4).requires_grad_()
    value = loss(alone)
    value.backward()
    assert value.isfinite()
    assert alone.grad.isfinite().all()
