"""Losses against versions that look at one pair at a time in double precision, and against closed forms."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from ocssl.losses import (
    barlow_twins,
    coding_rate,
    cross_contrast,
    info_nce,
    mean_agreement,
    negative_cosine,
    nt_xent,
    relation_distillation,
    sigreg,
    soft_cross_entropy,
    supervised_contrastive,
    vicreg,
)

repeatable = settings(deadline=None, derandomize=True)
sizes = st.integers(2, 7)
dims = st.integers(2, 6)
seeds = st.integers(0, 10_000)
temperatures = st.sampled_from([0.07, 0.1, 0.5, 1.0])


def rows(*shape: int, seed: int) -> torch.Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def unit(*shape: int, seed: int) -> torch.Tensor:
    return F.normalize(rows(*shape, seed=seed), dim=-1)


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def cosine(a, b):
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def mean(values):
    values = list(values)
    return sum(values) / len(values)


# ---------------------------------------------------------------------------------------------------- slow versions


def slow_nt_xent(first, second, temperature):
    samples = [*first, *second]
    losses = []
    for i, anchor in enumerate(samples):
        partner = (i + len(first)) % len(samples)
        others = [math.exp(cosine(anchor, x) / temperature) for j, x in enumerate(samples) if j != i]
        assert len(others) == 2 * len(first) - 1  # one positive and all 2b − 2 negatives
        losses.append(-math.log(math.exp(cosine(anchor, samples[partner]) / temperature) / sum(others)))
    return mean(losses)


def slow_supervised_contrastive(features, positives, anchors, temperature, base):
    losses = []
    for i, anchor in enumerate(features):
        mine = [j for j in range(len(features)) if j != i and positives[i][j]]
        if not anchors[i] or not mine:
            continue
        total = sum(math.exp(dot(anchor, x) / temperature) for j, x in enumerate(features) if j != i)
        losses.append(mean(-math.log(math.exp(dot(anchor, features[j]) / temperature) / total) for j in mine))
    return temperature / base * mean(losses) if losses else 0.0


def slow_softmax(values):
    top = max(values)
    powers = [math.exp(value - top) for value in values]
    return [power / sum(powers) for power in powers]


def slow_relation_distillation(current, past, temperature, past_temperature):
    losses = []
    for i in range(len(current)):
        others = [j for j in range(len(current)) if j != i]
        target = slow_softmax([dot(past[i], past[j]) / past_temperature for j in others])
        student = slow_softmax([dot(current[i], current[j]) / temperature for j in others])
        losses.append(-sum(t * math.log(s) for t, s in zip(target, student, strict=True)))
    return mean(losses)


def slow_cross_contrast(here, there, temperature):
    losses = []
    for view in (0, 1):
        for i, anchor in enumerate(here[view]):
            positive = math.exp(cosine(anchor, here[1 - view][i]) / temperature)
            negatives = sum(math.exp(cosine(anchor, x) / temperature) for other in there for x in other)
            losses.append(-math.log(positive / (positive + negatives)))
    return mean(losses)


# ------------------------------------------------------------------------------------------------- negative cosine


@repeatable
@given(n=sizes, d=dims, seed=seeds)
def test_negative_cosine_is_the_mean_over_samples_of_minus_the_cosine(n, d, seed):
    a, b = rows(n, d, seed=seed), rows(n, d, seed=seed + 1)
    expected = -mean(cosine(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True))
    assert negative_cosine(a, b).item() == pytest.approx(expected, abs=1e-5)


def test_negative_cosine_averages_over_views_too_and_lets_them_share_a_target():
    predicted, target = rows(3, 4, 5, seed=0), rows(1, 4, 5, seed=1)
    expected = -mean(cosine(predicted[v, i].tolist(), target[0, i].tolist()) for v in range(3) for i in range(4))
    assert negative_cosine(predicted, target).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("angle", "value"), [(0, -1.0), (60, -0.5), (90, 0.0), (180, 1.0)])
def test_negative_cosine_depends_on_the_angle_alone(angle, value):
    turned = torch.tensor([[math.cos(math.radians(angle)), math.sin(math.radians(angle))]])
    assert negative_cosine(torch.tensor([[5.0, 0.0]]), 0.01 * turned).item() == pytest.approx(value, abs=1e-6)


# --------------------------------------------------------------------------------------------------------- NT-Xent


@repeatable
@given(n=st.integers(1, 6), d=dims, seed=seeds, temperature=temperatures)
def test_nt_xent_agrees_with_the_slow_version(n, d, seed, temperature):
    a, b = rows(n, d, seed=seed), rows(n, d, seed=seed + 1)
    expected = slow_nt_xent(a.tolist(), b.tolist(), temperature)
    assert nt_xent(a, b, temperature=temperature).item() == pytest.approx(expected, abs=1e-4, rel=1e-4)


@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_nt_xent_of_equal_features_is_the_log_of_the_number_of_candidates(n):
    same = torch.ones(n, 8)
    assert nt_xent(same, same).item() == pytest.approx(math.log(2 * n - 1), abs=1e-5)


# --------------------------------------------------------------------------------- supervised contrastive with mask


@repeatable
@given(n=sizes, d=dims, seed=seeds, temperature=temperatures, base=st.sampled_from([0.07, 1.0]))
def test_supervised_contrastive_agrees_with_the_slow_version(n, d, seed, temperature, base):
    generator = torch.Generator().manual_seed(seed)
    features = unit(n, d, seed=seed)
    positives = torch.rand(n, n, generator=generator) < 0.4
    anchors = torch.rand(n, generator=generator) < 0.6
    expected = slow_supervised_contrastive(features.tolist(), positives.tolist(), anchors.tolist(), temperature, base)
    got = supervised_contrastive(features, positives, anchors, temperature, base).item()
    assert got == pytest.approx(expected, abs=1e-4, rel=1e-4)


def test_the_diagonal_of_the_mask_changes_nothing():
    features, anchors = unit(5, 4, seed=0), torch.ones(5, dtype=torch.bool)
    positives = torch.ones(5, 5, dtype=torch.bool)
    hollow = positives & ~torch.eye(5, dtype=torch.bool)
    assert torch.equal(
        supervised_contrastive(features, positives, anchors), supervised_contrastive(features, hollow, anchors)
    )


def test_without_any_positive_the_contrast_is_zero_and_so_is_its_gradient():
    features = unit(4, 3, seed=0).requires_grad_()
    loss = supervised_contrastive(features, torch.eye(4, dtype=torch.bool), torch.ones(4, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(features.grad, torch.zeros(4, 3))


@pytest.mark.parametrize("views", [2, 3, 5])
def test_with_all_other_views_as_positives_the_contrast_is_nt_xent(views: int):
    rows = [unit(4, 6, seed=seed) for seed in range(views)]
    partners = torch.eye(4, dtype=torch.bool).repeat(views, views)
    got = supervised_contrastive(torch.cat(rows), partners, torch.ones(4 * views, dtype=torch.bool), 0.3, 0.3)
    torch.testing.assert_close(got, nt_xent(*rows, temperature=0.3))


# -------------------------------------------------------------------------------------------- relation distillation


@repeatable
@given(
    n=sizes, d=dims, seed=seeds, temperature=st.sampled_from([0.1, 1.0]), past_temperature=st.sampled_from([0.01, 0.5])
)
def test_relation_distillation_agrees_with_the_slow_version(n, d, seed, temperature, past_temperature):
    current, past = unit(n, d, seed=seed), unit(n, d, seed=seed + 1)
    expected = slow_relation_distillation(current.tolist(), past.tolist(), temperature, past_temperature)
    got = relation_distillation(current, past, temperature, past_temperature).item()
    assert got == pytest.approx(expected, abs=1e-4, rel=1e-4)


def test_relation_distillation_of_equal_likeness_is_the_log_of_the_number_of_others():
    same = torch.ones(6, 4) / 2
    assert relation_distillation(same, same).item() == pytest.approx(math.log(5), abs=1e-6)


def test_relation_distillation_is_least_at_the_past_relations():
    past = unit(6, 4, seed=0)
    current = past.clone().requires_grad_()
    loss = relation_distillation(current, past, temperature=0.2, past_temperature=0.2)
    (gradient,) = torch.autograd.grad(loss, current)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-5, rtol=0)


# -------------------------------------------------------------------------------------------------- Osiris' crossing


@repeatable
@given(n=st.integers(1, 5), m=st.integers(1, 5), d=dims, seed=seeds, temperature=temperatures)
def test_cross_contrast_agrees_with_the_slow_version(n, m, d, seed, temperature):
    here, there = rows(2, n, d, seed=seed), rows(2, m, d, seed=seed + 1)
    expected = slow_cross_contrast(here.tolist(), there.tolist(), temperature)
    assert cross_contrast(here, there, temperature).item() == pytest.approx(expected, abs=1e-4, rel=1e-4)


def test_cross_contrast_of_equal_features_is_the_log_of_the_number_of_candidates():
    assert cross_contrast(torch.ones(2, 3, 4), torch.ones(2, 5, 4)).item() == pytest.approx(math.log(11), abs=1e-6)


def test_cross_contrast_does_not_push_the_samples_of_one_set_apart():
    alone = torch.tensor([[[1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0]]])
    there = torch.tensor([[[0.0, 0.0, 1.0]], [[0.0, 0.0, 1.0]]])
    torch.testing.assert_close(cross_contrast(alone.expand(2, 4, 3), there), cross_contrast(alone, there))


# --------------------------------------------------------------------------------------------------------- all alike

POSITIVES = torch.rand(6, 6, generator=torch.Generator().manual_seed(5)) < 0.5
LOSSES = {
    "negative_cosine": (negative_cosine, rows(6, 5, seed=0), rows(6, 5, seed=1)),
    "nt_xent": (nt_xent, rows(6, 5, seed=0), rows(6, 5, seed=1)),
    "supervised_contrastive": (
        supervised_contrastive,
        unit(6, 5, seed=0),
        POSITIVES,
        torch.ones(6, dtype=torch.bool),
    ),
    "relation_distillation": (relation_distillation, unit(6, 5, seed=0), unit(6, 5, seed=1)),
    "cross_contrast": (cross_contrast, rows(2, 6, 5, seed=0), rows(2, 4, 5, seed=1)),
    "info_nce": (info_nce, rows(2, 6, 5, seed=0), rows(2, 6, 5, seed=1), unit(4, 5, seed=2)),
    "barlow_twins": (barlow_twins, rows(3, 6, 5, seed=0)),
    "vicreg": (vicreg, rows(3, 6, 5, seed=0) / 20),
    "soft_cross_entropy": (soft_cross_entropy, rows(2, 6, 5, seed=0), rows(2, 6, 5, seed=1).softmax(-1)),
    "mean_agreement": (mean_agreement, rows(3, 6, 5, seed=0)),
    "coding_rate": (coding_rate, rows(3, 6, 5, seed=0)),
    "sigreg": (sigreg, rows(3, 6, 5, seed=0), rows(5, 4, seed=1)),
}
everywhere = pytest.mark.parametrize("name", LOSSES)


@pytest.mark.parametrize(
    "loss",
    [
        negative_cosine,
        relation_distillation,
        soft_cross_entropy,
        lambda student, target: info_nce(student, target, unit(5, 3, seed=2)),
    ],
)
def test_no_gradient_reaches_the_target(loss):
    student = unit(4, 3, seed=0).requires_grad_()
    target = unit(4, 3, seed=1).requires_grad_()
    loss(student, target).backward()
    assert target.grad is None
    assert student.grad.abs().sum() > 0


@everywhere
def test_autocast_does_not_change_a_loss(name):
    loss, *arguments = LOSSES[name]
    plain = loss(*arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (arguments[0] @ arguments[0].mT).dtype == torch.bfloat16  # autocast really is on around the call
        inside = loss(*arguments)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, plain)


@everywhere
def test_autocast_does_not_change_a_gradient(name):
    loss, first, *rest = LOSSES[name]
    plain, inside = first.clone().requires_grad_(), first.clone().requires_grad_()
    loss(plain, *rest).backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(inside, *rest)
    value.backward()
    assert torch.equal(inside.grad, plain.grad)


@everywhere
def test_bfloat16_features_give_a_float32_loss(name):
    loss, first, *rest = LOSSES[name]
    rounded = first.bfloat16()
    assert torch.equal(loss(rounded, *rest), loss(rounded.float(), *rest))


@everywhere
def test_gradients_agree_with_finite_differences(name):
    loss, first, *rest = LOSSES[name]
    point = first.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(point, *rest), point)
    direction = F.normalize(torch.randn(first.shape, generator=torch.Generator().manual_seed(9)).flatten(), dim=0)
    direction = direction.view(first.shape)
    step = 1e-2
    slope = (loss(first + step * direction, *rest) - loss(first - step * direction, *rest)) / (2 * step)
    torch.testing.assert_close((gradient * direction).sum(), slope, atol=5e-3, rtol=5e-2)


def test_losses_take_their_features_by_name():
    a, b = rows(4, 3, seed=0), rows(4, 3, seed=1)
    assert torch.equal(negative_cosine(predicted=a, target=b), negative_cosine(a, b))
