"""Learning from images as they come: one pass, bounded memory, restartable at the exact image.

``sources`` opens streams of images, ``seen`` is the index of those taken, ``autotune`` finds settings that this machine
can keep up with, ``state`` saves and restores, ``gate`` chooses what is published, ``monitor`` says how it goes, and
``learning`` is the loop.
"""

from __future__ import annotations

from ocssl.live.learning import learn
from ocssl.live.options import LiveOptions, check_names, settings

__all__ = ["LiveOptions", "check_names", "learn", "settings"]
