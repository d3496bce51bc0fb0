"""Alignment: which features meet which target, in the default algorithms and their variants."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from helpers.steps import step_of
from ocssl.checks import check_strategy, small_learner, small_stream
from ocssl.errors import ConfigError
from ocssl.losses import negative_cosine
from ocssl.methods import Dims, SimCLR, SimSiam
from ocssl.nn.encoder import over_views
from ocssl.strategies import CaSSLe, CaSSLeR, ClaB, ClaE, ClaR, Pfr, registry
from ocssl.strategies.authors import (
    CaSSLeAuthors,
    CaSSLeOriginal,
    CaSSLeRAuthors,
    CaSSLeROriginal,
    ClaBAuthors,
    ClaEAuthors,
    PfrOriginal,
)

STREAM, REPLAY = slice(0, 3), slice(3, 8)
CASES = [(ClaB, STREAM, 1.0), (ClaE, REPLAY, 0.3), (CaSSLe, STREAM, 1.0), (CaSSLeR, REPLAY, 1.0), (Pfr, STREAM, 1.0)]
AUTHORS = [
    (ClaBAuthors, STREAM, 1.0),
    (ClaEAuthors, REPLAY, 0.3),
    (CaSSLeAuthors, STREAM, 1.0),
    (CaSSLeRAuthors, REPLAY, 1.0),
]
joint_or_not = pytest.mark.parametrize("joint", [True, False])


def made(build, kind, **options):
    batch = 8 if kind.composition == "stream+replay" else 3
    return build(kind, batch=batch, **options)


def by_hand(strategy, views, features, rows, joint, omega):
    """ω times the negative cosine of the aligned features and those of the target's network."""
    level = strategy.level
    target = getattr(strategy.target.network(views[:, rows], joint), level)
    predicted = over_views(strategy.aligner, getattr(features, level)[:, rows], joint)
    return omega * negative_cosine(predicted, target)


@joint_or_not
@pytest.mark.parametrize(("kind", "rows", "omega"), CASES)
def test_the_penalty_is_the_weighted_distance_of_the_aligned_rows(
    build, some_views, batch_of, kind, rows, omega, joint
):
    strategy, encoder = made(build, kind)
    strategy.target.ready = True
    views = some_views(8)
    features = encoder(views, joint)
    got = strategy.penalty(step_of(batch_of(3, 5), views, features))
    torch.testing.assert_close(got["alignment"], by_hand(strategy, views, features, rows, joint, omega))
    scaled, _ = made(build, kind, omega=2.5)
    scaled.target.ready = True
    got = scaled.penalty(step_of(batch_of(3, 5), views, features))
    torch.testing.assert_close(got["alignment"], by_hand(scaled, views, features, rows, joint, 2.5))


@joint_or_not
def test_cla_r_aligns_both_views_to_the_stored_feature(build, some_views, batch_of, joint):
    strategy, encoder = made(build, ClaR)
    views, stored = some_views(8), torch.randn(5, 7, generator=torch.Generator().manual_seed(1))
    features = encoder(views, joint)
    got = strategy.penalty(step_of(replace(batch_of(3, 5), recalled={"features": stored}), views, features))
    predicted = over_views(strategy.aligner, features.projected[:, REPLAY], joint)
    torch.testing.assert_close(got["alignment"], negative_cosine(predicted, stored[None].expand(2, -1, -1)))
    assert strategy.columns()["features"].shape == (7,)


@pytest.mark.parametrize("kind", [CaSSLe, CaSSLeR, Pfr])
def test_without_a_boundary_there_is_no_target(build, some_views, batch_of, kind):
    strategy, encoder = made(build, kind)
    views = some_views(8)
    features = encoder(views, joint=True)
    assert strategy.penalty(step_of(batch_of(3, 5), views, features)) == {}
    strategy.boundary(encoder)
    assert strategy.penalty(step_of(batch_of(3, 5), views, features)).keys() == {"alignment"}
    twin, _ = made(build, kind)
    twin.load_host_state(strategy.host_state())
    assert twin.target.ready


@pytest.mark.parametrize("kind", [ClaE, CaSSLeR])
def test_without_replay_samples_nothing_is_aligned(build, some_views, batch_of, kind):
    strategy, encoder = made(build, kind)
    strategy.target.ready = True
    views = some_views(3)
    assert strategy.penalty(step_of(batch_of(3, 0), views, encoder(views, joint=True))) == {}


ALIGNED = ["cla-r", "cla-b", "cassle-r", "multiview-r", "adapt", "taught"]
QUICK = ["cla-r", "taught"]  # the others share their code


@pytest.mark.parametrize(
    "name", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in ALIGNED]
)
def test_without_weight_the_contract_holds(name):
    check_strategy(name, omega=0.0)


@pytest.mark.parametrize("name", ALIGNED)
def test_without_weight_nothing_is_aligned(name):
    learner = small_learner(name, omega=0.0).partial_fit(small_stream(20))
    assert "alignment" not in learner.losses


def test_the_aligner_has_the_chosen_width_or_a_default(build):
    def widths(kind, **options):
        first, *_, last = made(build, kind, **options)[0].aligner
        return first.in_features, first.out_features, last.out_features

    assert widths(ClaE) == (7, 5, 7)
    assert widths(ClaE, aligner_dim=9) == (7, 9, 7)
    assert widths(Pfr) == (6, 3, 6)
    assert widths(Pfr, aligner_dim=9) == (6, 9, 6)
    assert widths(CaSSLeOriginal) == (7, 2048, 7)
    for width in (0, -3, 2.5):
        with pytest.raises(ConfigError, match="aligner_dim must be a whole number from 1 to 65,536 or unset"):
            made(build, ClaE, aligner_dim=width)


@pytest.mark.parametrize(("name", "value"), [("omega", -0.1), ("tau", 1.1), ("tau", -0.1)])
def test_weights_and_decays_out_of_range_are_refused(build, name, value):
    with pytest.raises(ConfigError, match=f"{name} must be a number"):
        made(build, ClaE, **{name: value})


@pytest.mark.parametrize("kind", [ClaR, CaSSLe, Pfr])
def test_tau_belongs_to_strategies_with_a_moving_average(build, kind):
    with pytest.raises(ConfigError, match="unknown setting 'tau'"):
        made(build, kind, tau=0.9)


# ------------------------------------------------------------------------------------------------------- variants


@pytest.mark.parametrize("name", ["cla-b", "cla-e", "cassle", "cassle-r", "pfr"])
def test_with_the_settings_of_the_default_a_variant_is_the_default(build, some_views, batch_of, name):
    views = some_views(8)
    default, encoder = made(build, registry.get(name))
    default.target.ready = True
    features = encoder(views, joint=False)
    expected = default.penalty(step_of(batch_of(3, 5), views, features))
    for variant in registry.variants(name):
        kind = registry.get(name, variant)
        options = {"joint_target": False, "distance": "cosine", "aligner_dim": None}
        strategy, _ = made(build, kind, **options)
        strategy.target.ready = True
        assert torch.equal(
            strategy.penalty(step_of(batch_of(3, 5), views, features))["alignment"], expected["alignment"]
        )


@pytest.mark.parametrize(("kind", "rows", "omega"), AUTHORS)
def test_the_authors_pass_the_views_of_target_and_aligner_together(build, some_views, batch_of, kind, rows, omega):
    strategy, encoder = made(build, kind)
    views = some_views(8)
    features = encoder(views, joint=False)
    got = strategy.penalty(step_of(batch_of(3, 5), views, features))
    torch.testing.assert_close(got["alignment"], by_hand(strategy, views, features, rows, joint=True, omega=omega))


@pytest.mark.parametrize("from_start", [True, False])
@pytest.mark.parametrize("kind", [CaSSLeAuthors, CaSSLeRAuthors])
def test_the_authors_align_to_the_untrained_network(build, kind, from_start):
    strategy, _ = made(build, kind, from_start=from_start)
    assert strategy.target.ready == from_start
    assert made(build, kind)[0].target.ready


@pytest.mark.parametrize("kind", [CaSSLeOriginal, CaSSLeROriginal])
def test_the_original_has_no_target_before_a_border(build, kind):
    assert not made(build, kind)[0].target.ready


def slow_cosine(a: list[float], b: list[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def slow_predictive(predicted, target):
    """2 − 2 cos, averaged over views and samples."""
    pairs = [*zip(predicted.flatten(0, 1).tolist(), target.flatten(0, 1).tolist(), strict=True)]
    return sum(2 - 2 * slow_cosine(a, b) for a, b in pairs) / len(pairs)


def slow_contrastive(predicted, target, temperature=0.2):
    """Both views in one matrix, predictions against targets; the mean of both directions."""
    p, z = predicted.flatten(0, 1).tolist(), target.flatten(0, 1).tolist()

    def one_way(rows, others):
        total = 0.0
        for i, row in enumerate(rows):
            shares = [math.exp(slow_cosine(row, other) / temperature) for other in others]
            total -= math.log(shares[i] / sum(shares))
        return total / len(rows)

    return (one_way(p, z) + one_way(z, p)) / 2


@joint_or_not
@pytest.mark.parametrize(("method", "slow"), [(SimSiam, slow_predictive), (SimCLR, slow_contrastive)])
@pytest.mark.parametrize("kind", [CaSSLeOriginal, CaSSLeROriginal])
def test_the_original_distils_as_its_own_code(build, some_views, batch_of, kind, method, slow, joint):
    strategy, encoder = (module.double() for module in made(build, kind))
    strategy.method = method(Dims(feature=6, hidden=5, output=7)).double()
    strategy.target.ready = True
    views = some_views(8).double()
    features = strategy.encode(encoder, views, joint)
    rows = REPLAY if kind is CaSSLeROriginal else STREAM
    for parameter in strategy.target.network.parameters():
        parameter.data *= 1.1
    got = strategy.penalty(step_of(batch_of(3, 5), views, features))["alignment"]
    predicted = over_views(strategy.aligner, features.projected[:, rows], joint)
    expected = slow(predicted, strategy.target.network(views[:, rows], joint).projected)
    assert got.item() == pytest.approx(expected, rel=0, abs=1e-10)


def test_the_original_distance_has_twice_the_gradient_of_the_cosine():
    predicted = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    method, slopes = SimSiam(Dims(feature=6, hidden=5, output=7)), []
    for distance in (method.distance, method.distillation):
        row = predicted.clone().requires_grad_()
        distance(row, target).backward()
        slopes.append(row.grad)
    torch.testing.assert_close(slopes[1], 2 * slopes[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", [CaSSLeOriginal, PfrOriginal])
def test_the_distance_can_be_that_of_the_method(build, some_views, batch_of, kind, monkeypatch):
    strategy, encoder = made(build, kind, distance="method")
    strategy.target.ready = True
    asked = []
    monkeypatch.setattr(strategy.method, "distance", lambda p, t: asked.append((p.shape, t.shape)) or p.mean())
    views = some_views(8)
    strategy.penalty(step_of(batch_of(3, 5), views, encoder(views, joint=True)))
    assert len(asked) == 1
    assert asked[0][0] == asked[0][1]


@pytest.mark.parametrize("distance", ["method", "original"])
def test_a_method_without_a_distance_is_refused_before_it_trains(distance):
    hook = {"method": "distance", "original": "distillation"}[distance]
    with pytest.raises(ConfigError, match=rf"method 'DINO' has no {hook}\(\), so distance must be 'cosine'"):
        small_learner("cassle", variant="original", method="dino", distance=distance)
