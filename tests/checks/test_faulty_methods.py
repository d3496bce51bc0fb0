"""Faulty methods: the checks find each of them, and say what to correct."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from ocssl.checks import check_method, small_learner, small_stream
from ocssl.errors import ConfigError, DivergedError
from ocssl.methods import BYOL, Method, SimCLR
from ocssl.nn import ema_update


class Normalizing(SimCLR):
    def after_step(self, output, encoder):
        output.features.projected.div_(output.features.projected.norm(dim=-1, keepdim=True))


class Halving(SimCLR):
    """Pairs the first half of a batch with the second, which an odd number of samples does not have."""

    def loss(self, step):
        first, second = step.features.projected.chunk(2, dim=1)
        return super().loss(step) + (first - second).square().mean()


class Dividing(SimCLR):
    def loss(self, step):
        features = step.features.projected
        features /= features.norm(dim=-1, keepdim=True)
        return super().loss(step)


class Whitening(SimCLR):
    def loss(self, step):
        features = step.features.projected
        factor = torch.linalg.cholesky(features.mT @ features + torch.eye(32, device=features.device))
        return super().loss(step) + factor.mean()


class Overwriting(BYOL):
    """Its target overwrites the encoder, since the arguments are in the wrong order."""

    def after_step(self, output, encoder):
        ema_update(encoder, self.target, self.options.target_tau)


class LeavesItsTarget(BYOL):
    def after_step(self, output, encoder):
        self._seen = None


class Spectral(SimCLR):
    def loss(self, step):
        return super().loss(step) - 0.01 * torch.linalg.svdvals(step.features.projected).sum()


class Nuclear(SimCLR):
    def loss(self, step):
        return super().loss(step) - 0.01 * torch.linalg.matrix_norm(step.features.projected, ord="nuc").sum()


class OneHot(SimCLR):
    def loss(self, step):
        features = step.features.projected
        return super().loss(step) + nn.functional.one_hot(features.argmax(-1)).float().mean()


class Blanking(SimCLR):
    def corrupt(self, views, generator):
        return views.mul_(0.5)


class Undefined(SimCLR):
    def loss(self, step):
        return super().loss(step) + (step.features.projected.square().sum() * 0).log()


class Masked(SimCLR):
    """Passes masked views through the encoder once more."""

    def begin(self, encoder):
        self.encoder = (encoder,)

    def loss(self, step):
        masked = self.encoder[0](step.views * 0.5, step.features.joint)
        return super().loss(step) + super().loss(replace(step, features=masked))


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Masked, r"Masked.loss\(\) makes backward passes of its own, which a method cannot; make them in encode\(\)"),
        (Overwriting, r"Overwriting.after_step\(\) changes tensors that it is given"),
        (LeavesItsTarget, r"\['method.target'\] never followed the encoder; call super\(\).after_step\(\)"),
        (Spectral, r"by linalg_svdvals\(\), and cannot be captured as a CUDA graph; give execution='eager'"),
        (Nuclear, r"by linalg_matrix_norm\(\), and cannot be captured as a CUDA graph; give execution='eager'"),
        (OneHot, r"by one_hot\(\) without num_classes, .* use one_hot\(\) with it"),
        (Blanking, r"Blanking.corrupt\(\) changes tensors that it is given"),
        (Normalizing, r"Normalizing.after_step\(\) changes tensors that it is given"),
        (Dividing, r"Dividing.loss\(\) changes tensors that it is given"),
        (Whitening, r"by linalg_cholesky\(\), .* use a function of torch.linalg that ends in _ex"),
    ],
)
def test_a_faulty_method_is_caught(faulty, kind: type[Method], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_method(faulty(kind))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, r"Odd.corrupt\(\) must return a Tensor, not NoneType"),
        (torch.zeros(3, 4, 3, 8, 8), r"Odd.corrupt\(\) must return 2 views, as many as it is given"),
    ],
)
def test_a_method_that_corrupts_views_into_something_else_is_named(faulty, returned: object, message: str) -> None:
    kind = type("Odd", (SimCLR,), {"corrupt": lambda self, *given: returned})
    with pytest.raises(ConfigError, match=message):
        small_learner("er", method=faulty(kind)).partial_fit(small_stream(8))


def test_a_method_that_fails_on_the_last_minibatch_is_caught(faulty) -> None:
    with pytest.raises(RuntimeError, match="must match the size"):
        check_method(faulty(Halving))


def test_a_loss_of_nan_is_called_that_and_no_hook_is_blamed(faulty) -> None:
    with pytest.raises(DivergedError, match=r"the loss became NaN or infinite at step 1 \(part: ssl\)"):
        check_method(faulty(Undefined))
