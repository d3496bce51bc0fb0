"""Names for things that others may add to: strategies, methods, memories, backbones, data sets.

A decorator registers; an unknown name is refused with the nearest known one; packages installed beside ocssl can
announce theirs through an entry point group and are imported only when their name is asked for. Modules named in
``OCSSL_PLUGINS``, separated by commas, are imported as soon as a name is not known without them, or all are listed.

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
import importlib
import os
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from ocssl.errors import ConfigError

T = TypeVar("T")

PLUGINS = "OCSSL_PLUGINS"


def unknown(kind: str, name: object, known: Iterable[str]) -> ConfigError:
    """The error for a name nobody registered, suggesting the nearest known one.

    >>> str(unknown("method", "simsam", ["simsiam", "simclr"]))
    "unknown method 'simsam'; did you mean 'simsiam'? Known: simsiam, simclr"
    """
    known = list(known)
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    return ConfigError(f"unknown {kind} '{name}'{hint} Known: {', '.join(known)}")


def import_plugins() -> None:
    """Import the modules that ``OCSSL_PLUGINS`` names, for what they register; a second time does nothing."""
    for module in filter(None, map(str.strip, os.environ.get(PLUGINS, "").split(","))):
        try:
            importlib.import_module(module)
        except Exception as error:
            raise ConfigError(
                f"cannot import '{module}' of {PLUGINS}: {_reason(error)}; correct it, or put its folder on PYTHONPATH"
            ) from error


def _reason(error: Exception) -> str:
    """An exception in a line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


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
        import_plugins()
        listed = [name for name in self._entries if name not in self._unlisted]
        return [*listed, *(name for name in self._announced() if name not in self._entries)]

    def get(self, name: str) -> T:
        """The entry called ``name``; :class:`ConfigError` with the nearest known name otherwise."""
        if not isinstance(name, str):
            raise ConfigError(f"{self.kind} must be a name, not {name!r}")
        if name not in self:
            raise unknown(self.kind, name, self.names())
        if name not in self._entries:
            entry = self._load(self._announced()[name])
            self._entries.setdefault(name, entry)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        if name not in self._entries:
            import_plugins()
        return name in self._entries or name in self._announced()

    def _announced(self) -> dict[str, EntryPoint]:
        """Entry points of installed packages by name."""
        return {point.name: point for point in entry_points(group=self.group)} if self.group else {}

    def _load(self, point: EntryPoint) -> T:
        try:
            entry: T = point.load()
        except Exception as error:
            package = f"package '{point.dist.name}'" if point.dist else "an unnamed package"
            raise ConfigError(
                f"cannot import {self.kind} '{point.name}' ({point.value}) of {package}: {_reason(error)}; "
                "mend or uninstall the package"
            ) from error
        return entry
