"""Osiris-R: which features meet in which part of its loss, through which head."""

from __future__ import annotations

import math

import pytest
import torch

from helpers.steps import step_of
from ocssl.checks import small_learner, small_stream
from ocssl.errors import ConfigError
from ocssl.losses import cross_contrast, nt_xent
from ocssl.memory import Reservoir
from ocssl.methods import Dims
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
    got = strategy.losses(step_of(batch_of(3, 5), some_views(8), features))
    assert list(got) == ["stream", "cross", "replay"]

    g, h = features.projected, over_views(strategy.h, features.backbone, joint)
    stream, replay = h[:, :3], h[:, 3:]
    torch.testing.assert_close(got["stream"], nt_xent(g[0, :3], g[1, :3], temperature=0.1))
    across = (cross_contrast(stream, replay, 0.1) + cross_contrast(replay, stream, 0.1)) / 2
    torch.testing.assert_close(got["cross"], across / 2)
    torch.testing.assert_close(got["replay"], nt_xent(replay[0], replay[1], temperature=0.1) / 2)


def test_without_replay_only_the_stream_part_is_left(build, some_views, batch_of):
    strategy, encoder = build(OsirisR)
    features = encoder(some_views(3), joint=True)
    got = strategy.losses(step_of(batch_of(3, 0), some_views(3), features))
    assert got.keys() == {"stream"}
    torch.testing.assert_close(got["stream"], nt_xent(features.projected[0], features.projected[1], temperature=0.1))


@pytest.mark.parametrize(("head", "trained"), [("trained", True), ("copied", True), ("frozen", False)])
def test_h_is_trained_unless_it_is_frozen_and_the_backbone_always_is(build, some_views, batch_of, head, trained):
    strategy, encoder = build(OsirisRAuthors, head=head)
    sum(strategy.losses(step_of(batch_of(3, 5), some_views(8), encoder(some_views(8), joint=True))).values()).backward()
    assert all((p.grad is not None) == trained for p in strategy.h.parameters())
    assert all(p.grad is not None for p in encoder.backbone.parameters())


@pytest.mark.parametrize("head", ["trained", "copied", "frozen"])
def test_h_starts_at_random_and_only_a_copied_one_becomes_g_at_the_first_boundary(build, head):
    strategy, encoder = build(OsirisRAuthors, head=head)
    assert not same(strategy.h, strategy.g)
    strategy.boundary(encoder)
    assert same(strategy.h, strategy.g) == (head == "copied")


def test_a_copied_head_is_copied_once(build):
    strategy, encoder = build(OsirisRAuthors, head="copied")
    strategy.boundary(encoder)
    for parameter in strategy.g.parameters():
        parameter.data.fill_(0.5)
    strategy.boundary(encoder)
    assert not same(strategy.h, strategy.g)


def test_whether_h_was_copied_is_remembered(build):
    strategy, encoder = build(OsirisRAuthors, head="copied")
    strategy.boundary(encoder)
    twin, _ = build(OsirisROriginal)
    twin.load_host_state(strategy.host_state())
    twin.boundary(encoder)
    assert not same(twin.h, twin.g)


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
    with pytest.raises(ConfigError, match="repeat_updates must be a whole number from 1 to 10,000, not 0"):
        build(OsirisRAuthors, repeat_updates=0)


# ------------------------------------------------------------------------------------------- heads of other codes


def slow_cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a * b).sum() / (a.square().sum().sqrt() * b.square().sum().sqrt())


def slow_contrast(anchors, partners, negatives, temperature=0.1):
    """Mean over the anchors of −log(positive / (positive + negatives)); negatives(i) lists those of anchor i."""
    losses = []
    for i, (anchor, partner) in enumerate(zip(anchors, partners, strict=True)):
        positive = (slow_cosine(anchor, partner) / temperature).exp()
        others = sum((slow_cosine(anchor, other) / temperature).exp() for other in negatives(i))
        losses.append(-(positive / (positive + others)).log())
    return sum(losses) / len(losses)


def slow_osiris(g, h, backbone, n):
    """The public code's loss: stream rows alone through g; stream and replay rows through h, one after the other."""
    z1, z2, u1, u2 = backbone[0, :n], backbone[1, :n], backbone[0, n:], backbone[1, n:]
    g1, g2 = g(z1), g(z2)
    h1, h2, r1, r2 = h(z1), h(z2), h(u1), h(u2)

    def within(first, second):
        rows, count = [*first, *second], len(first)

        def others(i):
            return [row for j, row in enumerate(rows) if j % count != i % count]

        return slow_contrast(rows, [*second, *first], others)

    def across(first, second, others):
        return slow_contrast([*first, *second], [*second, *first], lambda _: others)

    cross = (across(h1, h2, [*r1, *r2]) + across(r1, r2, [*h1, *h2])) / 2
    return within(g1, g2) + 0.5 * (cross + within(r1, r2))


def doubled(build, kind, **options):
    strategy, encoder = build(kind, **options)
    return strategy.double(), encoder.double()


def gradients(*modules):
    return [p.grad.clone() for module in modules for p in module.parameters() if p.grad is not None]


@pytest.mark.parametrize(("kind", "head"), [(OsirisRAuthors, "frozen"), (OsirisROriginal, "copied")])
def test_loss_gradients_and_statistics_are_those_of_heads_in_passes_of_their_own(
    build, some_views, batch_of, kind, head
):
    views = some_views(8).double()
    strategy, encoder = doubled(build, kind)
    got = sum(strategy.losses(step_of(batch_of(3, 5), views, strategy.encode(encoder, views, joint=False))).values())
    got.backward()
    twin, other = doubled(build, kind)
    expected = slow_osiris(twin.g, twin.h, torch.stack([other.backbone(view) for view in views]), 3)
    expected.backward()
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
    ours, theirs = gradients(encoder, strategy), gradients(other, twin)
    trained = [encoder, strategy.g, *([strategy.h] if head == "copied" else [])]
    assert len(ours) == len(theirs) == sum(len([*module.parameters()]) for module in trained)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)
    for a, b in zip(strategy.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_steps_that_are_applied_twice_do_not_warm_up_or_anneal_twice_as_fast():
    learner = small_learner("osiris-r", variant="authors", passes=1, warmup=3, anneal=4)
    schedule, rates = learner.train_state.optimizer.schedule, []
    learner.train_state.optimizer.optimizer.update = lambda lr: rates.append(float(lr))
    learner.partial_fit(small_stream(16)).anneal().partial_fit(small_stream(20))
    expected = [share * learner.lr for share in (1 / 3, 2 / 3, 1, 1, 1, 0.75, 0.5, 0.25, 1) for _ in range(2)]
    assert rates == pytest.approx(expected)
    assert int(schedule.steps) == 9


@joint_or_not
def test_with_the_settings_of_the_default_the_authors_loss_is_the_default(build, some_views, batch_of, joint):
    views, batch = some_views(8), batch_of(3, 5)
    default, encoder = build(OsirisR)
    expected = default.losses(step_of(batch, views, default.encode(encoder, views, joint)))
    options = {"separate_heads": False, "head": "trained", "repeat_updates": 1}
    for kind, more in ((OsirisRAuthors, {}), (OsirisROriginal, {"plain_heads": False, "late_replay": False})):
        strategy, twin = build(kind, **options, **more)
        for mine, theirs in (
            (strategy.g, encoder.projector),
            (strategy.h, default.h),
            (twin.backbone, encoder.backbone),
        ):
            mine.load_state_dict(theirs.state_dict())
        got = strategy.losses(step_of(batch, views, strategy.encode(twin, views, joint)))
        assert all(torch.equal(got[name], expected[name]) for name in expected)


def test_with_batch_norm_in_the_heads_it_matters_which_rows_pass_together(build, some_views, batch_of):
    def loss(**options):
        strategy, encoder = doubled(build, OsirisRAuthors, **options)
        views = some_views(8).double()
        return sum(
            strategy.losses(step_of(batch_of(3, 5), views, strategy.encode(encoder, views, joint=False))).values()
        ).item()

    assert not math.isclose(loss(), loss(separate_heads=False), rel_tol=1e-3)


def test_the_original_heads_have_two_layers_and_no_norm(build):
    strategy, _ = build(OsirisROriginal)
    heads = [strategy.g, strategy.h, strategy.make_head(Dims(512))]
    assert all([type(layer).__name__ for layer in head] == ["Linear", "ReLU", "Linear"] for head in heads)
    assert [tuple(layer.weight.shape) for layer in heads[-1] if hasattr(layer, "weight")] == [(2048, 512), (128, 2048)]


@pytest.mark.parametrize("late", [True, False])
def test_in_the_original_nothing_is_replayed_in_the_first_experience(build, late):
    strategy, encoder = build(OsirisROriginal, late_replay=late)
    memory, generator = Reservoir(9, (3, 4, 4), staging=9), torch.Generator().manual_seed(0)
    stream = torch.zeros(9, 3, 4, 4, dtype=torch.uint8)
    memory.add(stream, {}, generator)
    assert len(strategy.compose(stream[:3], memory, generator)) == (3 if late else 8)
    before = strategy.graph_key(memory)
    strategy.boundary(encoder)
    assert (strategy.graph_key(memory) != before) == late
    assert len(strategy.compose(stream[:3], memory, generator)) == 8
    twin, _ = build(OsirisROriginal, late_replay=late)
    twin.load_host_state(strategy.host_state())
    assert twin.replaying(memory)
