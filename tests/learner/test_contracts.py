"""The public contract suites on everything registered, and proof that they notice a broken contract."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ocssl
from ocssl.checks import check_memory, check_method, check_strategy
from ocssl.memory import Memory
from ocssl.strategies import Strategy

# Every strategy that has choices of its own in a variant, and one that has none: the authors' views and passes.
VARIANTS = [(name, v) for name in ocssl.strategies.names() for v in ocssl.strategies.get(name).variants]
VARIANTS.append(("er", "authors"))


@pytest.mark.parametrize("name", ocssl.strategies.names())
def test_every_strategy_keeps_the_contract(name: str) -> None:
    check_strategy(name)


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_every_strategy_keeps_the_contract_in_its_variants(name: str, variant: str) -> None:
    check_strategy(name, variant=variant)


@pytest.mark.parametrize("name", ocssl.methods.names())
def test_every_method_keeps_the_contract(name: str) -> None:
    check_method(name)


@pytest.mark.parametrize("name", [*ocssl.memory.names(), "part-and-select"])
def test_every_memory_keeps_the_contract(name: str) -> None:
    check_memory(name)


def test_simultaneous_drops_keep_the_contract() -> None:
    check_memory("minred", drops="simultaneous")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch):
    """Registers classes for one test only."""
    from ocssl.memory import base as memories
    from ocssl.strategies import base as strategies

    def register(name: str, kind: type) -> None:
        registry = memories._registry if issubclass(kind, Memory) else strategies._registry
        monkeypatch.setitem(registry._entries, name, kind)

    return register


def test_a_strategy_that_draws_from_elsewhere_is_caught(registered) -> None:
    class Unseeded(Strategy):
        def mix(self, views: Tensor, batch, generator) -> Tensor:
            return views + torch.rand(())

    registered("unseeded", Unseeded)
    with pytest.raises(AssertionError, match="two runs from one seed differ"):
        check_strategy("unseeded")


def test_a_strategy_with_a_secret_is_caught_when_resumed(registered) -> None:
    class Secretive(Strategy):
        steps = 0

        def mix(self, views: Tensor, batch, generator) -> Tensor:
            self.steps += 1
            return views * (1 + self.steps / 100)

    registered("secretive", Secretive)
    with pytest.raises(AssertionError, match="resumed run differs"):
        check_strategy("secretive")


def test_a_strategy_that_trains_its_target_is_caught(registered) -> None:
    class Leaky(Strategy):
        def __init__(self, setup) -> None:
            super().__init__(setup)
            self.leak = torch.nn.Parameter(torch.ones(()), requires_grad=False)

        def penalty(self, batch, views, features):
            self.leak.grad = torch.ones(())
            return {}

    registered("leaky", Leaky)
    with pytest.raises(AssertionError, match="frozen parameter received a gradient"):
        check_strategy("leaky")


def test_a_memory_that_keeps_a_sample_twice_is_caught(registered) -> None:
    class Sticky(Memory):
        def place(self, n: int, generator: torch.Generator) -> Tensor:
            return torch.arange(n)

    registered("sticky", Sticky)
    with pytest.raises(AssertionError):
        check_memory("sticky")
