"""Optimisers.

>>> registry.names()
['sgd']
"""

from ocssl.optim.base import Optimizer, register, registry
from ocssl.optim.sgd import SGD

__all__ = ["SGD", "Optimizer", "register", "registry"]
