"""Self-supervised objectives, one file each.

>>> names()
['simsiam', 'simclr']
"""

# The order of registration is the order users see.
# isort: off
from ocssl.methods.base import Dims, Method, get, names, register
from ocssl.methods.simsiam import SimSiam
from ocssl.methods.simclr import SimCLR

__all__ = ["Dims", "Method", "SimCLR", "SimSiam", "get", "names", "register"]
