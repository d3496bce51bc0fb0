"""EMP-SSL and LeJEPA against NumPy, closed forms, and the numbers that LeJEPA draws."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.steps import begun
from ocssl.losses import coding_rate, nt_xent, sigreg


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---------------------------------------------------------------------- EMP-SSL


def slow_coding_rate(z: np.ndarray, epsilon: float) -> float:
    """With the d × d matrix."""
    n, d = z.shape
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    return np.linalg.slogdet(np.eye(d) + d / (n * epsilon) * z.T @ z)[1] / 2


@pytest.mark.parametrize(("n", "d"), [(6, 4), (3, 9), (5, 5), (1, 4)])
@pytest.mark.parametrize("epsilon", [0.2, 3.0])
def test_the_coding_rate_agrees_with_the_slow_version(n: int, d: int, epsilon: float) -> None:
    z = drawn(3, n, d)
    expected = np.mean([slow_coding_rate(view, epsilon) for view in z.numpy()])
    assert coding_rate(z, epsilon).item() == pytest.approx(expected, abs=1e-9)


def test_the_coding_rate_of_equal_and_of_orthogonal_features_has_its_closed_form() -> None:
    n, d = 4, 8
    assert coding_rate(torch.ones(n, d)).item() == pytest.approx(math.log(1 + d / 0.2) / 2, abs=1e-4)
    spread = n / 2 * math.log(1 + d / (n * 0.2))
    assert coding_rate(3 * torch.eye(n, d)).item() == pytest.approx(spread, abs=1e-5)


def test_the_coding_rate_has_the_gradient_of_the_log_determinant() -> None:
    ours, theirs = (drawn(2, 5, 7).requires_grad_() for _ in range(2))
    coding_rate(ours).backward()
    unit = torch.nn.functional.normalize(theirs, dim=-1)
    (torch.logdet(torch.eye(7, dtype=torch.float64) + 7 / (5 * 0.2) * unit.mT @ unit) / 2).mean().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_the_coding_rate_is_exact_at_the_papers_sizes_in_single_precision() -> None:
    nearly_equal = (torch.ones(2, 64, 1024, dtype=torch.float64) + 0.001 * drawn(2, 64, 1024)).float().requires_grad_()
    rate = coding_rate(nearly_equal)
    rate.backward()
    expected = np.mean([slow_coding_rate(view, 0.2) for view in nearly_equal.detach().double().numpy()])
    assert rate.item() == pytest.approx(expected, rel=1e-3)
    assert nearly_equal.grad.isfinite().all()


@pytest.mark.parametrize("epsilon", [1e-4, 1e-6, 1e-8])
def test_the_coding_rate_is_accurate_for_a_small_epsilon(epsilon: float) -> None:
    spread, alike = drawn(2, 30, 16), torch.ones(2, 30, 16, dtype=torch.float64) + 0.01 * drawn(2, 30, 16)
    for rows in (spread, alike):
        single, double = rows.float().requires_grad_(), rows.float().double().requires_grad_()
        rate = coding_rate(single, epsilon)
        rate.backward()
        coding_rate(double, epsilon).backward()
        expected = np.mean([slow_coding_rate(view, epsilon) for view in double.detach().numpy()])
        assert (rate.dtype, rate.item()) == (torch.float32, pytest.approx(expected, rel=1e-6))
        assert (single.grad - double.grad).norm() < 1e-5 * double.grad.norm()


@pytest.mark.parametrize("views", [2, 3, 6])
def test_emp_agrees_with_the_slow_version(views: int) -> None:
    method, _, step = begun("emp", views, rate_weight=0.1, rate_epsilon=0.5)
    z = step.features.projected.detach().numpy()
    z = z / np.linalg.norm(z, axis=-1, keepdims=True)
    agreement = []
    for i in range(5):
        mean = sum(z[v, i] for v in range(views)) / views
        agreement += [z[v, i] @ mean / np.linalg.norm(mean) for v in range(views)]
    expected = -np.mean(agreement) - 0.1 * np.mean([slow_coding_rate(view, 0.5) for view in z])
    assert method.loss(step).item() == pytest.approx(expected, abs=1e-9)


def emp_loss(views: torch.Tensor, **options: object) -> torch.Tensor:
    """The loss of these projected features, ``(views, n, d)``."""
    method, _, step = begun("emp", len(views), **{"rate_weight": 0.02, **options})
    return method.loss(replace(step, features=replace(step.features, projected=views)))


def orthogonal_copies(views: torch.Tensor, copies: int, d: int) -> torch.Tensor:
    """As many batches in one, each in a subspace of its own of d dimensions."""
    return torch.cat([torch.nn.functional.pad(views, (i * 4, d - 4 - i * 4)) for i in range(copies)], dim=1)


def test_the_weight_of_the_rate_by_n_has_its_closed_form() -> None:
    n, d = 4, 8
    spread = torch.eye(n, d, dtype=torch.float64).repeat(2, 1, 1)  # both views agree
    rate = n / 2 * math.log(1 + d / (n * 0.2))
    assert emp_loss(spread).item() == pytest.approx(-1 - 0.02 * rate, abs=1e-12)
    assert emp_loss(spread, rate_batch=10).item() == pytest.approx(-1 - 0.02 * 10 / n * rate, abs=1e-12)
    assert emp_loss(spread, rate_batch=n).item() == emp_loss(spread).item()


def gradients(views: torch.Tensor, **options: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Those of the agreement and of the weighted rate, for the first three samples."""
    parts = []
    for weight in (0.0, 0.02):
        rows = views.clone().requires_grad_()
        emp_loss(rows, rate_epsilon=1e-9, **options | {"rate_weight": weight}).backward()
        parts.append(rows.grad[:, :3, :4])
    return parts[0], parts[1] - parts[0]


@pytest.mark.parametrize("copies", [2, 5])
def test_with_the_rule_agreement_and_rate_keep_their_proportion_for_any_n(copies: int) -> None:
    few = drawn(2, 3, 4)
    one, many = orthogonal_copies(few, 1, 20), orthogonal_copies(few, copies, 20)
    agreement, rate = gradients(one, rate_batch=3)
    for part, other in zip((agreement, rate), gradients(many, rate_batch=3), strict=True):
        torch.testing.assert_close(other, part / copies)
    _, unruled = gradients(many)
    torch.testing.assert_close(unruled, rate)  # and not a share of it


def test_emp_and_simclr_are_added_with_equal_attraction() -> None:
    method, _, step = begun("emp-simclr", 3, temperature=0.1, contrast_weight=2.0, rate_batch=7)
    views = step.features.projected
    expected = begun("emp", 3, rate_batch=7)[0].loss(step) + 2 * 0.1 * nt_xent(*views, temperature=0.1)
    torch.testing.assert_close(method.loss(step), expected)


# ---------------------------------------------------------------------- LeJEPA


def slow_sigreg(z: np.ndarray, directions: np.ndarray, reach: float, knots: int) -> float:
    """With complex numbers, over both halves of the integral, direction by direction."""
    t = np.linspace(-reach, reach, knots)
    normal = np.exp(-(t**2) / 2)
    values = []
    for direction in directions.T:
        along = z @ (direction / np.linalg.norm(direction))
        empirical = np.array([np.exp(1j * s * along).mean() for s in t])
        values.append(len(z) * np.trapezoid(np.abs(empirical - normal) ** 2 * normal, t))
    return float(np.mean(values))


@pytest.mark.parametrize(("n", "d", "m"), [(6, 4, 3), (1, 3, 5), (20, 2, 1)])
@pytest.mark.parametrize(("reach", "knots"), [(5.0, 17), (3.0, 33)])
def test_sigreg_agrees_with_the_slow_version(n: int, d: int, m: int, reach: float, knots: int) -> None:
    z, directions = drawn(3, n, d), drawn(d, m, seed=1)
    expected = np.mean([slow_sigreg(view, directions.numpy(), reach, knots) for view in z.numpy()])
    assert sigreg(z, directions, reach, knots).item() == pytest.approx(expected, abs=1e-9)


def test_sigreg_of_normal_features_is_its_expectation() -> None:
    """E n ∫ |φₙ − φ|² φ = ∫ (1 − exp(−t²)) exp(−t²/2) dt = √(2π) (1 − 1/√3), whatever n."""
    value = sigreg(drawn(400, 50, 8), drawn(8, 16, seed=1)).item()
    assert value == pytest.approx(math.sqrt(2 * math.pi) * (1 - 1 / math.sqrt(3)), rel=0.03)


@pytest.mark.parametrize("other", [0.3 * drawn(1, 200, 8), drawn(1, 200, 8) + 1, drawn(1, 200, 1).repeat(1, 1, 8)])
def test_sigreg_is_larger_for_other_distributions(other: torch.Tensor) -> None:
    directions = drawn(8, 64, seed=1)
    assert sigreg(other, directions) > 3 * sigreg(drawn(1, 200, 8), directions)


@pytest.mark.parametrize("views", [2, 5])
def test_lejepa_agrees_with_the_slow_version(views: int) -> None:
    method, _, step = begun("lejepa", views, directions=6, sigreg_weight=0.2)
    z = step.features.projected.detach().numpy()
    directions = torch.randn(7, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64).numpy()
    apart = ((z - z.mean(0)) ** 2).mean()
    expected = 0.8 * apart + 0.2 * np.mean([slow_sigreg(view, directions, 5.0, 17) for view in z])
    assert method.loss(step).item() == pytest.approx(expected, abs=1e-9)


def test_lejepa_draws_from_the_generator_of_the_step_alone() -> None:
    method, _, step = begun("lejepa", 2, directions=3)
    elsewhere = torch.get_rng_state()
    first, second = method.loss(step), method.loss(step)
    assert not torch.equal(first, second)
    step.generator.manual_seed(0)
    assert torch.equal(method.loss(step), first)
    assert torch.equal(torch.get_rng_state(), elsewhere)
