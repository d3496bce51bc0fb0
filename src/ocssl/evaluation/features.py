"""Features of many images, a chunk at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from ocssl.errors import ConfigError, InputError


class Images(Protocol):
    """Anything that knows its length and gives a run of images for a slice: a tensor, an array."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Any: ...


def extract(
    encode: Callable[[Any], Any],
    images: Images,
    *,
    batch: int = 512,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Features ``(N, D)`` of N images, float32 on the CPU.

    Args:
        encode: turns a run of images, whatever ``images[a:b]`` gives, into features ``(b - a, D)``.
        images: the N images.
        batch: how many are encoded at once.
        progress: called after each run with the images done and N.

    >>> extract(lambda images: images.flatten(1).float(), torch.ones(5, 3, 2, 2, dtype=torch.uint8), batch=2).shape
    torch.Size([5, 12])
    """
    if batch < 1:
        raise ConfigError(f"batch must be at least 1, not {batch}")
    count = len(images)
    if count == 0:
        raise InputError("there are no images to extract features from")
    features: Tensor | None = None
    for start in range(0, count, batch):
        stop = min(start + batch, count)
        with torch.no_grad():
            part = torch.as_tensor(encode(images[start:stop]))
        if features is None and part.ndim == 2:
            features = torch.empty(count, part.shape[1])
        if features is None or part.shape != features[start:stop].shape:
            wanted = "" if features is None else f", not ({stop - start}, {features.shape[1]})"
            raise InputError(
                f"the encoder gave features of shape {tuple(part.shape)} for {stop - start} images{wanted}"
            )
        features[start:stop] = part
        if progress is not None:
            progress(stop, count)
    assert features is not None
    return features
