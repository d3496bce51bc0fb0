"""The input of a loss, put together by hand."""

from __future__ import annotations

import torch

from ocssl.batch import Batch, Step
from ocssl.nn import Features


def step_of(batch: Batch, views: torch.Tensor, features: Features) -> Step:
    """A step whose draws begin with seed 0."""
    return Step(batch, views, features, torch.Generator().manual_seed(0))
