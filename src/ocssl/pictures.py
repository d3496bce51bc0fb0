"""One opened picture, in whatever mode and shape, to square RGB pixels: the same for files, streams and PIL images.

Everything that can be wrong with a picture ends here as :class:`BadImage`, with a reason a person can act on; the
caller knows the picture's name and decides whether to skip or to stop.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

Pixels = npt.NDArray[np.uint8]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""What is tried, in this order. Pillow knows many more, some of them old and seldom fuzzed."""

MAX_PIXELS = 80_000_000
"""More pixels than this in one picture count as a decompression bomb."""


_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""By EXIF's number for how a camera was held."""


class BadImage(Exception):
    """A picture that cannot be used; the message says why, without naming it."""


@contextlib.contextmanager
def bad_images() -> Iterator[None]:
    """Turns whatever a picture's reading raises into :class:`BadImage`."""
    try:
        yield
    except BadImage:
        raise
    except MemoryError:
        raise BadImage("it does not fit into memory") from None
    # Pillow's decoders raise almost anything on broken input: SyntaxError, struct.error, EOFError, IndexError, …
    except Exception as error:
        raise BadImage(_reason(error)) from error


def open_picture(content: bytes) -> Image.Image:
    """The picture in the bytes of an image file, its pixels not yet decoded."""
    if not content:
        raise BadImage("it is empty")
    return Image.open(io.BytesIO(content), formats=FORMATS)


def square_rgb(image: Image.Image, size: int | None = None) -> Pixels:
    """A picture's largest centred square in RGB, upright, as uint8 ``(3, S, S)``; the picture itself is not changed.

    Args:
        size: target side length; None keeps the picture's own size, which must be square.

    >>> square_rgb(Image.new("L", (6, 4)), size=2).shape
    (3, 2, 2)
    """
    with bad_images():
        width, height = image.size
        if not width or not height:
            raise BadImage("it has no pixels")
        if width * height > MAX_PIXELS:
            raise BadImage(f"it has {width}×{height} pixels, more than the {MAX_PIXELS:,} that are allowed")
        if size is None and width != height:
            raise BadImage(f"it is {width}×{height}, not square: set image_size to crop and resize")
        size = size or width
        image = _drafted(image, size)
        image, turn = _to_rgb(image), _turn(image)
        if image.size != (size, size):
            width, height = image.size
            side = min(width, height)
            left, top = (width - side) / 2, (height - side) / 2
            image = image.resize((size, size), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side))
        if turn is not None:  # a centred square of the turned picture is the turned centred square
            image = image.transpose(turn)
        return np.ascontiguousarray(np.asarray(image, dtype=np.uint8).transpose(2, 0, 1))


def _drafted(image: Image.Image, size: int) -> Image.Image:
    """A large JPEG that is not decoded yet, set to be decoded straight to a half or less; others as they are.

    Twice the target leaves the resampling filter enough to see. Drafting changes the image object, so it is done to a
    second one of the same file.
    """
    if min(image.size) < 4 * size or not isinstance(image, JpegImageFile) or not image.tile or image.fp is None:
        return image
    place = image.fp.tell()
    image.fp.seek(0)
    content = image.fp.read()
    image.fp.seek(place)
    second = open_picture(content)
    if second.size != image.size:  # its owner drafted it already
        return image
    second.draft("RGB", (2 * size, 2 * size))
    return second


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


def _turn(image: Image.Image) -> Image.Transpose | None:
    """What turns a decoded picture upright, as its camera noted it; Pillow has done so already for TIFF."""
    if "exif" not in image.info:
        return None
    with contextlib.suppress(Exception):  # a broken note says nothing, and does not make a picture unusable
        return _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    return None


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
