"""Small pictures for tests, and the files that hold them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image


def pixels(seed: int, *shape: int) -> np.ndarray:
    """Random uint8 pixels, (32, 32, 3) unless told otherwise."""
    return np.random.default_rng(seed).integers(0, 256, shape or (32, 32, 3), dtype=np.uint8)


def png(image: np.ndarray) -> bytes:
    """A lossless file, so that what comes out can be compared bit by bit."""
    return encoded(Image.fromarray(image), "PNG")


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def chw(image: np.ndarray) -> np.ndarray:
    return image.transpose(2, 0, 1)
