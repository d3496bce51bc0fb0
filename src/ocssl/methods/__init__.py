"""Self-supervised methods, one file each.

>>> registry.names()
['simsiam', 'simclr']
"""

# The order of registration is the order of lists.
# isort: off
from ocssl.methods.base import Dims, Method, register, registry
from ocssl.methods.simsiam import SimSiam
from ocssl.methods.simclr import SimCLR

__all__ = ["Dims", "Method", "SimCLR", "SimSiam", "register", "registry"]
