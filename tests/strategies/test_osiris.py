"""Osiris-R: which features meet in which part of its loss, through which head."""

from __future__ import annotations

import pytest
import torch

from ocssl.errors import ConfigError
from ocssl.losses import cross_contrast, nt_xent
from ocssl.nn.encoder import over_views
from ocssl.optim import SGD
from ocssl.strategies import OsirisR
from ocssl.strategies.authors import OsirisRAuthors, OsirisROriginal

joint_or_not = pytest.mark.parametrize("joint", [True, False])


def same(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


@joint_or_not
def test_the_loss_is_stream_contrast_through_g_plus_half_of_crossing_and_replay_contrast_through_h(
    build, some_views, batch_of, joint
):
    strategy, encoder = build(OsirisR)
    features = encoder(some_views(8), joint)
    got = strategy.losses(batch_of(3, 5), some_views(8), features)
    assert list(got) == ["stream", "cross", "replay"]

    g, h = features.projected, over_views(strategy.h, features.backbone, joint)
    stream, replay = h[:, :3], h[:, 3:]
    torch.testing.assert_close(got["stream"], nt_xent(g[0, :3], g[1, :3], 0.1))
    across = (cross_contrast(stream, replay, 0.1) + cross_contrast(replay, stream, 0.1)) / 2
    torch.testing.assert_close(got["cross"], across / 2)
    torch.testing.assert_close(got["replay"], nt_xent(replay[0], replay[1], 0.1) / 2)


def test_without_replay_only_the_stream_part_is_left(build, some_views, batch_of):
    strategy, encoder = build(OsirisR)
    features = encoder(some_views(3), joint=True)
    got = strategy.losses(batch_of(3, 0), some_views(3), features)
    assert got.keys() == {"stream"}
    torch.testing.assert_close(got["stream"], nt_xent(features.projected[0], features.projected[1], 0.1))


@pytest.mark.parametrize(("head", "trained"), [("trained", True), ("copied", True), ("frozen", False)])
def test_h_is_trained_unless_it_is_frozen_and_the_backbone_always_is(build, some_views, batch_of, head, trained):
    strategy, encoder = build(OsirisRAuthors, head=head)
    sum(strategy.losses(batch_of(3, 5), some_views(8), encoder(some_views(8), joint=True)).values()).backward()
    assert all((p.grad is not None) == trained for p in strategy.h.parameters())
    assert all(p.grad is not None for p in encoder.backbone.parameters())


@pytest.mark.parametrize("head", ["trained", "copied", "frozen"])
def test_h_starts_at_random_and_only_a_copied_one_becomes_g_at_the_first_boundary(build, head):
    strategy, encoder = build(OsirisRAuthors, head=head)
    assert not same(strategy.h, encoder.projector)
    strategy.boundary(encoder)
    assert same(strategy.h, encoder.projector) == (head == "copied")


def test_a_copied_head_is_copied_once(build):
    strategy, encoder = build(OsirisRAuthors, head="copied")
    strategy.boundary(encoder)
    for parameter in encoder.projector.parameters():
        parameter.data.fill_(0.5)
    strategy.boundary(encoder)
    assert not same(strategy.h, encoder.projector)


def test_whether_h_was_copied_is_remembered(build):
    strategy, encoder = build(OsirisRAuthors, head="copied")
    strategy.boundary(encoder)
    twin, _ = build(OsirisROriginal)
    twin.load_host_state(strategy.host_state())
    twin.boundary(encoder)
    assert not same(twin.h, encoder.projector)


@pytest.mark.parametrize(("kind", "times"), [(OsirisR, 1), (OsirisROriginal, 1), (OsirisRAuthors, 2)])
def test_the_authors_apply_each_update_twice_with_one_gradient(build, kind, times):
    strategy, _ = build(kind)
    weight, expected = (torch.nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2))
    options = SGD.Options(lr=0.1, momentum=0.9, weight_decay=0.01)
    optimizer, plain = strategy.wrap_optimizer(SGD([weight], options)), SGD([expected], options)
    for one, parameter in ((optimizer, weight), (plain, expected)):
        one.zero_grad()
        parameter.grad = torch.tensor([0.5, 3.0])
    optimizer.step()
    for _ in range(times):
        plain.step()
    assert torch.equal(weight, expected)
    assert optimizer.parameters == [weight]
    assert torch.equal(optimizer.state_dict()["momentum.0"], plain.state_dict()["momentum.0"])


def test_a_repeated_optimizer_restores_its_state(build):
    strategy, _ = build(OsirisRAuthors)
    optimizer = strategy.wrap_optimizer(SGD([torch.nn.Parameter(torch.zeros(2))], SGD.Options()))
    optimizer.load_state_dict({"momentum.0": torch.tensor([1.0, 2.0])})
    assert optimizer.state_dict()["momentum.0"].tolist() == [1.0, 2.0]


def test_no_update_at_all_is_refused(build):
    with pytest.raises(ConfigError, match="repeat_updates must be a whole number of at least 1, not 0"):
        build(OsirisRAuthors, repeat_updates=0)
