"""SCALE: its pseudo-positive pairs against a slow version, its two parts and the weight fixed on the first step."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from helpers.steps import step_of
from ocssl.batch import StepOutput
from ocssl.checks import small_learner, small_stream
from ocssl.errors import ConfigError
from ocssl.losses import relation_distillation, supervised_contrastive
from ocssl.methods import Dims
from ocssl.nn import Encoder
from ocssl.options import validate
from ocssl.strategies import Scale, Setup
from ocssl.strategies.authors import ScaleAuthors, ScaleOriginal
from ocssl.strategies.scale import pseudo_positives


def unit(*shape: int, seed: int) -> torch.Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


# -------------------------------------------------------------------------------------------------- pseudo-positives


def slow_likeness(features, temperature):
    """Mean over pairs of views of the row and the column softmax of minus the squared distance, others only."""
    views, n = len(features), len(features[0])

    def affinity(a, b, i, j):
        squared = 2 - 2 * sum(x * y for x, y in zip(features[a][i], features[b][j], strict=True))
        return math.exp(-squared / temperature)

    likeness = [[0.0] * n for _ in range(n)]
    for a in range(views):
        for b in range(views):
            for i in range(n):
                for j in range(n):
                    if i == j:
                        continue
                    row = sum(affinity(a, b, i, k) for k in range(n) if k != i)
                    column = sum(affinity(a, b, k, j) for k in range(n) if k != j)
                    share = affinity(a, b, i, j)
                    likeness[i][j] += (share / row + share / column) / 2 / views**2
    return likeness


def slow_pseudo_positives(features, temperature, threshold):
    likeness = slow_likeness(features, temperature)
    n = len(likeness)
    others = [likeness[i][j] for i in range(n) for j in range(n) if i != j]
    mean = sum(others) / len(others)
    bar = mean + threshold * (max(others) - mean)
    margin = min(abs(value - bar) for value in others)
    return [[i == j or likeness[i][j] > bar for j in range(n)] for i in range(n)], margin


@settings(deadline=None, derandomize=True)
@given(
    views=st.integers(1, 2),
    n=st.integers(3, 6),
    d=st.integers(2, 5),
    seed=st.integers(0, 1000),
    temperature=st.sampled_from([0.1, 0.5]),
    threshold=st.sampled_from([0.1, 0.5]),
)
def test_pseudo_positives_are_those_of_the_slow_version(views, n, d, seed, temperature, threshold):
    features = unit(views, n, d, seed=seed)
    expected, margin = slow_pseudo_positives(features.tolist(), temperature, threshold)
    assume(margin > 1e-5)  # closer to the bar, rounding decides
    assert pseudo_positives(features, temperature, threshold).tolist() == expected


def test_samples_of_two_tight_groups_pair_up_within_their_group():
    centres = torch.eye(2, 8).repeat_interleave(4, dim=0)
    features = F.normalize(centres + 0.01 * torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(0)), dim=-1)
    group = torch.arange(8) // 4
    assert torch.equal(pseudo_positives(features), group[:, None] == group[None])


@pytest.mark.parametrize("n", [1, 2, 5])
def test_every_sample_is_its_own_positive(n):
    assert pseudo_positives(unit(2, n, 4, seed=0)).diagonal().all()


def test_pairs_are_found_without_a_gradient():
    features = unit(2, 4, 3, seed=0).requires_grad_()
    assert not pseudo_positives(features).requires_grad


# --------------------------------------------------------------------------------------------------- the two parts


OF_THE_DEFAULT = {"joint_pairs": False, "relation_pass": False, "own_pair": "excluded", "past_head": "copied"}


def parts(strategy, encoder, batch, views):
    return strategy.losses(step_of(batch, views, strategy.encode(encoder, views, joint=True)))


def by_hand(strategy, encoder, batch, views, anchor_rows, normalize=True):
    """Both parts from the pure functions: pairs among the anchors by their backbone features, relations of one view."""
    now, before = encoder(views, joint=True), strategy.past(views, joint=True)
    current, past = (F.normalize(features.projected, dim=-1) for features in (now, before))
    alike = pseudo_positives(F.normalize(now.backbone, dim=-1) if normalize else now.backbone)
    anchors = torch.zeros(len(batch), dtype=torch.bool)
    anchors[anchor_rows] = True
    pairs = torch.zeros(len(batch), len(batch), dtype=torch.bool)
    pairs[anchor_rows, anchor_rows] = alike[anchor_rows, anchor_rows]
    mask = torch.cat([torch.cat([pairs, pairs], 1), torch.cat([pairs, pairs], 1)])
    contrast = supervised_contrastive(torch.cat([*current]), mask, torch.cat([anchors, anchors]), 0.1, 0.07)
    return contrast, relation_distillation(current[0], past[0], 0.1, 0.01)


@pytest.mark.parametrize(
    ("anchors", "replay", "rows"),
    [("stream", 5, slice(0, 3)), ("replay", 5, slice(3, 6)), ("stream", 0, slice(0, 3)), ("replay", 0, slice(0, 3))],
)
@pytest.mark.parametrize("normalize", [False, True])
def test_the_loss_is_contrast_of_the_anchors_plus_weighted_forgetting(
    build, some_views, batch_of, anchors, replay, rows, normalize
):
    strategy, encoder = build(ScaleAuthors, anchors=anchors, normalize_features=normalize, **OF_THE_DEFAULT)
    batch, views = batch_of(3, replay), some_views(3 + replay)
    got = parts(strategy, encoder, batch, views)
    contrast, forgetting = by_hand(strategy, encoder, batch, views, rows, normalize)
    torch.testing.assert_close(got["contrast"], contrast)
    torch.testing.assert_close(got["forgetting"], strategy.weight * forgetting)


def test_the_default_finds_pairs_by_features_of_length_one(build, batch_of):
    by_length = 0
    for seed in range(10):
        strategy, encoder = build(Scale)
        views = 5 * torch.randn(2, 8, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
        got = parts(strategy, encoder, batch_of(8, 0), views)["contrast"]
        expected, raw = (
            by_hand(strategy, encoder, batch_of(8, 0), views, slice(0, 8), one)[0] for one in (True, False)
        )
        torch.testing.assert_close(got, expected)
        by_length += not torch.isclose(expected, raw)
    assert by_length > 0


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_samples_have_nothing_to_forget_and_leave_the_weight_open(build, some_views, batch_of, n):
    strategy, encoder = build(Scale)
    few = parts(strategy, encoder, batch_of(n, 0), some_views(n))
    assert few["forgetting"].item() == 0
    sum(few.values()).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())
    assert strategy.weight.isnan()
    enough = parts(strategy, encoder, batch_of(3, 0), some_views(3))
    torch.testing.assert_close(enough["forgetting"], 0.15 * enough["contrast"])


def test_the_first_step_fixes_the_weight_and_later_steps_keep_it(build, some_views, batch_of):
    strategy, encoder = build(Scale, forgetting_weight=0.15)
    first = parts(strategy, encoder, batch_of(3, 0), some_views(3))
    weight = strategy.weight.clone()
    _, forgetting = by_hand(strategy, encoder, batch_of(3, 0), some_views(3), slice(0, 3))
    torch.testing.assert_close(weight, 0.15 * first["contrast"].detach() / forgetting.detach())
    torch.testing.assert_close(first["forgetting"], 0.15 * first["contrast"])
    later = parts(strategy, encoder, batch_of(3, 5), some_views(8))
    assert torch.equal(strategy.weight, weight)
    assert not torch.isclose(later["forgetting"], 0.15 * later["contrast"], rtol=1e-3)


def test_the_weight_is_part_of_the_saved_state(build, some_views, batch_of):
    strategy, encoder = build(Scale)
    parts(strategy, encoder, batch_of(3, 0), some_views(3))
    twin, _ = build(Scale)
    assert twin.weight.isnan()
    twin.load_state_dict(strategy.state_dict())
    assert torch.equal(twin.weight, strategy.weight)


def test_the_weight_passes_no_gradient_and_the_past_takes_none(build, some_views, batch_of):
    strategy, encoder = build(Scale)
    sum(parts(strategy, encoder, batch_of(3, 5), some_views(8)).values()).backward()
    assert all(p.grad is None for p in strategy.past.parameters())
    assert any(p.grad.abs().sum() > 0 for p in encoder.parameters())
    assert not strategy.weight.requires_grad


def test_the_past_model_stays_in_evaluation_mode():
    learner = small_learner("scale").partial_fit(small_stream(16))
    learner.transform(small_stream(4))
    assert not any(module.training for module in learner.train_state.strategy.past.modules())


@pytest.mark.parametrize(
    ("kind", "options", "each_pass"),
    [(Scale, {}, False), (ScaleAuthors, {"teacher_update": "minibatch"}, False), (ScaleAuthors, {}, True)],
)
def test_the_past_model_is_copied_after_each_pass_or_after_each_minibatch(
    build, some_views, batch_of, kind, options, each_pass
):
    strategy, encoder = build(kind, **options)
    for parameter in encoder.parameters():
        parameter.data.fill_(0.5)

    def follows() -> bool:
        return all(torch.equal(a, b) for a, b in zip(strategy.past.parameters(), encoder.parameters(), strict=True))

    assert not follows()
    views = some_views(3)
    strategy.after_step(StepOutput(batch_of(3, 0), views, encoder(views, joint=True).detach(), {}, 0), encoder, None)
    assert follows() == each_pass
    strategy.after_minibatch(encoder)
    assert follows()


def test_the_projector_is_512_512_128_without_norms():
    layers = [layer for layer in Scale.projector(Dims(512)) if hasattr(layer, "weight")]
    assert [tuple(layer.weight.shape) for layer in layers] == [(512, 512), (128, 512)]


def test_unknown_options_are_refused_with_the_known_ones(build):
    with pytest.raises(ConfigError, match="anchors must be 'stream' or 'replay', not 'streams'"):
        build(ScaleAuthors, anchors="streams")
    with pytest.raises(ConfigError, match="teacher_update must be 'minibatch' or 'pass', not 'batch'"):
        build(ScaleAuthors, teacher_update="batch")
    with pytest.raises(ConfigError, match="unknown setting 'anchors'"):
        build(Scale, anchors="stream")


# ------------------------------------------------------------------------------------------- passes of other codes


def built(kind, length=1.0, **options):
    """A strategy on a network with batch norm, in float64; the past model is not the current one.

    Backbone features are ``length`` times as long as batch norm makes them.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        dims = Dims(feature=6, hidden=5, output=7)
        backbone = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.BatchNorm1d(6), nn.ReLU())
        encoder = Encoder(backbone, kind.projector(dims), dims.feature)
        setup = Setup(encoder, None, dims, encoder.output_dim, 4, 5, 12)
        strategy = kind(setup, validate(kind.Options, options))
        for parameter in encoder.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
        for parameter in encoder.backbone[2].parameters():
            parameter.data *= length
    return strategy.double(), encoder.double()


def slow_pairs(first, second, lowered, temperature=0.1, threshold=0.1):
    """Pairs by raw features: softmaxes of −(2 − 2 x·y) / t, minus 1000 for a sample and itself; bar from the others."""
    n, views = len(first), (first.tolist(), second.tolist())

    def softmax(values):
        top = max(values)
        shares = [math.exp(value - top) for value in values]
        return [share / sum(shares) for share in shares]

    likeness = [[0.0] * n for _ in range(n)]
    for a in views:
        for b in views:
            logits = [
                [
                    -(2 - 2 * sum(x * y for x, y in zip(a[i], b[j], strict=True))) / temperature
                    - (lowered if i == j else 0)
                    for j in range(n)
                ]
                for i in range(n)
            ]
            rows = [softmax(row) for row in logits]
            columns = [softmax([logits[i][j] for i in range(n)]) for j in range(n)]
            for i in range(n):
                for j in range(n):
                    likeness[i][j] += (0.5 * rows[i][j] + 0.5 * columns[j][i]) / 4
    others = [likeness[i][j] for i in range(n) for j in range(n) if i != j]
    mean = sum(others) / len(others)
    bar = mean + threshold * (max(others) - mean)
    return [[i == j or likeness[i][j] > bar for j in range(n)] for i in range(n)]


def slow_contrast(z, pairs, anchors):
    """Mean over both views of the anchors of the mean −log share of their positives, times 0.1 / 0.07."""
    n, total = len(pairs), 0
    for row in range(2 * n):
        i = row % n
        if i not in anchors:
            continue
        others = [k for k in range(2 * n) if k != row]
        everything = sum((z[row] @ z[k] / 0.1).exp() for k in others)
        positives = [k for k in others if k % n in anchors and pairs[i][k % n]]
        total = total - sum(((z[row] @ z[k] / 0.1).exp() / everything).log() for k in positives) / len(positives)
    return 0.1 / 0.07 * total / (2 * len(anchors))


def slow_forgetting(now, before):
    """Cross-entropy of the similarities to the others at 0.01 in the past and 0.1 now; gradients through both."""
    n, total = len(now), 0
    for i in range(n):
        others = [j for j in range(n) if j != i]
        then = torch.stack([before[i] @ before[j] / 0.01 for j in others])
        these = torch.stack([now[i] @ now[j] / 0.1 for j in others])
        then, these = (logits.exp() / logits.exp().sum() for logits in (then - then.max(), these - these.max()))
        total = total - (then * these.log()).sum()
    return total / n


def slow_step(strategy, encoder, views, anchors):
    """Four passes in training mode: relations, pairs, and two views; the past backbone is followed by today's head."""
    head, backbone = encoder.projector, encoder.backbone
    now = F.normalize(head(backbone(views[0])), dim=1)
    before = F.normalize(head(strategy.past.backbone(views[0])), dim=1)
    forgetting = slow_forgetting(now, before)
    n = views.shape[1]
    together = backbone(torch.cat([*views])).detach()
    pairs = slow_pairs(together[:n], together[n:], lowered=1000)
    z = torch.cat([F.normalize(head(backbone(view)), dim=1) for view in views])
    contrast = slow_contrast(z, pairs, anchors)
    return contrast, 0.15 * contrast.item() / forgetting.item() * forgetting, pairs


@pytest.mark.parametrize("length", [1.0, 15.0])  # the second tells a lowered pair from an excluded one
@pytest.mark.parametrize(("kind", "anchors"), [(ScaleAuthors, range(5, 10)), (ScaleOriginal, range(5))])
def test_loss_gradients_and_statistics_are_those_of_four_passes_and_a_shared_head(batch_of, kind, anchors, length):
    views = torch.randn(2, 12, 3, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    strategy, encoder = built(kind, length)
    got = strategy.losses(step_of(batch_of(5, 7), views, strategy.encode(encoder, views, joint=False)))
    sum(got.values()).backward()
    twin, other = built(kind, length)
    contrast, forgetting, pairs = slow_step(twin, other, views, anchors)
    (contrast + forgetting).backward()
    assert 0 < sum(pairs[i][j] for i in anchors for j in anchors if i != j) < len(anchors) * (len(anchors) - 1)
    torch.testing.assert_close(got["contrast"], contrast, rtol=0, atol=1e-10)
    torch.testing.assert_close(got["forgetting"], forgetting, rtol=0, atol=1e-10)
    for a, b in zip(encoder.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-10)
    for a, b in zip(encoder.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)
    assert encoder.backbone[2].num_batches_tracked == 4
    assert all(p.grad is None for p in strategy.past.parameters())


def test_each_choice_of_the_authors_makes_a_difference(batch_of):
    def step(seed=1, **options):
        views = torch.randn(2, 12, 3, 4, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        strategy, encoder = built(ScaleAuthors, **options)
        losses = strategy.losses(step_of(batch_of(5, 7), views, strategy.encode(encoder, views, joint=False)))
        sum(losses.values()).backward()
        return losses["contrast"].item(), encoder.projector[0].weight.grad, next(encoder.buffers())

    _, gradient, statistics = step()
    assert any(abs(step(seed, joint_pairs=False)[0] - step(seed)[0]) > 1e-3 for seed in range(10))
    assert not torch.allclose(step(past_head="copied")[1], gradient, rtol=1e-3)
    assert not torch.allclose(step(relation_pass=False)[2], statistics, rtol=1e-3)


@pytest.mark.parametrize("length", [1.0, 15.0])
def test_a_lowered_own_pair_keeps_a_share_of_the_softmax_where_features_are_long(length):
    kept = 0
    for seed in range(20):
        features = (length * torch.rand(2, 8, 4, generator=torch.Generator().manual_seed(seed))).double()
        lowered = pseudo_positives(features, own_offset=-1000.0)
        assert lowered.tolist() == slow_pairs(*features, lowered=1000)
        assert pseudo_positives(features).tolist() == slow_pairs(*features, lowered=math.inf)
        kept += not torch.equal(lowered, pseudo_positives(features))
    assert (kept > 0) == (length > 1)


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_samples_are_no_trouble_to_a_shared_head(batch_of, n):
    strategy, encoder = built(ScaleAuthors, joint_pairs=False, relation_pass=False)
    encoder.eval()
    views = torch.randn(2, n, 3, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    losses = strategy.losses(step_of(batch_of(n, 0), views, strategy.encode(encoder, views, joint=True)))
    sum(losses.values()).backward()
    assert losses["forgetting"].item() == 0
    assert all(p.grad is None or p.grad.isfinite().all() for p in encoder.parameters())


def test_further_passes_cost_no_backward_pass():
    default, authors = (
        small_learner("scale", variant=variant).partial_fit(small_stream(40)) for variant in ("default", "authors")
    )
    assert default.budget == authors.budget
