"""Strategies with a second model: their losses written out, and what happens at boundaries and resets."""

from __future__ import annotations

import math

import pytest
import torch

from helpers.steps import step_of
from ocssl import Learner
from ocssl.checks import small_learner, small_stream
from ocssl.losses import coding_rate, contrastive_distillation, cross_contrast, nt_xent
from ocssl.strategies import OsirisD, Pocon, Reset, SyCon


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one @ other / (one.norm() * other.norm())).detach())


def slow_contrast(anchors, positives, banks, temperature: float) -> float:
    """One anchor and one negative at a time."""
    losses = []
    for v, view in enumerate(anchors):
        for i, anchor in enumerate(view):
            own = math.exp(cosine(anchor, positives[v][i]) / temperature)
            others = [rows[j] for bank in banks for rows in bank for j in range(len(rows)) if j != i]
            losses.append(-math.log(own / (own + sum(math.exp(cosine(anchor, z) / temperature) for z in others))))
    return sum(losses) / len(losses)


def test_sycon_contrasts_present_and_past_with_negatives_of_both(build, some_views, batch_of) -> None:
    strategy, encoder = build(SyCon, stream_batch=4, batch=4, temperature=0.3)
    views = some_views(4)
    step = step_of(batch_of(4, 0), views, encoder(views, joint=True))
    assert strategy.losses(step).keys() == {"present"}
    torch.testing.assert_close(strategy.losses(step)["present"], nt_xent(*step.features.projected, temperature=0.3))
    strategy.boundary(encoder)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.mul_(1.1).add_(0.05)
    features = encoder(views, joint=True)
    got = strategy.losses(step_of(batch_of(4, 0), views, features))
    current, past = features.projected.detach(), strategy.past.network(views, True).projected
    moved = features.through(strategy.aligner).detach()
    assert got["present"].item() == pytest.approx(slow_contrast(current, current.flip(0), (current, past), 0.3), 1e-4)
    assert got["past"].item() == pytest.approx(slow_contrast(moved, past, (past, current), 0.3), 1e-4)


def test_osiris_d_distils_the_stream_from_the_last_boundary_on(build, some_views, batch_of) -> None:
    strategy, encoder = build(OsirisD)
    views, batch = some_views(8), batch_of(3, 5)
    features = encoder(views, joint=False)
    assert strategy.losses(step_of(batch, views, features)).keys() == {"stream", "cross"}
    strategy.boundary(encoder)
    got = strategy.losses(step_of(batch, views, features))
    assert got.keys() == {"stream", "cross", "distillation"}
    past = strategy.target.network(views[:, :3], False).projected
    predicted = torch.stack([strategy.aligner(view) for view in features.projected[:, :3]])
    torch.testing.assert_close(got["distillation"], contrastive_distillation(predicted, past) / 2)
    h = torch.stack([strategy.h(view) for view in features.backbone])
    one, two = cross_contrast(h[:, :3], h[:, 3:], 0.1), cross_contrast(h[:, 3:], h[:, :3], 0.1)
    torch.testing.assert_close(got["cross"], (one + two) / 4)


def test_pocons_main_network_follows_the_expert_and_its_own_past(build, some_views, batch_of) -> None:
    strategy, encoder = build(Pocon, stream_batch=4, batch=4, omega=0.5)
    views = some_views(4)
    features = encoder(views, joint=True)
    step = step_of(batch_of(4, 0), views, features)
    assert strategy.penalty(step).keys() == {"adaptation"}
    with torch.no_grad():
        for parameter in strategy.main.parameters():
            parameter.add_(0.1)
    strategy.boundary(encoder)
    assert all(
        torch.equal(a, b)
        for a, b in zip(encoder.backbone.parameters(), strategy.main.backbone.parameters(), strict=True)
    )
    with torch.no_grad():
        for parameter in strategy.main.parameters():
            parameter.add_(0.1)
    got = strategy.penalty(step)
    main, past = strategy.main(views, True).backbone, strategy.past.network(views, True).backbone
    followed, kept = (head(main.flatten(0, 1)) for head in (strategy.adaptation, strategy.retrospection))
    pairs = zip(followed, features.backbone.flatten(0, 1), strict=True)
    assert got["adaptation"].item() == pytest.approx(-sum(cosine(a, b) for a, b in pairs) / 8, 1e-4)
    pairs = zip(kept, past.flatten(0, 1), strict=True)
    assert got["retrospection"].item() == pytest.approx(-0.5 * sum(cosine(a, b) for a, b in pairs) / 8, 1e-4)
    assert strategy.deployed(encoder) is strategy.main.backbone


def test_pocon_without_alignment_neither_passes_nor_trains_its_past(build, some_views, batch_of) -> None:
    strategy, encoder = build(Pocon, stream_batch=4, batch=4, omega=0.0)
    strategy.boundary(encoder)
    views = some_views(4)
    assert strategy.penalty(step_of(batch_of(4, 0), views, encoder(views, joint=True))).keys() == {"adaptation"}
    assert not any(parameter.requires_grad for parameter in strategy.retrospection.parameters())


def test_pocon_pays_for_both_networks() -> None:
    alone, both = (small_learner(name).partial_fit(small_stream(20)) for name in ("finetune", "pocon"))
    assert both.budget.spent == 2 * alone.budget.spent


@pytest.mark.parametrize("keep", [0.0, 0.25])
def test_a_reset_sets_the_encoder_back_and_lets_the_optimiser_forget(keep: float) -> None:
    learner = small_learner("reset", reset_every=20, reset_keep=keep)
    state = learner.train_state
    assert isinstance(state.strategy, Reset)
    start = [parameter.detach().clone() for parameter in state.encoder.parameters()]
    stream, never = small_stream(24), small_learner("reset", reset_every=21)
    never.partial_fit(stream[:20])
    learner.partial_fit(stream[:20])
    learned = [parameter.detach() for parameter in never.train_state.encoder.parameters()]
    for now, was, began in zip(state.encoder.parameters(), learned, start, strict=True):
        torch.testing.assert_close(now.detach(), keep * was + (1 - keep) * began)
    assert not any(tensor.any() for tensor in state.optimizer.moments().values())
    assert state.memory is not None
    assert len(state.memory) == 20
    learner.partial_fit(stream[20:])
    assert any(tensor.any() for tensor in state.optimizer.moments().values())
    assert learner.train_state.strategy.host_state() == {"resets": 1}


def test_resets_that_come_less_often_after_loading_come_on_time(tmp_path) -> None:
    small_learner("reset", reset_every=8).partial_fit(small_stream(40)).save(tmp_path)
    learner = Learner.load(tmp_path, reset_every=28).partial_fit(small_stream(12))
    assert any(tensor.any() for tensor in learner.train_state.optimizer.moments().values())
    learner.partial_fit(small_stream(4))  # 56 images in all
    assert not any(tensor.any() for tensor in learner.train_state.optimizer.moments().values())


def test_cmp_adds_the_coding_rate_of_eight_views_of_the_stream() -> None:
    learner = small_learner("cmp", method="simclr", spread=0.1).partial_fit(small_stream(20))
    assert (learner.config.to_dict()["views"], learner.train_state.memory) == (8, None)
    assert learner.budget.spent == 8 * 20 * 2
    output = learner.output
    assert output is not None
    rate = coding_rate(output.features.projected)
    torch.testing.assert_close(output.losses["spread"], -0.1 * rate)
    assert small_learner("cmp", views=3).config.to_dict()["views"] == 3
