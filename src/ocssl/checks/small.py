"""Small learners and streams, with which the contracts are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ocssl import strategies
from ocssl.learner import Learner

SIZE = 8
STREAM_BATCH = 4
Build = Callable[..., Learner]
"""Makes a small learner; its arguments come on top of those that are checked."""


def small_learner(strategy: str, **settings: Any) -> Learner:
    """A learner small enough to be trained hundreds of times in a test.

    >>> small_learner("er").partial_fit(small_stream(8)).seen
    8
    """
    kind = strategies.registry.get(strategy)
    defaults: dict[str, Any] = {
        "backbone": "convnet-w4",
        "image_size": SIZE,
        "stream_batch": STREAM_BATCH,
        "batch": STREAM_BATCH if kind.default_batch(STREAM_BATCH) == STREAM_BATCH else 3 * STREAM_BATCH,
        "passes": 2,
        "memory_size": None if kind.default_memory is None else 20,
        "heads_first": 3 if "heads_first" in kind.Options.model_fields else None,
        "lr": 0.02,
        "hidden_dim": 16,
        "output_dim": 32,
        "device": "cpu",
    }
    return Learner(strategy=strategy, **{**defaults, **settings})


def small_stream(n: int, seed: int = 0) -> Tensor:
    """n random images, ``(n, 3, 8, 8)`` uint8.

    >>> small_stream(2).shape
    torch.Size([2, 3, 8, 8])
    """
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (n, 3, SIZE, SIZE), dtype=torch.uint8, generator=generator)
