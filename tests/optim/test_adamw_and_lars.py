"""AdamW against torch's own optimiser, LARS against its formula, learning rates against their values."""

from __future__ import annotations

import pytest
import torch
from test_sgd import gradients, parameters
from torch import nn

import ocssl
from ocssl.checks import small_learner, small_stream
from ocssl.checks.training import _assert_same
from ocssl.errors import ConfigError
from ocssl.optim import LARS, SGD, AdamW, Optimizer, ParameterGroup, registry


def test_adamw_takes_the_steps_of_torch() -> None:
    ours, theirs = parameters(), parameters()
    optimizer = AdamW(ours, AdamW.Options(lr=0.05, weight_decay=0.1, beta1=0.8, beta2=0.95))
    reference = torch.optim.AdamW(theirs, lr=0.05, weight_decay=0.1, betas=(0.8, 0.95))
    for given in gradients(6):
        for mine, other, gradient in zip(ours, theirs, given, strict=True):
            mine.grad, other.grad = (None if gradient is None else gradient.clone() for _ in range(2))
        optimizer.step()
        reference.step()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_lars_follows_its_formula(weight_decay: float) -> None:
    ours = parameters()
    optimizer = LARS(ours, LARS.Options(lr=0.5, trust=0.02, weight_decay=weight_decay, momentum=0.9))
    expected = [weight.detach().double() for weight in ours]
    velocity = [torch.zeros_like(weight) for weight in expected]
    for given in gradients(5):
        for i, gradient in enumerate(given):
            ours[i].grad = None if gradient is None else gradient.clone()
            if gradient is None:
                continue
            weight, slope, ratio = expected[i], gradient.double(), 1.0
            if weight.ndim > 1:
                size = float(weight.norm())
                ratio = 0.02 * size / (float(slope.norm()) + weight_decay * size)
                slope = slope + weight_decay * weight
            velocity[i] = 0.9 * velocity[i] + ratio * slope
            expected[i] = weight - 0.5 * velocity[i]
        optimizer.step()
    for weight, right in zip(ours, expected, strict=True):
        torch.testing.assert_close(weight.detach().double(), right, rtol=1e-5, atol=1e-6)


def test_a_weight_of_zeros_moves_by_the_plain_gradient() -> None:
    weight = torch.nn.Parameter(torch.zeros(2, 2))
    weight.grad = torch.ones(2, 2)
    LARS([weight], LARS.Options(lr=0.5)).step()
    assert weight.tolist() == [[-0.5, -0.5], [-0.5, -0.5]]


@pytest.mark.parametrize("kind", [SGD, AdamW, LARS])
def test_a_changing_rate_takes_the_steps_of_that_rate(kind: type[Optimizer]) -> None:
    """One optimiser with a schedule, and one whose constant rate is set anew before each step."""
    ours, theirs = parameters(), parameters()
    scheduled = kind(ours, kind.Options(lr=0.2, warmup=2, anneal=2))
    plain = kind(theirs, kind.Options(lr=0.2))
    for number, (given, share) in enumerate(zip(gradients(6), (0.5, 1.0, 1.0, 1.0, 0.5, 1.0), strict=True)):
        if number == 3:
            scheduled.anneal()
        for mine, other, gradient in zip(ours, theirs, given, strict=True):
            mine.grad, other.grad = (None if gradient is None else gradient.clone() for _ in range(2))
        scheduled.step()
        plain.update(0.2 * share)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("name", registry.names())
def test_a_learner_goes_on_to_the_bit_in_a_warm_up_and_in_an_anneal(name: str, tmp_path) -> None:
    settings = {"optimizer": name, "lr": 0.01, "warmup": 20, "anneal": 10}
    stream = small_stream(64)
    for saved_at, annealed_at in ((16, 40), (48, 40)):
        whole, cut = small_learner("er", **settings), small_learner("er", **settings)
        for learner in (whole, cut):
            for start in range(0, 64, 8):
                if start == annealed_at:
                    learner.anneal()
                if learner is cut and start == saved_at:
                    learner.save(tmp_path / "state")
                    learner = cut = ocssl.Learner.load(tmp_path / "state")
                learner.partial_fit(stream[start : start + 8])
        _assert_same(whole, cut, f"a resumed run with {name} differs")


def test_another_anneal_after_loading_begins_when_it_is_asked_for(tmp_path) -> None:
    small_learner("er", lr=0.01, passes=1, anneal=2).partial_fit(small_stream(8)).save(tmp_path)
    optimizer = (learner := ocssl.Learner.load(tmp_path, anneal=8)).train_state.optimizer
    rates: list[float] = []
    optimizer.update = lambda lr: rates.append(float(lr))  # type: ignore[method-assign]
    learner.partial_fit(small_stream(8)).anneal().partial_fit(small_stream(12))
    assert rates == pytest.approx([0.01, 0.01, 0.01, 0.00875, 0.0075])


def test_an_anneal_has_to_be_planned() -> None:
    with pytest.raises(ConfigError, match=r"anneal is 0; set the number of steps, e.g. anneal=500"):
        small_learner("er").anneal()


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (lambda a, b, share: None, r"groups\(\) of the strategy must return a list of ParameterGroup.*, not NoneType"),
        (lambda a, b, share: [([a], share)], "must return a list of ParameterGroup.*, not one of tuple"),
        (lambda a, b, share: [ParameterGroup([a], 0.5)], "must give shares as tensors of one number, .*, not 0.5"),
        (lambda a, b, share: [ParameterGroup([a], share[None])], r"tensors of one number, .*, not one of shape \(1,\)"),
        (
            lambda a, b, share: [ParameterGroup([nn.Parameter(torch.ones(3, 2))], share)],
            r"has a parameter of shape \(3, 2\) that is not trained; leave it out",
        ),
        (
            lambda a, b, share: [ParameterGroup([a, b], share), ParameterGroup([b], share)],
            r"has the parameter of shape \(4,\) more than once; put it into one group",
        ),
        (lambda a, b, share: [ParameterGroup([a, a], share)], "more than once"),
        (lambda a, b, share: [ParameterGroup([("a", a)], share)], "has a parameter of type tuple that is not trained"),
    ],
)
def test_groups_that_could_not_be_updated_are_refused(groups, message: str) -> None:
    first, second = nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.ones(4))
    optimizer = SGD([first, second], SGD.Options())
    with pytest.raises(ConfigError, match=message):
        optimizer.divide(groups(first, second, torch.tensor(0.5)))


class Halving:
    """The learning rate falls by half in every step."""

    def __init__(self) -> None:
        self.rate = torch.ones(())

    def next(self):
        return self.rate.div_(2)

    def state_dict(self):
        return {"halving.rate": self.rate}


@pytest.fixture
def own_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    class Scheduled(SGD):
        def __init__(self, parameters, options, *, fused=False) -> None:
            super().__init__(parameters, options, fused=fused)
            self.schedule = Halving()

    monkeypatch.setitem(registry._entries, "scheduled", Scheduled)


@pytest.mark.usefixtures("own_schedule")
@pytest.mark.parametrize("settings", [{"warmup": 5}, {"anneal": 5}])
def test_an_optimiser_with_a_schedule_of_its_own_refuses_the_settings_of_the_other(settings: dict[str, int]) -> None:
    message = "optimizer 'scheduled' has a schedule of its own and does not read warmup and anneal; leave them out"
    with pytest.raises(ConfigError, match=message):
        small_learner("er", optimizer="scheduled", **settings)


@pytest.mark.usefixtures("own_schedule")
def test_an_optimiser_with_a_schedule_of_its_own_does_not_anneal() -> None:
    learner = small_learner("er", optimizer="scheduled").partial_fit(small_stream(8))
    with pytest.raises(ConfigError, match="optimizer 'scheduled' has a schedule of its own and cannot anneal"):
        learner.anneal()
