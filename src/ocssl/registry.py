"""Registries of named parts: strategies, methods, memories, optimisers, augmentations, backbones, data sets, streams.

A decorator registers a part under a name. An unknown name is refused with the nearest known one. Installed packages can
add parts through an entry point group; they are imported when their name is used. Modules named in ``OCSSL_PLUGINS``,
separated by commas, are imported when a name is not known without them and when names are listed. Which module
registered a part is remembered (:mod:`ocssl.plugins`).

>>> animals = Registry[type]("animal")
>>> @animals.register("cat")
... class Cat: ...
>>> @animals.register("cat", variant="original")
... class Wildcat: ...
>>> animals.names(), animals.variants("cat")
(['cat'], ['original'])
>>> animals.get("cat", variant="original").__name__, animals.get("cat", variant="authors").__name__
('Wildcat', 'Cat')
>>> animals.get("cta")
Traceback (most recent call last):
...
ocssl.errors.ConfigError: unknown animal 'cta'; did you mean 'cat'? Known: cat
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from pydantic import BaseModel

from ocssl import plugins
from ocssl.common.console import warn
from ocssl.errors import ConfigError

T = TypeVar("T")


def unknown(kind: str, name: object, known: Iterable[str], list_all: bool = True, of: str = "") -> ConfigError:
    """The error for a name that is not registered: it names the plugin that the name comes from, or the nearest name.

    Args:
        list_all: name all known ones, too; False: where none is near, the command that prints them.
        of: what the name should belong to, in words.

    >>> str(unknown("method", "simsam", ["simsiam", "simclr"]))
    "unknown method 'simsam'; did you mean 'simsiam'? Known: simsiam, simclr"
    """
    if origin := plugins.explain(f"{kind} {name}"):
        return ConfigError(origin)
    known = list(known)
    lower = {each.lower(): each for each in known}  # papers write CLA-E and ER
    near = difflib.get_close_matches(str(name).lower(), lower, n=1)
    hint = f"; did you mean '{lower[near[0]]}'?" if near else ""
    if list_all:
        hint = f"{hint or '.'} Known: {', '.join(known)}"
    return ConfigError(f"unknown {kind} '{name}'{of and f' of {of}'}{hint or f'; ocssl list {kind}s prints all'}")


def source(part: object) -> str:
    """Where a part comes from: the ``Source:`` of its docstring; "" without one.

    One of ocssl's own without any has that of the class it derives from.

    >>> class Cat:
    ...     '''Meows.
    ...
    ...     Source: Linnaeus, 1758.
    ...     '''
    >>> class Wildcat(Cat):
    ...     '''Hisses.'''
    >>> source(Cat), source(Wildcat), source(int)
    ('Linnaeus, 1758', 'Linnaeus, 1758', '')
    """
    ours = getattr(part, "__module__", "").startswith("ocssl.")
    for owner in part.__mro__ if isinstance(part, type) and ours else (part,):
        if found := re.search(r"^Source: (.+?)\.?(?:\n\n|\Z)", inspect.cleandoc(owner.__doc__ or ""), re.S | re.M):
            return " ".join(found[1].split())
    return ""


def _public_methods(owner: type) -> set[str]:
    """Names of the public methods and properties that a class itself defines."""
    found = vars(owner).items()
    return {
        name for name, value in found if name[0] != "_" and (inspect.isroutine(value) or isinstance(value, property))
    }


def _singular(name: str) -> str:
    """A name without the ending of a plural: alike for ``penalty`` and ``penalties``, for ``loss`` and ``losses``."""
    return re.sub(r"(?<=[sxh])es$|(?<!s)s$", "", re.sub("ies$", "y", name))


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Entry points by name; looking through all installed packages takes milliseconds, so once for each search path."""
    return {point.name: point for point in entry_points(group=group)}


class Registry(Generic[T]):
    """Named parts of one kind, in the order of their registration.

    Args:
        kind: the word for one part in messages, e.g. ``"strategy"``.
        group: entry point group of third-party packages, e.g. ``"ocssl.strategies"``.

    Attributes:
        base: the class that parts derive from, set where it is defined; None: anything can be registered.
        required: methods of the base that every part implements.
        required_with: methods that a part implements where it sets an attribute, by the name of the attribute.
    """

    base: type | None = None
    required: tuple[str, ...] = ()
    required_with: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, kind: str, group: str | None = None) -> None:
        self.kind = kind
        self.group = group
        self._entries: dict[str, T] = {}
        self._variants: dict[tuple[str, str], T] = {}
        self._unlisted: set[str] = set()
        self._left_out: set[str] = set()

    def register(self, name: str, *, variant: str | None = None, listed: bool = True) -> Callable[[T], T]:
        """Decorator: register the decorated part as ``name``, which can be registered once.

        The same definition may come again, as from a notebook's cell or a reload: it replaces the earlier one.

        Args:
            variant: register it as this variant of ``name``, e.g. ``"authors"``.
            listed: whether :meth:`names` contains it.
        """

        if not isinstance(name, str):
            raise ConfigError(f"a {self.kind} is registered under a name, as @register('mine'), not as {name!r}")

        def add(entry: T) -> T:
            self._check(name, entry)
            module = sys._getframe(1).f_globals.get("__name__", plugins.SCRIPT)
            taken = self._entries.get(name) if variant is None else self._variants.get((name, variant))
            if taken is not None and not self._comes_again(name, taken, entry, module):
                what = f"'{name}'" if variant is None else f"'{name}' in variant '{variant}'"
                raise ConfigError(f"{self.kind} {what} is already registered, as {taken!r}; choose another name")
            if variant is not None:
                self._variants[name, variant] = entry
            else:
                self._entries[name] = entry
                if not listed:
                    self._unlisted.add(name)
            plugins.note(f"{self.kind} {name}", module)
            return entry

        return add

    def names(self) -> list[str]:
        """Every listed name, plugins included, in the order of registration."""
        plugins.import_plugins()
        listed = [name for name in self._entries if name not in self._unlisted]
        return [*listed, *(name for name in self._announced() if name not in self._entries)]

    def parts(self) -> dict[str, T]:
        """Every listed part by name. One that cannot be imported is left out; the first time, a warning names it."""
        found = {}
        for name in self.names():
            try:
                found[name] = self.get(name)
            except ConfigError as error:
                if name not in self._left_out:
                    warn(str(error))
                self._left_out.add(name)
        return found

    def variants(self, name: str) -> list[str]:
        """The variants of ``name`` that differ from its plain entry, e.g. ``["authors", "original"]``."""
        return [variant for entry, variant in self._variants if entry == name]

    def get(self, name: str, variant: str = "default") -> T:
        """The entry ``name``, in a variant where there is one; :class:`ConfigError` with the nearest name otherwise."""
        if not isinstance(name, str):
            raise ConfigError(f"{self.kind} must be a name, not {name!r}")
        if name not in self:
            raise unknown(self.kind, name, self.names())
        if name not in self._entries:
            entry = self._load(point := self._announced()[name])
            if name not in self._entries:  # the module did not register it itself
                self._check(name, entry)
                self._entries[name] = entry
                plugins.note(f"{self.kind} {name}", point.module)
        return self._variants.get((name, variant), self._entries[name])

    def describe(self, part: object) -> str:
        """The kind and the registered name of a part, as ``strategy 'er'``; of one without a name, its class."""
        variants = ((name, entry) for (name, _), entry in self._variants.items())
        name = next((name for name, entry in (*self._entries.items(), *variants) if entry is part), None)
        return f"{self.kind} {getattr(part, '__name__', part) if name is None else repr(name)}"

    def modules(self, name: str) -> set[str]:
        """The plugins that a registered name comes from; none for a part of ocssl."""
        entries = [self._entries.get(name), *(e for (entry, _), e in self._variants.items() if entry == name)]
        bases = [base for entry in entries if isinstance(entry, type) for base in entry.__mro__]
        return plugins.modules_of(f"{self.kind} {name}", bases)

    def __contains__(self, name: object) -> bool:
        if name not in self._entries:
            plugins.import_plugins()
        return name in self._entries or name in self._announced()

    def _comes_again(self, name: str, taken: object, entry: object, module: str) -> bool:
        """Whether a part is what its module registered before: a class of the same name, or anything but a class."""
        if isinstance(taken, type) and isinstance(entry, type):
            return (taken.__module__, taken.__qualname__) == (entry.__module__, entry.__qualname__)
        return plugins.registrar(f"{self.kind} {name}") == module

    def _check(self, name: str, entry: object) -> None:
        """Refuse a part of another kind, an incomplete one, and settings that cannot be read, close to the cause."""
        base = self.base
        if base is not None and not (isinstance(entry, type) and issubclass(entry, base)):
            raise ConfigError(f"{self.kind} '{name}' must be a class that derives from {base.__name__}, not {entry!r}")
        if not issubclass(getattr(entry, "Options", BaseModel), getattr(base, "Options", BaseModel)):
            known = "ocssl.options" if base is None else base.__name__
            raise ConfigError(f"class Options of {self.kind} '{name}' must derive from {known}.Options")
        for setting, field in getattr(entry, "Options", BaseModel).model_fields.items():
            if field.is_required():
                raise ConfigError(f"setting '{setting}' of {self.kind} '{name}' has no default; give it one")
        needed = dict.fromkeys(self.required, f"every {self.kind}")
        for attribute, methods in self.required_with.items():
            if getattr(entry, attribute):
                needed |= dict.fromkeys(methods, f"a {self.kind} with {attribute}")
        for method, which in needed.items():
            if inspect.getattr_static(entry, method) is inspect.getattr_static(base, method):
                culprit = f"class {getattr(entry, '__name__', entry)} of {self.kind} '{name}'"
                raise ConfigError(f"{culprit} has no {method}(), which {which} needs; define it")
        if base is not None and isinstance(entry, type):
            self._refuse_misspelt(name, entry, base)

    def _refuse_misspelt(self, name: str, entry: type, base: type) -> None:
        """Refuse a method that is nearly named like one of the base: nothing would call it."""
        ours = [owner for owner in base.__mro__ if owner.__module__.startswith("ocssl.")]
        hooks = {method for owner in ours for method in _public_methods(owner)}
        for owner in (owner for owner in entry.__mro__ if owner not in base.__mro__):
            for method in sorted(_public_methods(owner) - hooks):
                near = [hook for hook in sorted(hooks) if _singular(hook) == _singular(method)]
                near = near or difflib.get_close_matches(method, hooks, n=1, cutoff=0.85)
                if near and near[0] not in vars(owner):  # beside the hook itself, it is a helper
                    raise ConfigError(
                        f"class {owner.__name__} of {self.kind} '{name}' has {method}(), which nothing calls; "
                        f"did you mean {near[0]}()? If not, begin its name with _"
                    )

    def _announced(self) -> dict[str, EntryPoint]:
        """Entry points of installed packages by name."""
        return _entry_points(self.group, tuple(sys.path)) if self.group else {}

    def _load(self, point: EntryPoint) -> T:
        try:
            entry: T = point.load()
        except (Exception, SystemExit) as error:
            package = f"package '{point.dist.name}'" if point.dist else "an unnamed package"
            raise ConfigError(
                f"cannot import {self.kind} '{point.name}' ({point.value}) of {package}: {plugins.reason(error)}; "
                "mend or uninstall the package"
            ) from error
        return entry
