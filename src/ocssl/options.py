"""Settings: each is declared once, in the class that reads it, with its type, range, default and description.

A part of a learner or of a run (strategy, method, memory, optimiser, augmentation, backbone, stream) has an inner class
``Options``. A configuration combines the options of the parts that it names into one flat, frozen model
(:func:`combine`), so a setting that no part reads cannot be given. Flags, ``--set``, help, documentation tables, ``repr``
and digests are read off these declarations.

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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Self, TypeVar, Union

import annotated_types
import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from ocssl.errors import ConfigError
from ocssl.registry import unknown

Affects = Literal["experiment", "numbers", "nothing"]
"""What a setting decides. ``experiment``: what is measured. ``numbers``: the last bits or what else is measured; a resumed
run keeps it, but runs that differ in it are one experiment. ``nothing``: where files lie, on what device, how often."""


@dataclass(frozen=True)
class Marks:
    """What is known of a setting besides type, range, default and description.

    Attributes:
        symbol: how formulas and tables write it, e.g. ω.
        affects: see :data:`Affects`.
    """

    symbol: str | None = None
    affects: Affects = "experiment"


def setting(
    default: Any, description: str, *, symbol: str | None = None, affects: Affects = "experiment", **constraints: Any
) -> Any:
    """Declare a setting of an ``Options`` class.

    Args:
        default: used where nothing is given.
        description: one sentence; it is the help text of the flag and the row of the documentation table.
        constraints: ``ge``, ``gt``, ``le``, ``lt``, ``min_length`` … as :func:`pydantic.Field` takes them.
    """
    field: FieldInfo = Field(default, description=description, **constraints)
    field.metadata.append(Marks(symbol, affects))
    return field


class Options(BaseModel):
    """Base of every group of settings: frozen, strict, and closed to unknown names."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

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
        field = FieldInfo.merge_field_infos(cls.model_fields[name], default=default)
        return field

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
    """NumPy's numbers as Python's own; containers inside out."""
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
    Core(lr=0.2, seed=0)
    """
    parts = tuple(dict.fromkeys(part for part in parts if part.model_fields))
    owner: dict[str, type[Options]] = dict.fromkeys(base.model_fields, base)
    for part in parts:
        for name in part.model_fields:
            if name in owner:
                said = f"'{owner[name].__qualname__}' and '{part.__qualname__}'"
                raise ConfigError(f"setting '{name}' is declared twice, in {said}; rename one")
            owner[name] = part
    if not parts:
        return base
    return create_model(base.__name__, __base__=(base, *parts), __module__=base.__module__)


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
        raise one_sentence(error, model, prefix) from error


def one_sentence(error: ValidationError, model: type[BaseModel] | None = None, prefix: str = "") -> ConfigError:
    """What pydantic found wrong first, as one sentence that says what is allowed."""
    first = error.errors()[0]
    if first["type"] == "value_error":  # a sentence of our own
        return ConfigError(str(first["ctx"]["error"]))
    path = [str(step) for step in first["loc"]]
    field = model.model_fields.get(path[0]) if model is not None and path else None
    name = prefix + (path[0] if field is not None else ".".join(path))
    if field is not None:
        value = first["input"] if len(path) == 1 else error.errors()[0]["input"]
        return ConfigError(f"{name} must be {describe(field)}, not {value!r}")
    return ConfigError(f"{name}: {first['msg'][0].lower()}{first['msg'][1:]}, not {first['input']!r}")


def describe(field: FieldInfo) -> str:
    """What values a setting takes, in words.

    >>> class Example(Options):
    ...     tau: float = setting(0.999, "Decay.", ge=0, le=1)
    ...     batch: int = setting(10, "Size.", ge=1)
    ...     order: Literal["a", "b"] = setting("a", "Order.")
    >>> [describe(field) for field in Example.model_fields.values()]
    ['a number from 0 to 1', 'a whole number of at least 1', "'a' or 'b'"]
    """
    documented = next((entry for entry in field.metadata if isinstance(entry, annotated_types.DocInfo)), None)
    if documented is not None:
        return documented.documentation
    kinds, none = _kinds(field.annotation)
    words = " or ".join(filter(None, [_kind_words(kind) for kind in kinds]))
    return f"{words}{_bounds(field)}{' or unset' if none else ''}"


def _kinds(annotation: Any) -> tuple[list[Any], bool]:
    """The alternatives of a type, and whether None is one of them."""
    union = typing.get_origin(annotation) in (Union, types.UnionType)
    found = list(typing.get_args(annotation)) if union else [annotation]
    return [kind for kind in found if kind is not type(None)], type(None) in found


def _kind_words(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        choices = [repr(choice) for choice in typing.get_args(kind)]
        return " or ".join([", ".join(choices[:-1]), choices[-1]]) if len(choices) > 1 else choices[0]
    if typing.get_origin(kind) is list:
        return f"a list, each {_kind_words(typing.get_args(kind)[0])}"
    named = {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}
    return named.get(kind, f"a group of settings ({getattr(kind, '__name__', kind)})")


def _bounds(field: FieldInfo) -> str:
    low = high = ""
    for entry in field.metadata:
        match entry:
            case annotated_types.Ge():
                low = f"of at least {entry.ge:g}"  # type: ignore[str-format]
            case annotated_types.Gt():
                low = f"above {entry.gt:g}"  # type: ignore[str-format]
            case annotated_types.Le():
                high = f"at most {entry.le:g}"  # type: ignore[str-format]
            case annotated_types.Lt():
                high = f"below {entry.lt:g}"  # type: ignore[str-format]
    if low.startswith("of at least") and high.startswith("at most"):
        return f" from {low.removeprefix('of at least ')} to {high.removeprefix('at most ')}"
    return "".join(f" {word}" for word in (" and ".join(filter(None, (low, high))),) if word)


def to_kind(text: str, field: FieldInfo) -> Any:
    """The text of a flag as a value of the setting: YAML, except where the setting is a text."""
    raise NotImplementedError


@dataclass(frozen=True)
class Declared:
    """A setting and where it is declared, for tables and help.

    Attributes:
        name: as users write it.
        values: what it takes, in words.
        owners: the parts that read it, e.g. ``("strategy cla-b", "strategy cla-e")``; empty for settings of every learner.
        defaults: by part where they differ.
    """

    name: str
    field: FieldInfo
    owners: tuple[str, ...] = ()
    defaults: Mapping[str, Any] | None = None

    @property
    def values(self) -> str:
        """What it takes, in words."""
        return describe(self.field)

    @property
    def description(self) -> str:
        """One sentence."""
        return self.field.description or ""

    @property
    def marks(self) -> Marks:
        """Its symbol and what it affects."""
        return marks(self.field)


def declared(options: Mapping[str, type[Options]]) -> Iterator[Declared]:
    """Every setting of some parts once, with all parts that read it.

    Args:
        options: by the part's name, e.g. ``{"strategy cla-e": ClaE.Options}``.
    """
    found: dict[str, dict[str, FieldInfo]] = {}
    for part, model in options.items():
        for name, field in model.model_fields.items():
            found.setdefault(name, {})[part] = field
    for name, fields in found.items():
        values = {part: field.get_default(call_default_factory=True) for part, field in fields.items()}
        first = next(iter(fields.values()))
        differ = any(value != first.get_default(call_default_factory=True) for value in values.values())
        yield Declared(name, first, tuple(fields), values if differ else None)


def difference(before: Options, after: Options, affects: tuple[Affects, ...] = ("experiment", "numbers")) -> str | None:
    """The first setting of the given kinds in which two configurations differ; None where there is none."""
    names = [*type(before).model_fields, *(name for name in type(after).model_fields)]
    for name in dict.fromkeys(names):
        fields = [type(config).model_fields.get(name) for config in (before, after)]
        field = fields[0] or fields[1]
        if field is None or marks(field).affects not in affects:
            continue
        if getattr(before, name, None) != getattr(after, name, None):
            return name
    return None


def show(config: Options, defaults: Options | None = None) -> str:
    """Settings as keyword arguments, those at their default left out."""
    parts = []
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        default = (
            getattr(defaults, name, None) if defaults is not None else field.get_default(call_default_factory=True)
        )
        if value != default:
            parts.append(f"{name}={value!r}")
    return ", ".join(parts)


_ = Self
