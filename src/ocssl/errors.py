"""The exceptions a user of ocssl can meet.

Each also derives from the built-in that fits it, so that code which catches ``ValueError`` or ``OSError`` keeps
working. The command line prints any :class:`OcsslError` as one line and leaves with exit code 2.

>>> from ocssl.errors import ConfigError
>>> issubclass(ConfigError, ValueError)
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError


class OcsslError(Exception):
    """Base of every error that ocssl raises on purpose."""


class ConfigError(OcsslError, ValueError):
    """A setting that cannot be: an unknown name, a value out of range, two settings that exclude each other."""


class DeviceError(ConfigError):
    """A device that is not there, or what it cannot do."""


class BusyError(ConfigError):
    """Another process is working in a folder."""


class InputError(OcsslError, ValueError):
    """Images, features or labels of the wrong kind: shape, dtype, value range, NaN, an empty batch."""


class DataError(OcsslError, OSError):
    """A data set or an image file that is missing, broken, or not what it claims to be."""


class CheckpointError(OcsslError, OSError):
    """A saved state that is truncated, foreign, unreadable, or could not be written."""


class MissingExtraError(OcsslError, ImportError):
    """An optional dependency is needed and not installed; the message says which extra brings it."""


class DivergedError(OcsslError, ArithmeticError):
    """Training produced NaN or infinity."""


class OutOfMemoryError(OcsslError, MemoryError):
    """The device has too little memory left for what is asked of it."""


class PeerError(OcsslError, ConnectionError):
    """Another process of the group has failed, died or hangs; the message names its rank."""


def unreadable(path: object, error: OSError | UnicodeDecodeError) -> str:
    """What to say of a text file that could not be read.

    >>> unreadable("a.yaml", FileNotFoundError(2, "No such file or directory", "a.yaml"))
    "cannot read 'a.yaml': No such file or directory"
    """
    return f"cannot read '{path}': {error.strerror if isinstance(error, OSError) else 'it is not text'}"


def first_misfit(error: ValidationError) -> str:
    """Where the content of a saved file differs first from what was expected, and how.

    >>> from pydantic import TypeAdapter, ValidationError
    >>> try:
    ...     TypeAdapter(dict[str, int]).validate_python({"seen": "x"}, strict=True)
    ... except ValidationError as error:
    ...     first_misfit(error)
    'seen: Input should be a valid integer'
    """
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def missing_extra(package: str, extra: str, purpose: str, command: str | None = None) -> MissingExtraError:
    """The error for an absent optional dependency, with the command that mends it.

    Args:
        command: what to type; by default pip's for the extra, which is right where that leaves torch as it is.

    >>> str(missing_extra("matplotlib", "plot", "figures"))
    "figures need the package 'matplotlib': pip install 'ocssl[plot]'"
    """
    return MissingExtraError(f"{purpose} need the package '{package}': " + (command or f"pip install 'ocssl[{extra}]'"))


def import_extra(module: str, extra: str, purpose: str, package: str | None = None) -> Any:
    """An optional dependency; where it is absent, :func:`missing_extra` says how to install it.

    Args:
        package: that has the module; by default the one of its name.

    >>> import_extra("json", "web", "web pages").dumps([1])
    '[1]'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing_extra(package or module, extra, purpose) from error
