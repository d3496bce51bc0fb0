"""Checks of a learner's settings, and what those left open become."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch

from ocssl import memory, methods, strategies
from ocssl.errors import ConfigError
from ocssl.memory import Memory
from ocssl.registry import unknown
from ocssl.strategies import Strategy

VARIANTS = ("clean", "authors", "origin")
PRECISIONS = ("auto", "fp32", "bf16", "fp64")
REPLAY_BATCH = 128  # replay samples per batch unless told otherwise: the paper's 138 with its stream_batch of 10


def require(name: str, value: Any, *, low: float, high: float = float("inf"), whole: bool = False) -> Any:
    """The number as Python's own; one outside ``[low, high]``, or one that should be whole and is not, is refused.

    >>> require("tau", np.float32(0.5), low=0, high=1)
    0.5
    >>> require("tau", 1.5, low=0, high=1)
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: tau must be a number from 0 to 1, not 1.5
    """
    kind = "a whole number" if whole else "a number"
    right_type = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    if not right_type or not low <= value <= high or value == float("inf"):
        bounds = f"from {low:g} to {high:g}" if high < float("inf") else f"of at least {low:g}"
        raise ConfigError(f"{name} must be {kind} {bounds}, not {value!r}")
    return int(value) if isinstance(value, Integral) else float(value)


def yes_or_no(name: str, value: Any) -> bool:
    """The truth value as Python's own; anything that is only taken for one is refused.

    >>> yes_or_no("joint_views", "no")
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: joint_views must be True or False, not 'no'
    """
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def views_together(joint_views: bool | None, variant: str) -> bool:
    """Whether all views pass the network in one go: as told, and untold in every variant but the authors'.

    >>> views_together(None, "clean"), views_together(None, "authors"), views_together(False, "clean")
    (True, False, False)
    """
    return variant != "authors" if joint_views is None else joint_views


def per_channel(name: str, values: Any) -> tuple[float, ...]:
    """Numbers for the channels red, green and blue; a tuple of Python's own is given back as it is.

    >>> per_channel("mean", 0.5)
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: mean must be three finite numbers, one per channel, not 0.5
    """
    given = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else []
    if len(given) != 3 or not all(isinstance(value, Real) and math.isfinite(value) for value in given):
        raise ConfigError(f"{name} must be three finite numbers, one per channel, not {values!r}")
    if isinstance(values, tuple) and all(type(value) in (int, float) for value in given):
        return values
    return tuple(float(value) for value in given)


def named(name: str, values: Any) -> Mapping[str, Any] | None:
    """Options by name, or None; NumPy's numbers among them become Python's own.

    >>> named("options", 3)
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: options must be a dictionary of names and values, not 3
    """
    if values is None:
        return None
    if not isinstance(values, Mapping):
        raise ConfigError(f"{name} must be a dictionary of names and values, not {values!r}")
    if not any(isinstance(value, np.generic) for value in values.values()):
        return values
    return {key: value.item() if isinstance(value, np.generic) else value for key, value in values.items()}


def choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Refuse a value that is none of the known ones.

    >>> choice("precision", "fp16", ("fp32", "bf16"))
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: unknown precision 'fp16'; did you mean 'bf16'? Known: fp32, bf16
    """
    if value not in known:
        raise unknown(name, value, known)


def method_name(strategy: str, method: str | None) -> str | None:
    """The objective a strategy runs with: SimSiam unless told otherwise, none where it brings its own.

    >>> method_name("cla-e", None)
    'simsiam'
    """
    if strategies.get(strategy).own_loss:
        if method is not None:
            raise ConfigError(f"strategy '{strategy}' brings its own objective; leave method unset, not '{method}'")
        return None
    name = method or "simsiam"
    methods.get(name)
    return name


def memory_name(strategy: str, name: str | None, variant: str = "clean") -> str | None:
    """The memory a strategy runs with: its own choice unless told otherwise, none where it keeps nothing.

    >>> memory_name("cla-e", None), memory_name("finetune", None)
    ('fifo', None)
    """
    kind = strategies.get(strategy)
    default = kind.variant_memories.get(variant, kind.default_memory)
    if default is None and name is not None:
        raise ConfigError(f"strategy '{strategy}' keeps no memory; leave memory unset, not '{name}'")
    if name is not None:
        memory.get(name)
    return name or default


def batch_size(strategy: str, stream_batch: int, batch: int | None) -> int:
    """b: as told, else the stream minibatch plus replay where the strategy replays.

    >>> batch_size("er", 10, None), batch_size("finetune", 10, None)
    (138, 10)
    """
    if batch is None:
        composition = strategies.get(strategy).composition
        return stream_batch if composition in ("stream", "mixed") else stream_batch + REPLAY_BATCH
    require("batch", batch, low=1, whole=True)
    if batch < stream_batch:
        raise ConfigError(f"batch ({batch}) must be at least stream_batch ({stream_batch})")
    return batch


def strategy_options(strategy: str, variant: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options of a strategy: those of the variant, overridden by the user's.

    >>> strategy_options("cassle", "authors", {"aligner_dim": 64})
    {'from_start': True, 'together': True, 'aligner_dim': 64}
    """
    kind = strategies.get(strategy)
    return _merged(f"option of strategy '{strategy}'", kind, Strategy, kind.variants.get(variant, {}), given)


def memory_options(strategy: str, name: str, variant: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options of a memory: the strategy's variant speaks for its own memory only.

    >>> memory_options("minred", "minred", "origin", None)
    {'drops': 'simultaneous'}
    """
    kind = strategies.get(strategy)
    preset = kind.memory_variants.get(variant, {}) if name == kind.default_memory else {}
    return _merged(f"option of memory '{name}'", memory.get(name), Memory, preset, given)


def method_options(name: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options of a method.

    >>> method_options("simclr", {"temperature": 0.2})
    {'temperature': 0.2}
    """
    return _merged(f"option of method '{name}'", methods.get(name), methods.Method, {}, given)


def replay_possible(name: str, memory_size: int, needed: int) -> None:
    """Refuse a memory so small that replay would never begin.

    >>> replay_possible("er", memory_size=128, needed=129)
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: memory_size (128) is too small for strategy 'er' to ever replay; it needs at least 129
    """
    if memory_size < needed:
        raise ConfigError(
            f"memory_size ({memory_size}) is too small for strategy '{name}' to ever replay; it needs at least {needed}"
        )


def no_options(kind: str, owner: str, given: Mapping[str, Any] | None) -> None:
    """Refuse options for a part that is not there.

    >>> no_options("memory_options", "finetune", {"drops": "sequential"})
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: strategy 'finetune' has no use for memory_options; leave them unset
    """
    if given:
        raise ConfigError(f"strategy '{owner}' has no use for {kind}; leave them unset")


def autocast_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """What the forward pass is rounded to: bfloat16 on a GPU, nothing elsewhere, unless told otherwise."""
    choice("precision", precision, PRECISIONS)
    low = precision == "bf16" or (precision == "auto" and device.type == "cuda")
    return torch.bfloat16 if low else None


def network_dtype(precision: str) -> torch.dtype:
    """What weights and features are kept in.

    >>> network_dtype("bf16")
    torch.float32
    """
    return torch.float64 if precision == "fp64" else torch.float32


def _merged(
    kind: str, built: type, base: type, preset: Mapping[str, Any], given: Mapping[str, Any] | None
) -> dict[str, Any]:
    known = _options(built) - _options(base)
    for name in given or {}:
        if not known:
            raise ConfigError(f"unknown {kind}: '{name}'; it has none")
        if name not in known:
            raise unknown(kind, name, sorted(known))
    return {**preset, **(given or {})}


def _options(built: type) -> set[str]:
    """Optional arguments of a class, those of its bases included where the constructor passes them on."""
    found: set[str] = set()
    for kind in built.__mro__:
        if "__init__" not in vars(kind):
            continue
        parameters = inspect.signature(vars(kind)["__init__"]).parameters.values()
        found |= {p.name for p in parameters if p.default is not p.empty or p.kind is p.KEYWORD_ONLY}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return found
