"""Replay memories: one preallocated storage, and policies that assign a slot to each new sample.

>>> registry.names()
['fifo', 'reservoir', 'minred', 'hybrid', 'hybrid-minred', 'anchored']
"""

# The order of registration is the order of lists.
# isort: off
from ocssl.memory.base import Column, Memory, register, registry
from ocssl.memory.fifo import Fifo
from ocssl.memory.reservoir import Reservoir
from ocssl.memory.minred import MinRed, MinRedAuthors, MinRedOriginal
from ocssl.memory.hybrid import Hybrid, HybridMinRed
from ocssl.memory.anchored import Anchored
from ocssl.memory.part_and_select import PartAndSelect

__all__ = [
    "Anchored",
    "Column",
    "Fifo",
    "Hybrid",
    "HybridMinRed",
    "Memory",
    "MinRed",
    "MinRedAuthors",
    "MinRedOriginal",
    "PartAndSelect",
    "Reservoir",
    "register",
    "registry",
]
