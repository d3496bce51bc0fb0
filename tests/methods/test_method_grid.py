"""Every method with every strategy that takes one, with 2, 4 and 8 views."""

from __future__ import annotations

import itertools

import pytest
import torch

from ocssl import methods, strategies
from ocssl.batch import Batch, Step
from ocssl.checks import check_strategy, small_learner, small_stream

METHODS = methods.registry.names()
STRATEGIES = [name for name in strategies.registry.names() if not strategies.registry.get(name).own_loss]
VIEWS = (2, 4, 8)
FEW = {name: {"prototypes": 64} for name in ("dino", "swav")}  # thousands by default, which take most of the time
# Each method once, each time with another strategy and number of views.
QUICK = [(name, STRATEGIES[i % len(STRATEGIES)], VIEWS[i % len(VIEWS)]) for i, name in enumerate(METHODS)]
GRID = [*itertools.product(METHODS, STRATEGIES, VIEWS)]


@pytest.mark.parametrize(
    ("method", "strategy", "views"),
    [case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in GRID],
)
def test_every_strategy_keeps_the_contract_with_every_method(method: str, strategy: str, views: int) -> None:
    settings = {"joint_views": views > 2, **FEW.get(method, {})}  # two views: each alone
    check_strategy(strategy, method=method, views=views, **settings)


@pytest.mark.parametrize(("name", "views"), [*itertools.product(METHODS, VIEWS)])
def test_the_loss_uses_every_view_and_falls_on_a_fixed_batch(name: str, views: int) -> None:
    """Target networks, queues and centres stand still meanwhile; otherwise they change the loss."""
    state = small_learner("finetune", method=name, views=views, **FEW.get(name, {})).train_state
    method, batch = state.strategy.method, Batch(small_stream(12), stream=12)
    seen = state.augment(batch.images, views=views, generator=state.generator).requires_grad_()
    trained = [p for module in (state.encoder, method) for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.02)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        features = state.encoder(seen, joint=True)
        losses.append(method.loss(Step(batch, seen, features, torch.Generator().manual_seed(0))))
        losses[-1].backward()
        optimizer.step()
    assert torch.stack(losses).isfinite().all()
    assert losses[-1] < losses[0]
    assert seen.grad.flatten(1).any(dim=1).all()


@pytest.mark.parametrize("name", METHODS)
def test_a_minibatch_of_one_image_has_a_finite_loss(name: str) -> None:
    learner = small_learner("finetune", method=name).partial_fit(small_stream(5)).flush()
    assert learner.seen == 5
    assert torch.tensor(learner.losses["total"]).isfinite()


@pytest.mark.parametrize("name", METHODS)
def test_low_precision_stays_near_full_precision(name: str) -> None:
    losses = []
    for precision in ("fp32", "bf16"):
        learner = small_learner("finetune", method=name, precision=precision, passes=1)
        losses.append(learner.partial_fit(small_stream(4)).losses["total"])
    assert losses[1] == pytest.approx(losses[0], rel=0.05, abs=0.05)


def test_two_views_are_the_default_of_all_methods_but_those_of_many() -> None:
    views = {name: methods.registry.get(name).Options().views for name in METHODS}
    assert {name: count for name, count in views.items() if count != 2} == {"emp": 20, "emp-simclr": 20, "lejepa": 8}
