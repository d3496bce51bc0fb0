"""Strategies × methods × memories: every pair of two, not every triple."""

from __future__ import annotations

import ocssl

METHODS = ("simsiam", "simclr")  # the others: tests/methods/test_method_grid.py


def combinations() -> list[tuple[str, str | None, str | None]]:
    found: list[tuple[str, str | None, str | None]] = []
    for strategy in ocssl.strategies.registry.names():
        kind = ocssl.strategies.registry.get(strategy)
        methods = [None] if kind.own_loss else list(METHODS)
        memories = [None] if kind.default_memory is None else ocssl.memory.registry.names()
        found += [(strategy, methods[0], memory) for memory in memories]
        found += [(strategy, method, kind.default_memory) for method in methods[1:]]
    return found
