"""Gradient descent against torch's own optimiser."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from ocssl.errors import ConfigError
from ocssl.optim import SGD, registry
from ocssl.options import validate


def parameters() -> list[nn.Parameter]:
    drawn = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=drawn)) for shape in ((3, 4), (4,), (2, 2, 2))]


def gradients(steps: int) -> list[list[Tensor | None]]:
    """Of every step and parameter; the last parameter's first gradient comes late."""
    drawn = torch.Generator().manual_seed(1)
    found: list[list[Tensor | None]] = [
        [torch.randn(weight.shape, generator=drawn) for weight in parameters()] for _ in range(steps)
    ]
    found[0][-1] = found[1][-1] = None
    return found


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.0, 0.0), (0.9, 0.0), (0.9, 0.1)])
def test_steps_are_those_of_torch_to_the_bit(momentum: float, weight_decay: float, fused: bool) -> None:
    ours, theirs = parameters(), parameters()
    settings = {"lr": 0.3, "momentum": momentum, "weight_decay": weight_decay}
    optimizer = SGD(ours, SGD.Options(**settings), fused=fused)
    reference = torch.optim.SGD(theirs, **settings, fused=fused)
    for weight in theirs:
        reference.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
    for given in gradients(5):
        for weights in (ours, theirs):
            for weight, gradient in zip(weights, given, strict=True):
                weight.grad = None if gradient is None else gradient.clone()
        optimizer.step()
        reference.step()
    for weight, right, velocity in zip(ours, theirs, optimizer.velocities, strict=True):
        assert torch.equal(weight, right)
        assert torch.equal(velocity, reference.state[right]["momentum_buffer"])


def test_gradients_are_forgotten() -> None:
    weights = parameters()
    optimizer = SGD(weights, SGD.Options(lr=0.3))
    sum(weight.sum() for weight in weights).backward()
    optimizer.zero_grad()
    assert all(weight.grad is None for weight in weights)


def test_a_restored_optimizer_goes_on_exactly() -> None:
    assert registry.get("sgd") is SGD
    weights, twins = parameters(), parameters()
    first, second = (SGD(some, SGD.Options(lr=0.3)) for some in (weights, twins))
    steps = gradients(6)

    def step(optimizer: SGD, given: list[Tensor | None]) -> None:
        for weight, gradient in zip(optimizer.parameters, given, strict=True):
            weight.grad = None if gradient is None else gradient.clone()
        optimizer.step()

    for given in steps[:3]:
        step(first, given)
    for weight, twin in zip(weights, twins, strict=True):
        twin.data.copy_(weight.data)
    assert [*first.state_dict()] == ["momentum.0", "momentum.1", "momentum.2"]
    second.load_state_dict({name: tensor.clone() for name, tensor in first.state_dict().items()})
    for given in steps[3:]:
        step(first, given)
        step(second, given)
    assert all(torch.equal(weight, twin) for weight, twin in zip(weights, twins, strict=True))


@pytest.mark.parametrize("name", ["lr", "momentum", "weight_decay"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), "0.1", True])
def test_settings_out_of_range_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be a number of at least 0, not {value!r}"):
        validate(SGD.Options, {name: value})


def test_training_uncompiled_imports_no_compiler() -> None:
    script = """
import sys
import torch, ocssl
learner = ocssl.Learner(strategy="cla-e", backbone="convnet-w4", image_size=8, batch=24, device="cpu")
learner.partial_fit(torch.zeros(40, 3, 8, 8, dtype=torch.uint8))
assert learner.budget.steps > 0
print("torch._dynamo" in sys.modules)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"
