"""An image grid of samples beside their augmented views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from ocssl.augment import Augmentation
from ocssl.common.console import shown
from ocssl.data.dataset import Dataset
from ocssl.data.streams import permutation
from ocssl.errors import ConfigError

CELL, GAP, HEADING, CAPTION = 96, 4, 26, 130
MAX_SAMPLES, MAX_CELLS, MAX_BYTES = 1000, 10_000, 1 << 30
"""Samples or views; images in the grid; bytes of the views of one order."""


def preview_grid(dataset: Dataset, *, samples: int, views: int, seed: int) -> Image.Image:
    """Samples, one per row, with views of each in the clean and in the authors' order.

    Both orders use the same random draws, so only the order differs between them. :func:`check_grid` comes first.
    """
    if (needed := min(samples, len(dataset)) * views * 12 * dataset.image_size**2) > MAX_BYTES:
        raise ConfigError(f"the views need {needed / 1e9:.1f} GB; choose fewer samples or views, or smaller images")
    chosen = torch.from_numpy(permutation(len(dataset), "preview", seed)[:samples])
    images = dataset.images(chosen)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (dataset.mean, dataset.std))
    panels = {"image": images[None] / 255}
    for normalize_first, heading in ((False, "clean order"), (True, "authors' order")):
        options = Augmentation.Options(mean=dataset.mean, std=dataset.std, normalize_first=normalize_first)
        augment = Augmentation(dataset.image_size, options)
        seen = augment(images, views=views, generator=torch.Generator().manual_seed(seed))
        panels[f"views, {heading}"] = seen * std + mean
    return draw_grid(panels, _captions(dataset, chosen))


def check_grid(samples: int, views: int, seed: int) -> None:
    """Refuse a grid that is too large to be drawn.

    >>> check_grid(8, 5000, 0)
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: views must be from 1 to 1000, not 5000
    """
    for name, value in (("samples", samples), ("views", views)):
        if not 1 <= value <= MAX_SAMPLES:
            raise ConfigError(f"{name} must be from 1 to {MAX_SAMPLES}, not {shown(value)}")
    if (cells := samples * (2 * views + 1)) > MAX_CELLS:
        raise ConfigError(f"the grid would have {cells:,} images, more than {MAX_CELLS:,}; choose fewer")
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed must be at least 0 and below 2**63, not {shown(seed)}")


def _captions(dataset: Dataset, chosen: Tensor) -> list[str]:
    if dataset.labels is None:
        return [f"#{index}" for index in chosen.tolist()]
    labels = dataset.labels[chosen].tolist()
    names = dict(enumerate(dataset.classes))
    return [names.get(label, f"class {label}") for label in labels]


def draw_grid(panels: Mapping[str, Tensor], captions: Sequence[str]) -> Image.Image:
    """Draw panels side by side, one row per caption.

    Args:
        panels: the images under each heading, float ``(columns, rows, 3, S, S)`` in [0, 1].

    >>> draw_grid({"image": torch.zeros(1, 2, 3, 8, 8)}, ["cat", "dog"]).height
    226
    """
    columns = sum(map(len, panels.values()))
    width = CAPTION + columns * (CELL + GAP) + (len(panels) - 1) * 2 * GAP
    canvas = Image.new("RGB", (width, HEADING + len(captions) * (CELL + GAP)), "white")
    pen = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(size=13)
    for row, caption in enumerate(captions):
        pen.text((6, HEADING + row * (CELL + GAP) + CELL // 2 - 8), caption[:18], "black", font)
    left = CAPTION
    for heading, images in panels.items():
        pen.text((left, 6), heading, "black", font)
        for column in images:
            for row, image in enumerate(column):
                canvas.paste(_enlarge(image), (left, HEADING + row * (CELL + GAP)))
            left += CELL + GAP
        left += 2 * GAP
    return canvas


def _enlarge(image: Tensor) -> Image.Image:
    pixels = (image.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
    # Small images keep their pixels visible; large ones are smoothed down.
    filter = Image.Resampling.NEAREST if len(pixels) <= CELL else Image.Resampling.LANCZOS
    return Image.fromarray(np.ascontiguousarray(pixels)).resize((CELL, CELL), filter)
