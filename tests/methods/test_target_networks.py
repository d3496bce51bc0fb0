"""BYOL and MoCo against slow versions, and what methods with a target network do after a step."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from helpers.steps import begun, end_of, moved, ordered_pairs
from ocssl.batch import Step
from ocssl.losses import info_nce
from ocssl.methods import TargetMethod


def cosine(a: list[float], b: list[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def target_rows(method: TargetMethod, step: Step) -> list[list[list[float]]]:
    """The target network's features, by view and sample; each view alone where the encoder passed it alone."""
    if step.features.joint:
        rows = method.target.projector(method.target.backbone(step.views.flatten(0, 1)))
        return rows.unflatten(0, step.views.shape[:2]).tolist()
    return [method.target.projector(method.target.backbone(view)).tolist() for view in step.views]


# ---------------------------------------------------------------------- BYOL


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("views", [2, 3, 5])
def test_byol_agrees_with_the_slow_version(views: int, joint: bool) -> None:
    method, _, step = begun("byol", views, joint=joint)
    moved(method.target)  # otherwise both networks would be the same
    predicted, target = step.features.through(method.predictor).tolist(), target_rows(method, step)
    terms = [
        2 - 2 * cosine(predicted[here][i], target[there][i]) for here, there in ordered_pairs(views) for i in range(5)
    ]
    assert method.loss(step).item() == pytest.approx(sum(terms) / len(terms), abs=1e-9)


def test_with_two_views_byol_is_half_of_the_papers_sum() -> None:
    method, _, step = begun("byol")
    moved(method.target)
    p, z = step.features.through(method.predictor), torch.tensor(target_rows(method, step), dtype=torch.float64)
    p, z = nn.functional.normalize(p, dim=-1), nn.functional.normalize(z, dim=-1)
    published = (p[0] - z[1]).square().sum(-1).mean() + (p[1] - z[0]).square().sum(-1).mean()
    torch.testing.assert_close(method.loss(step), published / 2)


def test_byol_is_zero_where_views_agree_and_nothing_is_predicted() -> None:
    method, encoder, step = begun("byol")
    method.predictor = nn.Identity()
    same = step.views[:1].repeat(2, 1, 1, 1, 1)
    step = Step(step.batch, same, encoder(same, True), step.generator)
    assert method.loss(step).item() == pytest.approx(0, abs=1e-9)


def test_the_distances_of_byol_are_two_minus_two_cosines() -> None:
    method, _, _ = begun("byol")
    one, other = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[1.0, 1.0]]])
    for measure in (method.distance, method.distillation):
        assert measure(one, other).item() == pytest.approx(2 - math.sqrt(2), abs=1e-6)


# ---------------------------------------------------------------------- MoCo


@pytest.mark.parametrize("views", [2, 3, 5])
def test_moco_agrees_with_the_slow_version(views: int) -> None:
    method, _, step = begun("moco", views, queue_size=6, temperature=0.3)
    moved(method.target)
    query, key, queue = step.features.projected.tolist(), target_rows(method, step), method.queue.tolist()
    terms = []
    for here, there in ordered_pairs(views):
        for i in range(5):
            positive = math.exp(cosine(query[here][i], key[there][i]) / 0.3)
            negatives = sum(math.exp(cosine(query[here][i], other) / 0.3) for other in queue)
            terms.append(-math.log(positive / (positive + negatives)))
    assert method.loss(step).item() == pytest.approx(sum(terms) / len(terms), abs=1e-6)  # the queue was made in float32


def test_info_nce_of_equal_features_is_the_log_of_the_number_of_candidates() -> None:
    same = torch.ones(1, 4)
    assert info_nce(same, 3 * same, same.repeat(9, 1) / 2).item() == pytest.approx(math.log(10), abs=1e-6)


@pytest.mark.parametrize("size", [1, 7, 10, 64])
def test_the_queue_holds_the_last_keys_whatever_the_batches(size: int) -> None:
    method, _, _ = begun("moco", queue_size=size)
    expected, pointer, generator = method.queue.tolist(), 0, torch.Generator().manual_seed(1)
    for n in (1, 4, 3, 5, 2, 5, 1):
        keys = torch.randn(2, n, 7, generator=generator, dtype=torch.float64)
        method.enqueue(keys)
        rows = [keys[view, i] / keys[view, i].norm() for i in range(n) for view in range(2)][-size:]
        for row in rows:
            expected[pointer] = row.tolist()
            pointer = (pointer + 1) % size
        torch.testing.assert_close(method.queue, torch.tensor(expected, dtype=torch.float64))
        assert int(method.pointer) == pointer


def test_the_queue_begins_with_seeded_vectors_of_length_one() -> None:
    (one, _, _), (other, _, _) = begun("moco"), begun("moco")
    assert one.queue.shape == (4096, 7)
    torch.testing.assert_close(one.queue.norm(dim=1), torch.ones(4096, dtype=torch.float64))
    assert torch.equal(one.queue, other.queue)


def test_after_a_step_the_keys_of_the_loss_are_in_the_queue() -> None:
    method, encoder, step = begun("moco", queue_size=64)
    moved(method.target)
    keys = torch.tensor(target_rows(method, step), dtype=torch.float64)
    before = method.queue.clone()
    method.loss(step)
    assert torch.equal(method.queue, before)
    method.after_step(end_of(step), moved(encoder))
    expected = nn.functional.normalize(keys, dim=-1).transpose(0, 1).flatten(0, 1)
    torch.testing.assert_close(method.queue[:10], expected)
    assert torch.equal(method.queue[10:], before[10:])


def test_the_distance_of_moco_contrasts_with_the_queue() -> None:
    method, _, _ = begun("moco", queue_size=6)
    predicted, target = torch.randn(2, 2, 5, 7, dtype=torch.float64)
    expected = [
        -math.log(1 / (1 + sum(math.exp((cosine(p, k) - cosine(p, t)) / 0.2) for k in method.queue.tolist())))
        for p, t in zip(predicted.flatten(0, 1).tolist(), target.flatten(0, 1).tolist(), strict=True)
    ]
    assert method.distance(predicted, target).item() == pytest.approx(sum(expected) / 10, abs=1e-6)


# ---------------------------------------------------------------------- all with a target network


@pytest.mark.parametrize(("name", "tau"), [("byol", 0.996), ("moco", 0.999), ("dino", 0.996), ("byol", 0.5)])
def test_the_target_network_follows_the_encoder(name: str, tau: float) -> None:
    method, encoder, step = begun(name, target_tau=tau)
    assert type(method).Options().target_tau == (tau if tau != 0.5 else 0.996)
    before = [parameter.clone() for parameter in method.target.parameters()]
    method.loss(step).backward()
    statistics = [buffer.clone() for buffer in method.target.buffers()]
    method.after_step(end_of(step), moved(encoder))
    for old, now, followed in zip(before, method.target.parameters(), encoder.parameters(), strict=True):
        torch.testing.assert_close(now.data, tau * old + (1 - tau) * followed.data)
        assert now.grad is None
    for was, now in zip(statistics, method.target.buffers(), strict=True):
        assert torch.equal(was, now)


@pytest.mark.parametrize("name", ["byol", "moco", "dino"])
def test_the_target_network_begins_as_the_encoder_and_is_saved(name: str) -> None:
    method, encoder, _ = begun(name)
    for mine, theirs in zip(method.target.parameters(), encoder.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        assert mine.data_ptr() != theirs.data_ptr()
    assert {f"target.{key}" for key in encoder.state_dict()} <= method.state_dict().keys()
    assert not any(parameter.requires_grad for parameter in method.target.parameters())
