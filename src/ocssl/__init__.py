"""Online continual self-supervised learning.

>>> import ocssl
>>> "cla-e" in ocssl.strategies.registry.names()
True

Importing the package is cheap: torch and the packages that need it are loaded when they are first used.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from ocssl.version import __version__

if TYPE_CHECKING:
    from ocssl import (
        budget,
        checks,
        data,
        distributed,
        errors,
        evaluation,
        export,
        live,
        memory,
        methods,
        nn,
        optim,
        strategies,
    )
    from ocssl.learner import Learner

__all__ = [
    "Learner",
    "__version__",
    "budget",
    "checks",
    "data",
    "distributed",
    "errors",
    "evaluation",
    "export",
    "live",
    "memory",
    "methods",
    "nn",
    "optim",
    "strategies",
]


if os.name != "posix":
    raise ImportError("ocssl needs the file locks of a POSIX system; on Windows, use it in WSL")


def __getattr__(name: str) -> Any:
    if name == "Learner":
        from ocssl.learner import Learner

        return Learner
    if name in __all__:
        return importlib.import_module(f"ocssl.{name}")
    raise AttributeError(f"module 'ocssl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
