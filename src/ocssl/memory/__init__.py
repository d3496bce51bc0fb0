"""The replay memory: one preallocated store, and policies that decide which slot each newcomer takes.

>>> names()
['fifo', 'reservoir', 'minred']
"""

# The order of registration is the order users see.
# isort: off
from ocssl.memory.base import Column, Memory, get, names, register
from ocssl.memory.fifo import Fifo
from ocssl.memory.reservoir import Reservoir
from ocssl.memory.minred import MinRed
from ocssl.memory.part_and_select import PartAndSelect

__all__ = ["Column", "Fifo", "Memory", "MinRed", "PartAndSelect", "Reservoir", "get", "names", "register"]
