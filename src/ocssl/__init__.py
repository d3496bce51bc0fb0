"""Online continual self-supervised learning.

>>> import ocssl
>>> "cla-e" in ocssl.strategies.names()
True

Importing the package is cheap: torch and the rooms that need it are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ocssl import budget, checks, data, distributed, memory, methods, strategies
    from ocssl.learner import Learner

try:
    __version__ = version("ocssl")
except PackageNotFoundError:  # a source tree on the path that nobody installed
    __version__ = "0.0.0+source"

__all__ = ["Learner", "__version__", "budget", "checks", "data", "distributed", "memory", "methods", "strategies"]

_ROOMS = {"budget", "checks", "data", "distributed", "memory", "methods", "strategies"}


def __getattr__(name: str) -> Any:
    if name == "Learner":
        from ocssl.learner import Learner

        return Learner
    if name in _ROOMS:
        return importlib.import_module(f"ocssl.{name}")
    raise AttributeError(f"module 'ocssl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
