"""Images drawn by code: six outlines in three textures, for demos, tests and machines without a data set.

Every image is one bright figure on a darker, plain ground. Position, size, rotation, contrast and the phase of the
texture are random, so classes differ in shape and hardly in position or tone. Colours stay near grey on purpose: with
free colours, or figures both brighter and darker than their ground, a contrastive objective could tell instances apart
by colour or tone alone and would never need shape.

Outlines and textures are signed distances on a grid of coordinates, negative inside; clipping them gives smooth edges.
Beyond one sine and cosine per image only additions, products, roots and comparisons are used: these are exact in IEEE
arithmetic, so the same seed draws the same images on every machine.

>>> images, labels = draw(36, seed=0)
>>> images.shape, images.dtype, labels.bincount().unique()
(torch.Size([36, 3, 32, 32]), torch.uint8, tensor([2]))
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ocssl.errors import ConfigError

Floats = NDArray[np.float32]
Field = Callable[[Floats, Floats], Floats]

MAX_BYTES = 16 << 30  # of all images
_CHUNK = 512  # images rendered at once: bounds the scratch memory and keeps it in cache


def _half_planes(x: Floats, y: Floats, sides: int) -> Floats:
    """How far each point lies along the normals of a regular polygon: (sides, *grid)."""
    angles = [2 * math.pi * k / sides for k in range(sides)]
    return np.stack([x * np.float32(math.sin(angle)) + y * np.float32(math.cos(angle)) for angle in angles])


def _cross(x: Floats, y: Floats) -> Floats:
    long, short = np.maximum(np.abs(x), np.abs(y)), np.minimum(np.abs(x), np.abs(y))
    return np.maximum(long - np.float32(1.0), short - np.float32(0.33))


def _dotted(u: Floats, v: Floats) -> Floats:
    u, v = _to_cell_centre(u), _to_cell_centre(v)
    return np.sqrt(u * u + v * v) - np.float32(0.33)


def _to_cell_centre(position: Floats) -> Floats:
    """Signed distance to the middle of the unit cell that a position falls into, in [-0.5, 0.5)."""
    return position - np.floor(position) - np.float32(0.5)


OUTLINES: dict[str, Field] = {
    "disc": lambda x, y: np.sqrt(x * x + y * y) - np.float32(0.85),
    "ring": lambda x, y: np.abs(np.sqrt(x * x + y * y) - np.float32(0.75)) - np.float32(0.25),
    "square": lambda x, y: np.maximum(np.abs(x), np.abs(y)) - np.float32(0.75),
    "triangle": lambda x, y: _half_planes(x, y, 3).max(axis=0) - np.float32(0.6),
    "cross": _cross,
    # A five-pointed star is every point that lies outside at most one of its five edges' lines.
    "star": lambda x, y: np.sort(_half_planes(x, y, 5), axis=0)[-2] - np.float32(0.4),
}
"""Signed distance to each outline, in units of the figure's radius."""

TEXTURES: dict[str, Field] = {
    "plain": lambda u, v: np.ones_like(u),
    "striped": lambda u, v: np.abs(_to_cell_centre(u)) - np.float32(0.25),
    "dotted": _dotted,
}
"""Signed distance to each texture's marks, in units of the texture's period."""

CLASSES: tuple[str, ...] = tuple(f"{texture} {outline}" for outline in OUTLINES for texture in TEXTURES)
"""The 18 class names, by label: ``CLASSES[label]``."""


def draw(count: int, *, size: int = 32, seed: int) -> tuple[Tensor, Tensor]:
    """Draw ``count`` images of the 18 classes, in random order and as evenly spread over them as ``count`` allows.

    Args:
        size: side length in pixels; figures and textures scale with it.
        seed: the images are a function of ``count``, ``size`` and ``seed`` alone.

    Returns:
        images: uint8 ``(count, 3, size, size)``.
        labels: int64 ``(count,)``, indices into :data:`CLASSES`.

    >>> images, labels = draw(2, size=64, seed=7)
    >>> bool((draw(2, size=64, seed=7)[0] == images).all())
    True
    """
    if count < 1 or size < 8:
        raise ConfigError(f"shapes need at least one image of 8 pixels, not {count} of {size}")
    if (needed := count * 3 * size * size) > MAX_BYTES:
        raise ConfigError(f"{count:,} shapes of {size}×{size} need {needed / 1e9:.0f} GB of memory; draw smaller ones")
    rng = np.random.Generator(np.random.PCG64(seed))
    labels = np.argsort(rng.random(count), kind="stable").astype(np.int64) % len(CLASSES)
    figures = _figures(count, size, rng)
    images = np.empty((count, 3, size, size), dtype=np.uint8)
    for start in range(0, count, _CHUNK):
        rows = slice(start, start + _CHUNK)
        noise = rng.random((len(labels[rows]), 3, size, size), dtype=np.float32)
        images[rows] = _render({name: values[rows] for name, values in figures.items()}, labels[rows], noise)
    return torch.from_numpy(images), torch.from_numpy(labels)


def _figures(count: int, size: int, rng: np.random.Generator) -> dict[str, Floats]:
    """The random parameters of each image by name, float32, shaped to broadcast over the grid."""

    def uniform(low: float, high: float, *shape: int) -> NDArray[np.float64]:
        return low + (high - low) * rng.random((count, *(shape or (1, 1))))

    pixel = size / 32
    radius = uniform(10.5, 14.5) * pixel
    margin = 0.8 * radius  # the border may cut off a little of a figure's rim
    turn = uniform(-0.3, 0.3)  # radians; with free rotation, instances would differ more than classes
    ground = uniform(0.27, 0.37, 1, 1, 1)
    contrast = uniform(0.3, 0.45, 1, 1, 1)
    fill = ground + contrast
    drawn = {
        "centre_x": margin + (size - 2 * margin) * rng.random((count, 1, 1)),
        "centre_y": margin + (size - 2 * margin) * rng.random((count, 1, 1)),
        "radius": radius,
        "cosine": np.cos(turn),
        "sine": np.sin(turn),
        "period": uniform(4.5, 6.0) * pixel,
        "phase_u": rng.random((count, 1, 1)),
        "phase_v": rng.random((count, 1, 1)),
        "ground": ground + uniform(-0.01, 0.01, 3, 1, 1),
        "fill": fill + uniform(-0.01, 0.01, 3, 1, 1),
        "mark": fill - 0.85 * contrast,
    }
    return {name: values.astype(np.float32) for name, values in drawn.items()}


def _render(figures: dict[str, Floats], labels: NDArray[np.int64], noise: Floats) -> NDArray[np.uint8]:
    """Paint figures over their grounds: uint8 (N, 3, S, S)."""
    size = noise.shape[-1]
    pixels = np.arange(size, dtype=np.float32) + np.float32(0.5)
    across, down = pixels[None, None, :] - figures["centre_x"], pixels[None, :, None] - figures["centre_y"]
    cosine, sine = figures["cosine"], figures["sine"]
    x, y = cosine * across + sine * down, cosine * down - sine * across

    outline_of, texture_of = np.divmod(labels, len(TEXTURES))
    inside = _coverage(OUTLINES, outline_of, x, y, figures["radius"])
    period = figures["period"]
    phased_x, phased_y = x + figures["phase_u"] * period, y + figures["phase_v"] * period
    marked = _coverage(TEXTURES, texture_of, phased_x, phased_y, period)

    ground, fill, mark = figures["ground"], figures["fill"], figures["mark"]
    figure = fill + (mark - fill) * marked[:, None]
    image = ground + (figure - ground) * inside[:, None]
    image += (noise - np.float32(0.5)) * np.float32(0.03)
    return np.rint(image.clip(0, 1) * np.float32(255)).astype(np.uint8)


def _coverage(fields: dict[str, Field], choice: NDArray[np.int64], x: Floats, y: Floats, unit: Floats) -> Floats:
    """The share of each pixel that the chosen field covers: 1 inside, 0 outside, a ramp one pixel wide between."""
    covered = np.empty(np.broadcast_shapes(x.shape, y.shape), dtype=np.float32)
    for index, field in enumerate(fields.values()):
        rows = np.flatnonzero(choice == index)
        distance = field(x[rows] / unit[rows], y[rows] / unit[rows]) * unit[rows]
        covered[rows] = (np.float32(0.5) - distance).clip(0, 1)
    return covered
