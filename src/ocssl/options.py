"""Settings: each is declared once, in the class that reads it, with its type, range, default and description.

A part of a learner or of a run (strategy, method, memory, optimiser, augmentation, backbone, stream) has an inner class
``Options``. A configuration combines the options of the parts that it names into one flat, frozen model
(:func:`combine`), so a setting that no part reads cannot be given. Flags, ``--set``, help, documentation tables,
``repr`` and digests are read off these declarations.

>>> class Blur:
...     class Options(Options):
...         sigma: float = setting(1.0, "Width of the blur in pixels.", symbol="σ", gt=0)
>>> Blur.Options().sigma
1.0
>>> validate(Blur.Options, {"sigma": -1})
Traceback (most recent call last):
...
ocssl.errors.ConfigError: sigma must be a number above 0, not -1
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union

import annotated_types
import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from ocssl.common.console import short_value, shown
from ocssl.errors import ConfigError
from ocssl.registry import unknown

Affects = Literal["experiment", "numbers", "nothing"]
"""What a setting decides. ``experiment``: the experiment itself. ``numbers``: the last bits, or what else is measured;
a resumed run keeps it, but runs that differ in it alone are one experiment. ``nothing``: places, devices, times."""

CONSTRAINTS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")
"""What a declaration can say of the values of a setting, besides their type."""

ELSEWHERE = {"learning_rate": "lr", "batch_size": "batch", "buffer_size": "memory_size", "model": "backbone"}
"""Settings by the names that other libraries have for them."""


@dataclass(frozen=True)
class Marks:
    """What is known of a setting besides type, range, default and description.

    Attributes:
        symbol: how formulas and tables write it, e.g. ω.
        affects: see :data:`Affects`.
        common: whether help on one screen shows it. Every setting is a flag.
        since: the version that added it. At its default it enters no digest and no experiment's key, so that those of
            earlier versions stay. Settings without it are as old as the format of results.
    """

    symbol: str | None = None
    affects: Affects = "experiment"
    common: bool = False
    since: str | None = None


def setting(
    default: Any,
    description: str,
    *,
    symbol: str | None = None,
    affects: Affects = "experiment",
    common: bool = False,
    since: str | None = None,
    **constraints: Any,
) -> Any:
    """Declare a setting of an ``Options`` class.

    Args:
        default: used where nothing is given.
        description: a sentence or two. Help shows the first clause, the documentation table all of it.
        constraints: those in :data:`CONSTRAINTS`, as :func:`pydantic.Field` takes them.
    """
    for name in constraints:
        if name not in CONSTRAINTS:  # which pydantic would take for a note
            raise unknown("constraint", name, CONSTRAINTS)
    if affects not in (known := typing.get_args(Affects)):
        raise ConfigError(f"affects must be one of {', '.join(known)}, not {shown(affects)}")
    field: FieldInfo = Field(default, description=description, **constraints)
    field.metadata.append(Marks(symbol, affects, common, since))
    return field


class Options(BaseModel):
    """Base of every group of settings: frozen, strict, and closed to unknown names."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    @classmethod
    def __pydantic_init_subclass__(cls, **how: Any) -> None:
        """Refuse defaults that their own declarations do not allow; a registry refuses settings without any."""
        super().__pydantic_init_subclass__(**how)
        defaults = {name: default_of(field) for name, field in cls.model_fields.items() if not field.is_required()}
        if len(defaults) == len(cls.model_fields):
            try:
                validate(cls, defaults)
            except ConfigError as error:
                raise ConfigError(f"wrong default in '{cls.__qualname__}': {error}") from error

    @classmethod
    def with_default(cls, name: str, default: Any) -> Any:
        """The declaration of an inherited setting with another default.

        >>> class Fine(Options):
        ...     lr: float = setting(0.1, "Learning rate.", ge=0)
        >>> class Coarse(Fine):
        ...     lr: float = Fine.with_default("lr", 0.3)
        >>> Coarse().lr, Coarse.model_fields["lr"].description
        (0.3, 'Learning rate.')
        """
        return FieldInfo.merge_field_infos(cls.model_fields[name], default=default)

    def select(self, kind: type[O]) -> O:
        """The settings of one part, as that part declares them."""
        return kind.model_construct(**{name: getattr(self, name) for name in kind.model_fields})

    def to_dict(self) -> dict[str, Any]:
        """All settings, as JSON and YAML have values."""
        return self.model_dump(mode="json")


O = TypeVar("O", bound=Options)  # noqa: E741


def marks(field: FieldInfo) -> Marks:
    """The marks of a declared setting."""
    return next((entry for entry in field.metadata if isinstance(entry, Marks)), Marks())


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's numbers and tuples; other values as they are."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return tuple(value.tolist())
    return value


def _channels(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, list | tuple | np.ndarray) else value


PerChannel = Annotated[
    tuple[float, float, float], BeforeValidator(_channels), annotated_types.doc("three numbers, one per channel")
]
"""Numbers for the channels red, green and blue."""

Pair = Annotated[tuple[float, float], BeforeValidator(_channels), annotated_types.doc("two numbers, low and high")]
"""The two ends of a range."""


@cache
def combine(base: type[O], *parts: type[Options]) -> type[O]:
    """One model with the fields of ``base`` and of every part; a name that two of them declare is refused.

    >>> class Core(Options):
    ...     seed: int = setting(0, "Seed.")
    >>> class Sgd(Options):
    ...     lr: float = setting(0.1, "Learning rate.")
    >>> combine(Core, Sgd)(lr=0.2)
    Core(seed=0, lr=0.2)
    """
    parts = tuple(dict.fromkeys(part for part in parts if part.model_fields))
    owner: dict[str, type[Options]] = dict.fromkeys(base.model_fields, base)
    for part in parts:
        for name in part.model_fields:
            if hasattr(base, name):
                taken = f"a name that '{base.__qualname__}' has taken"
                raise ConfigError(f"'{part.__qualname__}' has a setting '{name}', {taken}; rename it")
            if name in owner:
                said = f"'{owner[name].__qualname__}' and '{part.__qualname__}'"
                raise ConfigError(f"setting '{name}' is declared twice, in {said}; rename one")
            owner[name] = part
    validators: dict[str, object] = {}  # of two with one name, pydantic would call one
    kinds: tuple[type[Options], ...] = (base, *parts)
    for kind in kinds:
        for name, found in kind.__pydantic_decorators__.field_validators.items():
            if validators.setdefault(name, found.func) != found.func:
                raise ConfigError(
                    f"validator '{name}' of '{kind.__qualname__}' has the name of another part's; rename it"
                )
    if not parts:
        return base
    bases: tuple[Any, ...] = (*reversed(parts), base)  # pydantic lists the fields of the last base first
    return create_model(base.__name__, __base__=bases, __module__=base.__module__)


def unknown_setting(name: str, known: Iterable[str]) -> ConfigError:
    """The error for a name that is no setting; it names the setting that other libraries call so, or the nearest.

    >>> str(unknown_setting("learning_rate", ["lr", "crop_ratio"]))
    "unknown setting 'learning_rate'; did you mean 'lr'?"
    """
    known = list(known)
    if (ours := ELSEWHERE.get(name)) in known:
        return ConfigError(f"unknown setting '{name}'; did you mean '{ours}'?")
    return unknown("setting", name, known, list_all=False)


def refuse_unknown(names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse the first of these names that is no known setting."""
    for name in names:
        if name not in known:
            raise unknown_setting(name, known)


def validate(model: type[O], given: Mapping[str, Any], prefix: str = "") -> O:
    """An instance from values by name; :class:`ConfigError` with one sentence otherwise.

    Args:
        prefix: stands before names in messages, e.g. ``"probe."``.
    """
    for name in given:
        if name not in model.model_fields:
            raise unknown("setting", f"{prefix}{name}", [f"{prefix}{known}" for known in model.model_fields])
    try:
        return model.model_validate({name: _plain(value) for name, value in given.items()})
    except ValidationError as error:
        raise _one_sentence(error, model, prefix) from error


def _number(value: Any) -> str:
    """A limit as messages write it."""
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _one_sentence(error: ValidationError, model: type[BaseModel], prefix: str) -> ConfigError:
    """What pydantic found wrong first, as one sentence that says what is allowed."""
    first = error.errors()[0]
    if first["type"] == "value_error":  # a sentence of our own
        return ConfigError(str(first["ctx"]["error"]))
    path = [str(step) for step in first["loc"]]
    if path and path[0] in model.model_fields:
        allowed = describe(model.model_fields[path[0]])
        return ConfigError(f"{prefix}{path[0]} must be {allowed}, not {shown(first['input'])}")
    message = f"{first['msg'][0].lower()}{first['msg'][1:]}"
    return ConfigError(f"{prefix}{'.'.join(path)}: {message}, not {shown(first['input'])}")


def describe(field: FieldInfo) -> str:
    """What values a setting takes, in words.

    >>> class Example(Options):
    ...     tau: float = setting(0.999, "Decay.", ge=0, le=1)
    ...     batch: int = setting(10, "Size.", ge=1)
    ...     order: Literal["a", "b"] = setting("a", "Order.")
    ...     ends: Pair | None = setting(None, "Range.")
    >>> [describe(field) for field in Example.model_fields.values()]
    ['a number from 0 to 1', 'a whole number of at least 1', "'a' or 'b'", 'two numbers, low and high or unset']
    """
    for entry in field.metadata:
        if isinstance(entry, annotated_types.DocInfo):
            return entry.documentation
    kinds, none = _kinds(field.annotation)
    words = " or ".join(filter(None, [_kind_words(kind) for kind in kinds]))
    return f"{words}{_bounds(field)}{' or unset' if none else ''}"


def _kinds(annotation: Any) -> tuple[list[Any], bool]:
    """The alternatives of a type, and whether None is one of them."""
    union = typing.get_origin(annotation) in (Union, types.UnionType)
    found = list(typing.get_args(annotation)) if union else [annotation]
    return [kind for kind in found if kind is not type(None)], type(None) in found


def _kind_words(kind: Any) -> str:
    if typing.get_origin(kind) is Annotated:
        return describe(FieldInfo.from_annotation(kind))
    if typing.get_origin(kind) is Literal:
        choices = [repr(choice) for choice in typing.get_args(kind)]
        return " or ".join([", ".join(choices[:-1]), choices[-1]]) if len(choices) > 1 else choices[0]
    if typing.get_origin(kind) is list:
        return f"a list, each {_kind_words(typing.get_args(kind)[0])}"
    named = {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}
    return named.get(kind, f"a group of settings ({getattr(kind, '__name__', kind)})")


def is_bound(field: FieldInfo, value: object) -> bool:
    """Whether a setting takes no smaller value, or no larger one.

    >>> field = setting(0.5, "Share.", ge=0, lt=1)
    >>> is_bound(field, 0), is_bound(field, 0.5), is_bound(field, 0.99)
    (True, False, False)
    """
    return any(value == getattr(entry, side, None) for entry in field.metadata for side in ("ge", "le"))


def _bounds(field: FieldInfo) -> str:
    low = high = ""
    for entry in field.metadata:
        match entry:
            case annotated_types.Ge():
                low = f"of at least {_number(entry.ge)}"
            case annotated_types.Gt():
                low = f"above {_number(entry.gt)}"
            case annotated_types.Le():
                high = f"at most {_number(entry.le)}"
            case annotated_types.Lt():
                high = f"below {_number(entry.lt)}"
    if low.startswith("of at least") and high.startswith("at most"):
        return f" from {low.removeprefix('of at least ')} to {high.removeprefix('at most ')}"
    limits = " and ".join(filter(None, (low, high)))
    return f" {limits}" if limits else ""


@dataclass(frozen=True)
class Declared:
    """A setting and the parts that declare it, for help, tables and messages.

    Attributes:
        name: as users write it.
        field: its declaration; the first part's where several have it.
        owners: parts by kind, e.g. ``{"strategy": ["cla-b", "cla-e"]}``; empty for settings of every learner or run.
        defaults: the default of each part, e.g. ``{"cla-b": 0.1, "cla-e": 0.3}``.
    """

    name: str
    field: FieldInfo
    owners: Mapping[str, list[str]]
    defaults: Mapping[str, Any]

    @property
    def values(self) -> str:
        """What it takes, in words."""
        return describe(self.field)

    @property
    def default(self) -> str:
        """Its default as text; by part where parts differ."""
        found: dict[str, list[str]] = {}
        for part, value in self.defaults.items():
            found.setdefault("unset" if value is None else short_value(value), []).append(part)
        if len(found) == 1:
            return next(iter(found))
        return ", ".join(f"{value} ({', '.join(parts)})" for value, parts in found.items())

    @property
    def description(self) -> str:
        """One sentence."""
        return self.field.description or ""

    @property
    def marks(self) -> Marks:
        """Its symbol, what it affects, and whether it is common."""
        return marks(self.field)

    @property
    def readers(self) -> str:
        """Who reads it, in words; empty for settings of every learner or run.

        >>> Declared("omega", FieldInfo(), {"strategy": ["cla-b", "cla-e"]}, {}).readers
        'strategies cla-b, cla-e'
        """
        plural = {"strategy": "strategies", "memory": "memories"}
        return " and ".join(f"{plural.get(kind, kind + 's')} {', '.join(names)}" for kind, names in self.owners.items())


def declared(options: Mapping[tuple[str, str], Mapping[str, FieldInfo]]) -> dict[str, Declared]:
    """Every setting of some parts once, by name, with all parts that declare it.

    Args:
        options: fields by kind and name of the part, e.g. ``{("strategy", "cla-e"): ClaE.Options.model_fields}``;
            ``("", "")`` for core settings.
    """
    found: dict[str, dict[tuple[str, str], FieldInfo]] = {}
    for part, part_fields in options.items():
        for name, field in part_fields.items():
            found.setdefault(name, {})[part] = field
    result = {}
    for name, fields in found.items():
        owners: dict[str, list[str]] = {}
        defaults: dict[str, Any] = {}
        for (kind, owner), field in fields.items():
            if kind:
                owners.setdefault(kind, []).append(owner)
            defaults.setdefault(owner, default_of(field))
        result[name] = Declared(name, next(iter(fields.values())), owners, defaults)
    return result


def default_of(field: FieldInfo) -> Any:
    """The default of a declared setting."""
    return field.get_default(call_default_factory=True)


def differing(before: Options, after: Options, *affects: Affects) -> list[str]:
    """Names of settings that two configurations of the same or of different parts have differently.

    Args:
        affects: only settings that affect these.
    """
    fields = {**type(before).model_fields, **type(after).model_fields}
    return [
        name
        for name, field in fields.items()
        if marks(field).affects in affects and getattr(before, name, None) != getattr(after, name, None)
    ]
