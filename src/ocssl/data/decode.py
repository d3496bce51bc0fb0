"""One picture, in whatever form it comes, to one uint8 array of fixed size.

What cannot be used ends as :class:`BadImage`; what its pixels become is :mod:`ocssl.pictures`' to say.
"""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
from PIL import Image

from ocssl.pictures import BadImage, Pixels, bad_images, open_picture, square_rgb

__all__ = ["BadImage", "Picture", "Pixels", "decode"]

Picture = bytes | Path | Pixels | Image.Image


def decode(picture: Picture, size: int | None = None) -> Pixels:
    """Decode a picture to RGB and make it square.

    Args:
        picture: the bytes of an image file, its path, a PIL image, or uint8 pixels ``(H, W)`` or ``(H, W, 1|3|4)``.
        size: target side length: the largest centred square, resized. None keeps the picture's own size, which must
            be square.

    Returns:
        uint8 ``(3, S, S)``.

    >>> decode(np.full((6, 4), 7, dtype=np.uint8), size=4).shape
    (3, 4, 4)
    >>> decode(b"")
    Traceback (most recent call last):
    ...
    ocssl.pictures.BadImage: it is empty
    """
    if isinstance(picture, np.ndarray) and picture.ndim == 3 and picture.shape[2] == 3:
        height, width = picture.shape[:2]
        if 0 < height == width == (size or width) and picture.dtype == np.uint8:
            return np.ascontiguousarray(picture.transpose(2, 0, 1))
    with bad_images():
        image = _open(picture)
    return square_rgb(image, size)


def _open(picture: Picture) -> Image.Image:
    if isinstance(picture, Image.Image):
        return picture
    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8:
            raise BadImage(f"its pixels are {picture.dtype}, not uint8")
        return Image.fromarray(picture.squeeze(-1) if picture.shape[-1:] == (1,) and picture.ndim == 3 else picture)
    return open_picture(_read(picture) if isinstance(picture, Path) else picture)


def _read(path: Path) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe never ends
        raise BadImage("it is not a regular file")
    return path.read_bytes()
