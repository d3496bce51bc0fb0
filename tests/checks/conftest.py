"""Parts that are wrong, registered for one test."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from ocssl import augment, memory, methods, optim, strategies
from ocssl.augment import Augmentation
from ocssl.memory import Memory
from ocssl.methods import Method
from ocssl.nn import backbones
from ocssl.optim import Optimizer
from ocssl.strategies import Strategy

REGISTRIES = {
    Strategy: strategies.registry,
    Method: methods.registry,
    Memory: memory.registry,
    Optimizer: optim.registry,
    Augmentation: augment.registry,
    nn.Module: backbones.registry,
}


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch):
    """Registers a class as ``faulty``, for one test only."""

    def register(kind: type) -> str:
        registry: Any = next(registry for base, registry in REGISTRIES.items() if issubclass(kind, base))
        monkeypatch.setitem(registry._entries, "faulty", kind)
        return "faulty"

    return register
