"""Copies and moving averages of networks, in closed form."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ocssl.nn import ema_update, frozen_copy
from ocssl.nn.ema import Average, copy_weights


def small_network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


@pytest.mark.parametrize("tau", [0.0, 0.5, 0.9, 0.999, 1.0])
def test_a_moving_average_has_its_closed_form_after_many_updates(tau):
    """θ′ₙ = τⁿ θ′₀ + (1 − τ) Σₖ τⁿ⁻ᵏ θₖ, in double precision."""
    teacher, student = small_network(), small_network()
    start = [p.detach().double().clone() for p in teacher.parameters()]
    history: list[list[torch.Tensor]] = []
    for _ in range(7):
        for parameter in student.parameters():
            parameter.data.normal_()
        history.append([p.detach().double().clone() for p in student.parameters()])
        ema_update(teacher, student, tau)
    n = len(history)
    for i, parameter in enumerate(teacher.parameters()):
        expected = tau**n * start[i] + (1 - tau) * sum(tau ** (n - 1 - k) * history[k][i] for k in range(n))
        torch.testing.assert_close(parameter.double(), expected, atol=1e-5, rtol=1e-5)


def averaged(values: list[float], tau: float, power: float) -> float:
    network = nn.Linear(1, 1, bias=False).double()
    average = Average(network, tau, power)
    for value in values:
        nn.init.constant_(network.weight, value)
        average.update(network)
    return average.network.weight.item()


@pytest.mark.parametrize(("power", "weights"), [(1.0, [1, 2, 3, 4, 5]), (2.0, [1, 3, 6, 10, 15])])
def test_steps_weigh_as_a_power_until_the_decay_is_reached(power: float, weights: list[int]) -> None:
    """The weight of step s is s (s + 1) … (s + γ − 1) / γ! for a whole γ."""
    values = [3.0, -1.0, 4.0, 1.0, -5.0]
    expected = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    assert averaged(values, 0.9999, power) == pytest.approx(expected, abs=1e-12)


def test_a_power_never_makes_the_average_longer_than_its_decay() -> None:
    values = [1.0] * 200 + [0.0] * 10
    assert averaged(values, 0.8, 2.0) == pytest.approx(0.8**10, rel=1e-6)
    assert averaged(values, 0.9999, 2.0) > 0.8


def test_the_average_runs_over_parameters_only():
    teacher, student = small_network(), small_network()
    student(torch.randn(8, 3) * 5 + 2)
    ema_update(teacher, student, 0.5)
    assert torch.equal(teacher[1].running_mean, torch.zeros(4))
    assert teacher[1].num_batches_tracked == 0


def test_the_average_leaves_the_student_alone():
    teacher, student = small_network(), small_network()
    before = {name: tensor.clone() for name, tensor in student.state_dict().items()}
    ema_update(teacher, student, 0.3)
    assert all(torch.equal(tensor, before[name]) for name, tensor in student.state_dict().items())


def test_a_frozen_copy_takes_no_gradient_and_shares_nothing():
    network = small_network()
    copy = frozen_copy(network)
    (network(torch.randn(5, 3)) - copy(torch.randn(5, 3))).square().sum().backward()
    assert all(p.grad is None and not p.requires_grad for p in copy.parameters())
    assert all(p.grad is not None for p in network.parameters())
    network[0].weight.data.zero_()
    assert copy[0].weight.abs().sum() > 0


def test_copied_weights_are_equal_buffers_included_and_stay_apart():
    target, source = frozen_copy(small_network()), small_network()
    source(torch.randn(8, 3) + 1)
    copy_weights(target, source)
    assert all(
        torch.equal(a, b) for a, b in zip(target.state_dict().values(), source.state_dict().values(), strict=True)
    )
    source[0].weight.data.zero_()
    assert target[0].weight.abs().sum() > 0
