"""Self-supervised methods, one file each.

>>> registry.names()
['simsiam', 'simclr', 'byol', 'moco', 'barlow', 'vicreg', 'swav', 'dino', 'emp', 'emp-simclr', 'lejepa']
"""

# The order of registration is the order of lists.
# isort: off
from ocssl.methods.base import Dims, Method, register, registry
from ocssl.methods.simsiam import SimSiam
from ocssl.methods.simclr import SimCLR
from ocssl.methods.multicrop import MultiCrop
from ocssl.methods.target import TargetMethod
from ocssl.methods.byol import BYOL
from ocssl.methods.moco import MoCo
from ocssl.methods.barlow import BarlowTwins
from ocssl.methods.vicreg import VICReg
from ocssl.methods.swav import SwAV
from ocssl.methods.dino import DINO
from ocssl.methods.emp import EMP
from ocssl.methods.emp_simclr import EMPSimCLR
from ocssl.methods.lejepa import LeJEPA

__all__ = [
    "BYOL",
    "DINO",
    "EMP",
    "BarlowTwins",
    "Dims",
    "EMPSimCLR",
    "LeJEPA",
    "Method",
    "MoCo",
    "MultiCrop",
    "SimCLR",
    "SimSiam",
    "SwAV",
    "TargetMethod",
    "VICReg",
    "register",
    "registry",
]
