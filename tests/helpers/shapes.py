"""The drawn images, which many tests load, drawn once in a process."""

from __future__ import annotations

import functools

import torch

from ocssl.data import catalog


@functools.cache
def draw_shapes_once() -> None:
    """From here on, this process draws shapes of one number, size and seed once; each caller gets a copy."""
    drawn = functools.lru_cache(maxsize=4)(catalog.draw)

    def draw(count: int, *, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = drawn(count, size=size, seed=seed)
        return images.clone(), labels.clone()

    catalog.draw = draw
