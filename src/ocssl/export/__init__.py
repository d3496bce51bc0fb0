"""What leaves ocssl: the published encoder, other formats of it, and features of images."""

from __future__ import annotations

from ocssl.export.encoder import FrozenEncoder, load, of_learner, publish

__all__ = ["FrozenEncoder", "load", "of_learner", "publish"]
