"""SwAV and DINO against slow versions, and their prototypes and centre after a step."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from helpers.steps import begun, end_of, moved, ordered_pairs
from ocssl.errors import ConfigError
from ocssl.losses import sinkhorn, soft_cross_entropy
from ocssl.methods import SwAV
from ocssl.options import validate

# ---------------------------------------------------------------------- slow versions


def cosines(features: Tensor, prototypes: Tensor) -> list[list[float]]:
    return [[float(f @ p / (f.norm() * p.norm())) for p in prototypes.detach()] for f in features.detach()]


def slow_softmax(values: list[float]) -> list[float]:
    powers = [math.exp(value - max(values)) for value in values]
    return [power / sum(powers) for power in powers]


def slow_sinkhorn(scores: list[list[float]], epsilon: float, iterations: int) -> list[list[float]]:
    """As in the appendix of the paper: a matrix of prototypes by samples that sums to 1."""
    n, k = len(scores), len(scores[0])
    q = [[math.exp(scores[i][j] / epsilon) for i in range(n)] for j in range(k)]
    total = sum(map(sum, q))
    q = [[entry / total for entry in row] for row in q]
    for _ in range(iterations):
        q = [[entry / sum(row) / k for entry in row] for row in q]
        columns = [sum(q[j][i] for j in range(k)) for i in range(n)]
        q = [[q[j][i] / columns[i] / n for i in range(n)] for j in range(k)]
    return [[n * q[j][i] for j in range(k)] for i in range(n)]


def slow_loss(scores: list[list[list[float]]], targets: list[list[list[float]]], temperature: float) -> float:
    terms = []
    for here, there in ordered_pairs(len(scores)):
        for row, target in zip(scores[here], targets[there], strict=True):
            predicted = slow_softmax([score / temperature for score in row])
            terms.append(-sum(q * math.log(p) for q, p in zip(target, predicted, strict=True)))
    return sum(terms) / len(terms)


# ---------------------------------------------------------------------- SwAV


@pytest.mark.parametrize("iterations", [1, 3, 10])
@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_sinkhorn_agrees_with_the_slow_version(epsilon: float, iterations: int) -> None:
    scores = 2 * torch.rand(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 1
    expected = torch.tensor([slow_sinkhorn(view, epsilon, iterations) for view in scores.tolist()], dtype=torch.float64)
    torch.testing.assert_close(sinkhorn(scores, epsilon, iterations), expected)


def test_sinkhorn_uses_all_prototypes_equally_in_the_end() -> None:
    scores = torch.rand(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    shares = sinkhorn(scores, 0.05, iterations=2000)
    torch.testing.assert_close(shares.sum(0), torch.full((3,), 2.0, dtype=torch.float64))
    torch.testing.assert_close(shares.sum(1), torch.ones(6, dtype=torch.float64))


def test_the_least_epsilon_stands_the_largest_differences_in_single_precision() -> None:
    extreme = torch.tensor([[1.0, -1.0, -1.0], [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, -1.0]])
    assert sinkhorn(extreme, validate(SwAV.Options, {"sinkhorn_epsilon": 0.025}).sinkhorn_epsilon).isfinite().all()
    with pytest.raises(ConfigError, match=r"sinkhorn_epsilon must be a number of at least 0.025, not 0.01"):
        validate(SwAV.Options, {"sinkhorn_epsilon": 0.01})


@pytest.mark.parametrize("views", [2, 3, 5])
def test_swav_agrees_with_the_slow_version(views: int) -> None:
    method, _, step = begun("swav", views, prototypes=4, temperature=0.2, sinkhorn_epsilon=0.3)
    scores = [cosines(view, method.prototypes) for view in step.features.projected]
    codes = [slow_sinkhorn(view, 0.3, 3) for view in scores]
    assert method.loss(step).item() == pytest.approx(slow_loss(scores, codes, 0.2), abs=1e-9)


def test_with_one_prototype_there_is_nothing_to_predict() -> None:
    method, _, step = begun("swav", prototypes=1)
    assert method.loss(step).item() == pytest.approx(0, abs=1e-12)


def test_after_a_step_the_prototypes_of_swav_have_length_one() -> None:
    method, encoder, step = begun("swav", prototypes=4)
    with torch.no_grad():
        method.prototypes.mul_(torch.tensor([[1.0], [2.0], [0.1], [5.0]]))
    expected = [(row / row.norm()).tolist() for row in method.prototypes]
    with torch.no_grad():
        method.after_step(end_of(step), encoder)
    torch.testing.assert_close(method.prototypes.data, torch.tensor(expected, dtype=torch.float64))


# ---------------------------------------------------------------------- DINO


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("views", [2, 3, 5])
def test_dino_agrees_with_the_slow_version(views: int, joint: bool) -> None:
    method, _, step = begun("dino", views, joint=joint, prototypes=4, temperature=0.3, target_temperature=0.2)
    moved(method.target)
    with torch.no_grad():
        method.target_prototypes.add_(torch.randn(4, 7))
        method.centre.add_(0.3 * torch.randn(4))
        theirs = method.target(step.views, joint).projected
    scores = [cosines(view, method.prototypes) for view in step.features.projected]
    targets = [
        [slow_softmax([(s - c) / 0.2 for s, c in zip(row, method.centre.tolist(), strict=True)]) for row in rows]
        for rows in (cosines(view, method.target_prototypes) for view in theirs)
    ]
    assert method.loss(step).item() == pytest.approx(slow_loss(scores, targets, 0.3), abs=1e-9)


def test_the_cross_entropy_of_even_predictions_is_the_log_of_the_number_of_prototypes() -> None:
    target = torch.tensor([[0.7, 0.1, 0.1, 0.1, 0.0]])
    assert soft_cross_entropy(torch.full((1, 5), 3.0), target).item() == pytest.approx(math.log(5), abs=1e-6)


def test_after_a_step_centre_and_prototypes_of_the_target_have_moved() -> None:
    method, encoder, step = begun("dino", prototypes=4, target_tau=0.8, centre_tau=0.7)
    moved(method.target)
    with torch.no_grad():
        theirs = method.target(step.views, True).projected.flatten(0, 1)
        method.centre.add_(torch.randn(4))
    centre, mine = method.centre.tolist(), method.target_prototypes.clone()
    rows = cosines(theirs, method.target_prototypes)
    with torch.no_grad():
        method.loss(step)
        method.prototypes.add_(torch.randn(4, 7))
        method.after_step(end_of(step), encoder)
    means = [sum(row[j] for row in rows) / len(rows) for j in range(4)]
    expected = [0.7 * old + 0.3 * new for old, new in zip(centre, means, strict=True)]
    torch.testing.assert_close(method.centre, torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(method.target_prototypes.data, 0.8 * mine.data + 0.2 * method.prototypes.data)
    assert not method.target_prototypes.requires_grad
