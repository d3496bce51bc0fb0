"""Frames to learn from, and a learner small enough to learn from them in no time."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

TINY = {
    "backbone": "convnet-w8",
    "image_size": 8,
    "stream_batch": 4,
    "batch": 8,
    "passes": 1,
    "memory_size": 24,
    "hidden_dim": 16,
    "output_dim": 32,
    "device": "cpu",
}


def tiny_options() -> list[str]:
    """The same for the command line."""
    return [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]


def frame(number: int, height: int = 8, width: int = 8) -> np.ndarray:
    """Random pixels ``(height, width, 3)``."""
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)


def png(number: int) -> bytes:
    """One frame as the content of a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(frame(number)).save(buffer, "PNG")
    return buffer.getvalue()


def write_frame(path: Path, number: int, **size: int) -> Path:
    """One frame as a PNG file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(frame(number, **size)).save(path)
    return path


def write_frames(folder: Path, numbers: range) -> Path:
    """Frames by number: ``00012.png``."""
    for number in numbers:
        write_frame(folder / f"{number:05d}.png", number)
    return folder
