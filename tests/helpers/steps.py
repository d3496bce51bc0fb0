"""Input and output of a loss, put together by hand."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from ocssl.batch import Batch, Step, StepOutput
from ocssl.methods import Dims, Method, registry
from ocssl.nn import Encoder, Features
from ocssl.options import validate


def step_of(batch: Batch, views: torch.Tensor, features: Features) -> Step:
    """A step whose draws begin with seed 0."""
    return Step(batch, views, features, torch.Generator().manual_seed(0))


def begun(name: str, views: int = 2, n: int = 5, joint: bool = True, **options: object) -> tuple[Method, Encoder, Step]:
    """A method with a tiny encoder, both in double precision, and a step of random views."""
    torch.manual_seed(0)
    kind = registry.get(name)
    method = kind(Dims(feature=6, hidden=5, output=7), validate(kind.Options, {"views": views, **options}))
    encoder = Encoder(nn.Sequential(nn.Flatten(), nn.Linear(12, 6)), method.projector(), feature_dim=6)
    method.begin(encoder)
    method.double(), encoder.double()
    seen = torch.randn(views, n, 3, 2, 2, dtype=torch.float64)
    batch = Batch(torch.zeros(n, 3, 2, 2, dtype=torch.uint8), stream=n)
    return method, encoder, step_of(batch, seen, encoder(seen, joint))


def end_of(step: Step) -> StepOutput:
    """What a method sees after the step."""
    return StepOutput(step.batch, step.views, step.features.detach(), {}, 0)


def moved(encoder: Encoder) -> Encoder:
    """The encoder after a large step of the optimiser."""
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter))
    return encoder


def ordered_pairs(views: int) -> list[tuple[int, int]]:
    """All pairs of two different views."""
    return list(itertools.permutations(range(views), 2))
