"""Faulty optimisers: the checks find each of them, and say what to correct."""

from __future__ import annotations

import pytest
import torch

from ocssl import optim
from ocssl.checks import check_optimizer
from ocssl.optim import SGD, Optimizer


class MovesAll(Optimizer):
    @torch.no_grad()
    def update(self, lr):
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter -= lr * parameter.grad


class OwnRate(Optimizer):
    @torch.no_grad()
    def update(self, lr):
        for parameter, gradient, _ in self.moved():
            parameter -= self.options.lr * gradient


class Ascending(Optimizer):
    @torch.no_grad()
    def update(self, lr):
        for parameter, gradient, _ in self.moved():
            parameter += lr * gradient


class OnlyOnOrOff(Optimizer):
    """Does not move what has a learning rate of 0, and takes its own rate otherwise."""

    @torch.no_grad()
    def update(self, lr):
        for parameter, gradient, _ in self.moved():
            parameter -= torch.where(torch.as_tensor(lr) > 0, self.options.lr, 0.0) * gradient


class Unsaved(SGD):
    def moments(self):
        return {}


class Replaced(Optimizer):
    def __init__(self, parameters, options, *, fused=False) -> None:
        super().__init__(parameters, options, fused=fused)
        self.means = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def update(self, lr):
        for parameter, gradient, i in self.moved():
            self.means[i] = 0.9 * self.means[i] + gradient
            parameter -= lr * self.means[i]

    def moments(self):
        return {f"mean.{i}": mean for i, mean in enumerate(self.means)}


class Decaying(SGD):
    """Adds the decay of weights to their gradients."""

    def update(self, lr):
        for parameter, gradient, _ in self.moved():
            gradient.add_(parameter.detach(), alpha=0.1)
        super().update(lr)


@pytest.mark.parametrize("settings", [{}, {"warmup": 2}])
@pytest.mark.parametrize("name", optim.registry.names())
def test_every_optimiser_keeps_the_contract(name: str, settings: dict[str, int]) -> None:
    check_optimizer(name, **settings)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (MovesAll, "a parameter moved whose group has a learning rate of 0"),
        (OwnRate, "a parameter moved whose group has a learning rate of 0"),
        (Ascending, "parameters move along the gradient, which raises the loss; subtract lr times the gradient"),
        (OnlyOnOrOff, "a parameter whose group has half of the learning rate moves as one that has all of it"),
        (Unsaved, "a restored optimiser goes on differently"),
        (Decaying, r"update\(\) changes gradients, which hooks after the step read; change a copy"),
        (Replaced, r"update\(\) replaces \['mean.0'"),
    ],
)
def test_a_faulty_optimiser_is_caught(faulty, kind: type[Optimizer], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_optimizer(faulty(kind))


class SlowWeights(SGD):
    """Lookahead, whose slow weights do not begin as zeros."""

    def __init__(self, parameters, options, *, fused=False) -> None:
        super().__init__(parameters, options, fused=fused)
        self.slow = [parameter.detach().clone() for parameter in self.parameters]

    def moments(self):
        return super().moments() | {f"slow.{i}": slow for i, slow in enumerate(self.slow)}


def test_an_optimiser_whose_reset_zeroes_what_is_not_zero_at_the_start_is_caught(faulty) -> None:
    with pytest.raises(AssertionError, match=r"reset\(\) leaves \['slow.0', .* unlike a new optimiser's"):
        check_optimizer(faulty(SlowWeights))
