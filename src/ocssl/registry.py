"""Names for things that others may add to: strategies, methods, memories, backbones, data sets.

A decorator registers; an unknown name is refused with the nearest known one; packages installed beside ocssl can
announce theirs through an entry point group and are imported only when their name is asked for.

>>> animals = Registry[type]("animal")
>>> @animals.register("cat")
... class Cat: ...
>>> animals.names()
['cat']
>>> animals.get("cta")
Traceback (most recent call last):
...
ocssl.errors.ConfigError: unknown animal 'cta'; did you mean 'cat'? Known: cat
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from ocssl.errors import ConfigError

T = TypeVar("T")


def unknown(kind: str, name: object, known: Iterable[str]) -> ConfigError:
    """The error for a name nobody registered, suggesting the nearest known one.

    >>> str(unknown("method", "simsam", ["simsiam", "simclr"]))
    "unknown method 'simsam'; did you mean 'simsiam'? Known: simsiam, simclr"
    """
    known = list(known)
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    return ConfigError(f"unknown {kind} '{name}'{hint} Known: {', '.join(known)}")


class Registry(Generic[T]):
    """A table of named things of one kind, in the order of their registration.

    Args:
        kind: what one entry is called in messages, e.g. ``"strategy"``.
        group: entry point group that third-party packages may use, e.g. ``"ocssl.strategies"``.
    """

    def __init__(self, kind: str, group: str | None = None) -> None:
        self.kind = kind
        self.group = group
        self._entries: dict[str, T] = {}
        self._unlisted: set[str] = set()

    def register(self, name: str, *, listed: bool = True) -> Callable[[T], T]:
        """Decorator: make the decorated thing available under ``name``; a name is taken once.

        Args:
            listed: whether :meth:`names` shows it; what exists for a special purpose only need not be.
        """

        def add(entry: T) -> T:
            if name in self._entries:
                raise ConfigError(f"{self.kind} '{name}' is already registered, as {self._entries[name]!r}")
            self._entries[name] = entry
            if not listed:
                self._unlisted.add(name)
            return entry

        return add

    def names(self) -> list[str]:
        """Every listed name, plugins included, in the order of registration."""
        listed = [name for name in self._entries if name not in self._unlisted]
        return [*listed, *(name for name in self._plugins() if name not in self._entries)]

    def get(self, name: str) -> T:
        """The entry called ``name``; :class:`ConfigError` with the nearest known name otherwise."""
        if not isinstance(name, str):
            raise ConfigError(f"{self.kind} must be a name, not {name!r}")
        if name not in self._entries and name in self._plugins():
            entry: T = self._plugins()[name].load()
            self._entries.setdefault(name, entry)
        if name not in self._entries:
            raise unknown(self.kind, name, self.names())
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._plugins()

    def _plugins(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)} if self.group else {}
