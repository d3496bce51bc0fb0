"""One picture, in whatever form it comes, to one uint8 array of fixed size.

Everything that can be wrong with a picture ends here as :class:`BadImage`, with a reason a person can act on; the
caller knows the picture's name and decides whether to skip or to stop.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

Pixels = npt.NDArray[np.uint8]
Picture = bytes | Path | Pixels | Image.Image

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""What is tried, in this order. Pillow knows many more, some of them old and seldom fuzzed."""

MAX_PIXELS = 80_000_000
"""More pixels than this in one picture count as a decompression bomb."""


class BadImage(Exception):
    """A picture that cannot be used; the message says why, without naming it."""


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
    ocssl.data.decode.BadImage: it is empty
    """
    if isinstance(picture, np.ndarray) and picture.ndim == 3 and picture.shape[2] == 3:
        height, width = picture.shape[:2]
        if height == width == (size or width) and picture.dtype == np.uint8:
            return np.ascontiguousarray(picture.transpose(2, 0, 1))
    try:
        return _square_rgb(_open(picture), size, opened_here=not isinstance(picture, Image.Image))
    except BadImage:
        raise
    except MemoryError:
        raise BadImage("it does not fit into memory") from None
    # Pillow's decoders raise almost anything on broken input: SyntaxError, struct.error, EOFError, IndexError, …
    except Exception as error:
        raise BadImage(_reason(error)) from error


def _open(picture: Picture) -> Image.Image:
    if isinstance(picture, Image.Image):
        return picture
    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8:
            raise BadImage(f"its pixels are {picture.dtype}, not uint8")
        return Image.fromarray(picture.squeeze(-1) if picture.shape[-1:] == (1,) and picture.ndim == 3 else picture)
    content = picture.read_bytes() if isinstance(picture, Path) else picture
    if not content:
        raise BadImage("it is empty")
    return Image.open(io.BytesIO(content), formats=FORMATS)


def _square_rgb(image: Image.Image, size: int | None, opened_here: bool) -> Pixels:
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise BadImage(f"it has {width}×{height} pixels, more than the {MAX_PIXELS:,} that are allowed")
    if size is None:
        if width != height:
            raise BadImage(f"it is {width}×{height}, not square: set image_size to crop and resize")
        size = width
    elif opened_here:
        # JPEG can decode straight to a half or a quarter; twice the target leaves the resampling filter enough to see.
        # This changes the image object, so a caller's own is spared.
        image.draft("RGB", (2 * size, 2 * size))
    image = _to_rgb(image)
    if image.size != (size, size):
        width, height = image.size
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        image = image.resize((size, size), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side))
    return np.ascontiguousarray(np.asarray(image, dtype=np.uint8).transpose(2, 0, 1))


def _to_rgb(image: Image.Image) -> Image.Image:
    """RGB by meaning, not by luck: 16-bit is scaled, transparency lies on white, of an animation the first frame."""
    if image.mode.startswith("I"):
        pixels = np.asarray(image).astype(np.int64)
        if pixels.min() < 0 or pixels.max() > 0xFFFF:
            raise BadImage("its pixels have more than 16 bits")
        return Image.fromarray((pixels >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise BadImage("its pixels are floating point numbers")
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        ground = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(ground, image).convert("RGB")
    return image.convert("RGB")


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return f"it is not an image ({', '.join(FORMATS)})"
    if isinstance(error, PermissionError):
        return "it may not be read (permission denied)"
    if isinstance(error, FileNotFoundError):
        return "it is not there"
    if isinstance(error, Image.DecompressionBombError):
        return f"it has more than the {MAX_PIXELS:,} pixels that are allowed"
    return f"it is broken ({str(error) or type(error).__name__})"
