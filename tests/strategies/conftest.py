"""Fixtures of tests of single strategies."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from ocssl.batch import Batch
from ocssl.methods import Dims, SimSiam
from ocssl.nn import Encoder
from ocssl.options import validate
from ocssl.strategies import Setup, Strategy

IMAGE_SIZE = 4


@pytest.fixture
def build() -> Callable[..., tuple[Strategy, Encoder]]:
    """Build a strategy around a tiny encoder of flat pixels."""

    def make(kind: type[Strategy], *, stream_batch: int = 3, batch: int = 8, **options) -> tuple[Strategy, Encoder]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            dims = Dims(feature=6, hidden=5, output=7)
            method = None if kind.own_loss else SimSiam(dims)
            head = kind.projector(dims) if method is None else method.projector()
            backbone = nn.Sequential(nn.Flatten(), nn.Linear(3 * IMAGE_SIZE**2, dims.feature))
            encoder = Encoder(backbone, head, dims.feature)
            setup = Setup(encoder, method, dims, encoder.output_dim, IMAGE_SIZE, stream_batch, batch)
            return kind(setup, validate(kind.Options, options)), encoder

    return make


@pytest.fixture
def some_views() -> Callable[[int], torch.Tensor]:
    """Two views of n samples, as augmented."""
    return lambda n: torch.randn(2, n, 3, IMAGE_SIZE, IMAGE_SIZE, generator=torch.Generator().manual_seed(n))


@pytest.fixture
def batch_of() -> Callable[[int, int], Batch]:
    """A batch of some stream and some replay samples; who they are does not matter here."""

    def make(stream: int, replay: int) -> Batch:
        images = torch.zeros(stream + replay, 3, IMAGE_SIZE, IMAGE_SIZE, dtype=torch.uint8)
        return Batch(images, stream, slots=torch.arange(replay) if replay else None)

    return make
