"""Optimisers.

>>> registry.names()
['sgd', 'adamw', 'lars']
"""

# The order of registration is the order of lists.
# isort: off
from ocssl.optim.base import ParameterGroup, Optimizer, register, registry
from ocssl.optim.sgd import SGD
from ocssl.optim.adamw import AdamW
from ocssl.optim.lars import LARS

__all__ = ["LARS", "SGD", "AdamW", "Optimizer", "ParameterGroup", "register", "registry"]
