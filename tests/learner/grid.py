"""Strategies × methods × memories, a part of all triples."""

from __future__ import annotations

import ocssl

METHODS = ("simsiam", "simclr")  # the others: tests/methods/test_method_grid.py


def combinations() -> list[tuple[str, str | None, str | None]]:
    found: list[tuple[str, str | None, str | None]] = []
    every = ocssl.memory.registry.names()
    for i, strategy in enumerate(ocssl.strategies.registry.names()):
        kind = ocssl.strategies.registry.get(strategy)
        methods = [None] if kind.own_loss else list(METHODS)
        memories: list[str | None] = [kind.default_memory]
        if kind.default_memory is not None:  # all memories with some strategies, one more with each of the others
            others = [name for name in every if name != kind.default_memory]
            memories += others if strategy in ("er", "cla-r", "cla-e") else [others[i % len(others)]]
        found += [(strategy, methods[0], memory) for memory in memories]
        found += [(strategy, method, kind.default_memory) for method in methods[1:]]
    return found
