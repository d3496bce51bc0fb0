"""At which size to learn, judged by the first image."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from ocssl.device import pick_device
from ocssl.imaging import BadImage, Picture, bad_images, decode

LARGEST_ON_CPU, LARGEST_ON_GPU = 64, 224


def size_for(picture: Picture | BadImage, device: str = "auto") -> int | None:
    """The shorter side of a picture, but no more than a machine of this kind can be asked to learn at.

    None if the picture cannot be used.

    >>> size_for(np.zeros((32, 48, 3), dtype=np.uint8)), size_for(np.zeros((480, 640, 3), dtype=np.uint8), "cpu")
    (32, 64)
    """
    if isinstance(picture, BadImage):
        return None
    largest = LARGEST_ON_CPU if pick_device(device).type == "cpu" else LARGEST_ON_GPU
    try:
        decode(picture, LARGEST_ON_CPU)
        with bad_images():  # a file may vanish in between
            return min(*_sides(picture), largest)
    except BadImage:
        return None


def _sides(picture: Picture) -> tuple[int, int]:
    if isinstance(picture, np.ndarray):
        return picture.shape[0], picture.shape[1]
    if isinstance(picture, Image.Image):
        return picture.size
    with Image.open(picture if isinstance(picture, Path) else io.BytesIO(picture)) as image:
        return image.size
