"""LUMP's share against the Beta distribution, its mix against the formula."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scipy.stats import beta, kstest

from ocssl.checks import small_learner, small_stream
from ocssl.errors import ConfigError
from ocssl.memory import Reservoir
from ocssl.strategies import Lump
from ocssl.strategies.authors import LumpOriginal
from ocssl.strategies.lump import draw_beta


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("alpha", [0.3, 0.4, 1.0, 2.0, 8.0])
def test_shares_are_drawn_from_the_beta_distribution(alpha):
    generator = seeded(1)
    shares = torch.stack([draw_beta(alpha, generator) for _ in range(4000)])
    assert shares.shape == (4000,)
    assert kstest(shares.double(), beta(alpha, alpha).cdf).pvalue > 0.001


def test_shares_are_never_nan_or_outside_zero_to_one():
    generator = seeded(2)
    shares = torch.stack([draw_beta(0.01, generator) for _ in range(2000)])
    assert ((shares >= 0) & (shares <= 1)).all()


@pytest.mark.parametrize("alpha", [0, -1.0])
def test_a_beta_distribution_that_does_not_exist_is_refused(build, alpha):
    with pytest.raises(ConfigError, match=f"alpha must be a number above 0, not {alpha}"):
        build(Lump, batch=3, alpha=alpha)


def test_both_views_are_the_same_blend_of_stream_and_replay(build, some_views, batch_of):
    strategy, _ = build(Lump, stream_batch=3, batch=3)
    views, batch = some_views(6), batch_of(3, 3)
    for seed in range(5):
        mixed = strategy.mix(views, batch, seeded(seed))
        share = draw_beta(0.4, seeded(seed)).item()
        assert mixed.shape == (2, 3, 3, 4, 4)
        for view in range(2):
            for i in range(3):
                expected = share * views[view, i] + (1 - share) * views[view, 3 + i]
                torch.testing.assert_close(mixed[view, i], expected)


def test_without_replay_samples_there_is_nothing_to_blend(build, some_views, batch_of):
    strategy, _ = build(Lump, stream_batch=3, batch=3)
    views = some_views(3)
    assert torch.equal(strategy.mix(views, batch_of(3, 0), seeded()), views)


def test_the_original_blends_the_second_view_with_the_stored_one(build, some_views, batch_of):
    strategy, _ = build(LumpOriginal, stream_batch=3, batch=3)
    assert strategy.columns()["view"].shape == (3, 4, 4)
    views, stored = some_views(6), torch.randn(3, 3, 4, 4, generator=seeded(7))
    mixed = strategy.mix(views, replace(batch_of(3, 3), recalled={"view": stored}), seeded(3))
    share = draw_beta(0.4, seeded(3)).item()
    torch.testing.assert_close(mixed[0], share * views[0, :3] + (1 - share) * views[0, 3:])
    torch.testing.assert_close(mixed[1], share * views[1, :3] + (1 - share) * stored)


def test_the_original_without_its_two_choices_learns_as_the_default():
    plain = small_learner("lump").partial_fit(small_stream(24)).train_state
    choices = {"variant": "original", "second_view": "new", "early_replay": False}
    original = small_learner("lump", **choices).partial_fit(small_stream(24)).train_state
    for name, weight in plain.encoder.state_dict().items():
        assert torch.equal(weight, original.encoder.state_dict()[name]), name


@pytest.mark.parametrize(
    ("kind", "options", "first"),
    [(Lump, {}, 4), (LumpOriginal, {"early_replay": False}, 4), (LumpOriginal, {}, 3)],
)
def test_blending_begins_with_one_sample_more_than_a_batch_or_with_a_batch(build, kind, options, first):
    strategy, _ = build(kind, stream_batch=3, batch=3, **options)
    memory = Reservoir(8, (3, 4, 4), staging=3, columns=strategy.columns())
    sizes = []
    for _ in range(6):
        stream = torch.ones(3, 3, 4, 4, dtype=torch.uint8)
        sizes.append((len(memory), len(strategy.compose(stream, memory, seeded()))))
        memory.add(stream[:1], {}, seeded())
    assert sizes == [(held, 6 if held >= first else 3) for held in range(6)]
