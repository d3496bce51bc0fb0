"""The paper's arithmetic, by its own figures and by counting steps one by one."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocssl.budget import Budget, plan
from ocssl.cli.budget import affordable
from ocssl.errors import ConfigError


def test_the_high_budget_of_the_paper():
    high = plan(samples=45_000, stream_batch=10, batch=138, passes=3, views=2)
    assert (high.cbp, high.steps, high.iid_epochs) == (3_726_000, 13_500, 42)


def test_the_low_budget_of_the_paper():
    low = plan(samples=45_000, stream_batch=10, batch=30, passes=1, views=2)
    assert (low.cbp, low.steps, low.iid_epochs) == (270_000, 4_500, 3)


@settings(deadline=None, derandomize=True)
@given(
    samples=st.integers(1, 300),
    stream_batch=st.integers(1, 40),
    batch=st.integers(1, 60),
    passes=st.integers(1, 4),
    views=st.fractions(1, 4, max_denominator=64),
)
def test_a_plan_is_what_walking_through_the_stream_spends(samples, stream_batch, batch, passes, views):
    spent, waiting = Budget(), 0
    for _ in range(samples):
        waiting += 1
        if waiting == stream_batch:
            waiting = 0
            for _ in range(passes):
                spent.charge(ceil(views * batch))
    planned = plan(samples, stream_batch, batch, passes, views)
    assert (planned.cbp, planned.steps) == (spent.spent, spent.steps)


@settings(deadline=None, derandomize=True)
@given(cbp=st.integers(2000, 30_000), cost=st.fractions(1, 4, max_denominator=64), passes=st.integers(1, 4))
def test_a_budget_buys_the_largest_batch_that_it_pays_for(cbp: int, cost: Fraction, passes: int) -> None:
    def paid(batch: int) -> bool:
        return plan(100, 10, batch, passes, cost).cbp <= cbp

    ((batch, _),) = affordable(cbp, cost, minibatches=10, smallest=10, batch=None, passes=passes)
    assert paid(batch)
    assert not paid(batch + 1)


@settings(deadline=None, derandomize=True)
@given(passes=st.integers(1, 9), batch=st.integers(1, 300), stream_batch=st.integers(1, 50))
def test_iid_epochs_are_the_fewest_that_spend_no_less_per_sample(passes, batch, stream_batch):
    epochs = plan(1000, stream_batch, batch, passes).iid_epochs
    assert epochs * stream_batch >= passes * batch
    assert (epochs - 1) * stream_batch < passes * batch


@pytest.mark.parametrize("name", ["samples", "stream_batch", "batch", "passes", "views"])
def test_nothing_below_one_can_be_planned(name):
    numbers = {"samples": 100, "stream_batch": 10, "batch": 20, "passes": 1, "views": 2, name: 0}
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, not 0"):
        plan(**numbers)
