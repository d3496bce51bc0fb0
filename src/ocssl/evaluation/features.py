"""Features of many images, a chunk at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ocssl.errors import ConfigError, InputError

CHUNK_PIXELS = {"cpu": 512 * 32**2, "cuda": 2048 * 32**2}
"""Pixels that go through an encoder at once; an activation of ResNet-18 takes 128 bytes a pixel in half precision."""
MIN_CHUNK = 64  # images, however large


class ImageSlices(Protocol):
    """Images that have a length and give a run of images for a slice: a tensor, an array, a part of a data set."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Any: ...


def extract(
    encode: Callable[[Any], Any],
    images: ImageSlices,
    *,
    batch: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Features ``(N, D)`` of N images: float32 on the CPU, or float16 on the GPU where ``encode`` returns them there.

    Args:
        encode: turns a run of images, whatever ``images[a:b]`` gives, into features ``(b - a, D)``.
        images: the N images.
        batch: how many are encoded at once; by default 512 of 32 × 32 pixels, fewer of larger ones, and four times as
            many where images lie on a GPU.
        progress: called after each run with the images done and N.

    >>> extract(lambda images: images.flatten(1).float(), torch.ones(5, 3, 2, 2, dtype=torch.uint8), batch=2).shape
    torch.Size([5, 12])
    """
    return extract_parts(encode, [images], batch=batch, progress=progress)[0]


def extract_parts(
    encode: Callable[[Any], Any],
    parts: Sequence[ImageSlices],
    *,
    batch: int | None = None,
    full_precision: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[Tensor]:
    """:func:`extract` for several sets of images, e.g. train, validation and test, with one count of progress.

    Args:
        full_precision: float32 on a GPU, too.
    """
    if batch is not None and batch < 1:
        raise ConfigError(f"batch must be at least 1, not {batch}")
    if not all(len(images) for images in parts):
        raise InputError("there are no images to extract features from")
    total, done, found = sum(len(images) for images in parts), 0, []
    for images in parts:
        count, size = len(images), batch or _chunk(images)
        features: Tensor | None = None
        for start in range(0, count, size):
            stop = min(start + size, count)
            with torch.no_grad():
                chunk = torch.as_tensor(encode(images[start:stop]))
            if features is None and chunk.ndim == 2:
                dtype = torch.float16 if chunk.is_cuda and not full_precision else torch.float32
                features = torch.empty(count, chunk.shape[1], dtype=dtype, device=chunk.device)
            if features is None or chunk.shape != features[start:stop].shape:
                wanted = "" if features is None else f", not ({stop - start}, {features.shape[1]})"
                raise InputError(
                    f"the encoder gave features of shape {tuple(chunk.shape)} for {stop - start} images{wanted}"
                )
            features[start:stop] = chunk
            done += stop - start
            if progress is not None:
                progress(done, total)
        assert features is not None
        found.append(features)
    return found


def _chunk(images: ImageSlices) -> int:
    """How many of these images go through an encoder at once."""
    first = images[0:1]
    shape, device = getattr(first, "shape", (1, 3, 32, 32)), getattr(first, "device", None)
    pixels = max(1, math.prod(shape[1:]) // 3)
    return max(MIN_CHUNK, CHUNK_PIXELS.get(getattr(device, "type", "cpu"), CHUNK_PIXELS["cpu"]) // pixels)
