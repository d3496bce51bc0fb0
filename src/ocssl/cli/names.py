"""Names for shell completion. The rooms that know them are imported only when a shell asks."""

from __future__ import annotations


def complete_strategies(incomplete: str) -> list[str]:
    """Strategies that begin so."""
    from ocssl import strategies

    return [name for name in strategies.names() if name.startswith(incomplete)]


def complete_methods(incomplete: str) -> list[str]:
    """Methods that begin so."""
    from ocssl import methods

    return [name for name in methods.names() if name.startswith(incomplete)]


def complete_memories(incomplete: str) -> list[str]:
    """Memories that begin so."""
    from ocssl import memory

    return [name for name in memory.names() if name.startswith(incomplete)]


def complete_datasets(incomplete: str) -> list[str]:
    """Data sets that begin so."""
    from ocssl.data import catalog

    return [name for name in catalog.names() if name.startswith(incomplete)]
