"""Folders of small pictures for runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def draw(folder: Path, count: int, seed: int = 0, first: int = 0) -> None:
    """PNG files of random pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    for number in range(first, first + count):
        Image.fromarray(generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"{number}.png")
