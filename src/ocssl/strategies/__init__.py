"""Continual-learning strategies: what is replayed, and which features are aligned to which.

>>> names = registry.names()
>>> " ".join(names[:9])
'finetune er minred lump cassle cassle-r scale osiris-r osiris-d'
>>> " ".join(names[9:])
'cla-b cla-e cla-r pfr sy-con pocon cmp reset adapt multiview-r taught'
"""

# The order of registration is the order of lists.
# isort: off
from ocssl.strategies.base import Setup, Strategy, TeacherSource, register, registry
from ocssl.strategies.replay import ExperienceReplay, Finetune, MinimumRedundancy
from ocssl.strategies.lump import Lump
from ocssl.strategies.targets import EmaTeacher, Snapshot, StoredFeature, Target
from ocssl.strategies.alignment import Aligned, CaSSLe, CaSSLeR
from ocssl.strategies.scale import Scale
from ocssl.strategies.osiris import OsirisD, OsirisR
from ocssl.strategies.cla import ClaB, ClaE, ClaR
from ocssl.strategies.pfr import Pfr
from ocssl.strategies.sycon import SyCon
from ocssl.strategies.pocon import Pocon
from ocssl.strategies.cmp import Cmp
from ocssl.strategies.reset import Reset
from ocssl.strategies.adapt import Adapt, Original
from ocssl.strategies.multiview import MultiViewR
from ocssl.strategies.taught import Taught
from ocssl.strategies import authors

__all__ = [
    "Adapt",
    "Aligned",
    "CaSSLe",
    "CaSSLeR",
    "ClaB",
    "ClaE",
    "ClaR",
    "Cmp",
    "EmaTeacher",
    "ExperienceReplay",
    "Finetune",
    "Lump",
    "MinimumRedundancy",
    "MultiViewR",
    "Original",
    "OsirisD",
    "OsirisR",
    "Pfr",
    "Pocon",
    "Reset",
    "Scale",
    "Setup",
    "Snapshot",
    "StoredFeature",
    "Strategy",
    "SyCon",
    "Target",
    "Taught",
    "TeacherSource",
    "authors",
    "register",
    "registry",
]
