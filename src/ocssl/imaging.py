"""One image in any form to uint8 pixels; :mod:`ocssl.image_batch` takes several.

An image that cannot be used raises :class:`BadImage` with the reason. The caller knows the image's name and decides
whether to skip it or to stop. An error of the system (a failing disk, too few file handles, no memory) says nothing of
the image and is raised as it is.
"""

from __future__ import annotations

import contextlib
import errno
import io
import math
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile

from ocssl.common.console import warn_once
from ocssl.common.files import read_file
from ocssl.errors import ConfigError

Pixels = npt.NDArray[np.uint8]
Picture = bytes | Path | Pixels | Image.Image
Fit = Literal["crop", "squash"]
"""How an image becomes a square: its largest centred square, or all of it with another aspect ratio."""
PixelRange = tuple[float, float]
"""The values of black and white."""

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""What is tried, in this order. Pillow knows many more, some of them old and seldom fuzzed."""

MAX_PIXELS = 80_000_000
"""More pixels than this in one image count as a decompression bomb. All threads together decode no more at once."""

MAX_BYTES = 64 << 20
"""Largest encoded image: a file, a value of a parquet file, a member of a tar file."""

LARGE_PIXELS = 16_000_000
"""Larger images are converted to RGB strip by strip, and reduced on the way."""

STRIP_PIXELS = 1_000_000

OF_THE_IMAGE = (None, errno.ENOENT, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""Errors of the system that a path or the content causes; Pillow's own have no number."""

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""By EXIF orientation."""


class BadImage(Exception):
    """An image that cannot be used; the message gives the reason without the image's name."""


@contextlib.contextmanager
def bad_images() -> Iterator[None]:
    """Turn any error that an image causes into :class:`BadImage`; errors of the system pass."""
    try:
        yield
    except (BadImage, MemoryError):
        raise
    # Pillow's decoders raise almost anything on broken input: SyntaxError, struct.error, EOFError, IndexError, …
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in OF_THE_IMAGE:
            raise
        raise BadImage(_reason(error)) from error


def decode(
    picture: Picture, size: int | None = None, fit: Fit = "crop", pixel_range: PixelRange | None = None
) -> Pixels:
    """Decode one image to square RGB.

    Args:
        picture: the bytes of an image file, its path, a PIL image, or pixels ``(H, W)`` or ``(H, W, 1|3|4)``: uint8,
            uint16, or float in [0, 1].
        size: target side length. None keeps the image's own size, which must be square.
        fit: what is resized: ``crop``, the largest centred square, or ``squash``, the whole image.
        pixel_range: black and white of an image with more than 8 bits or floating point numbers.

    Returns:
        uint8 ``(3, S, S)``, an array of its own.

    Raises:
        BadImage: the image cannot be used.
        OSError, MemoryError: it could not be read for a reason outside of it.

    >>> decode(np.full((6, 4), 7, dtype=np.uint8), size=4).shape
    (3, 4, 4)
    >>> decode(b"")
    Traceback (most recent call last):
    ...
    ocssl.imaging.BadImage: it is empty
    """
    if isinstance(picture, np.ndarray) and picture.ndim == 3 and picture.shape[2] == 3:
        height, width = picture.shape[:2]
        if 0 < height == width == (size or width) and picture.dtype == np.uint8:
            return _channels_first(picture)
    with bad_images():
        file = _undecoded(picture) if isinstance(picture, Image.Image) else None
        image = open_image(file or picture, pixel_range)
        return _square_rgb(image, size, fit, pixel_range, mine=image is not picture)


def detached(image: Image.Image) -> bytes | Image.Image:
    """A caller's image that stays as it is when the caller changes or closes it: its file, or a copy.

    Use it inside :func:`bad_images`.
    """
    _check_pixels(image)
    return _undecoded(image) or image.copy()


def _undecoded(image: Image.Image) -> bytes | None:
    """The file of an image that is opened and not decoded yet; None where it would give another image.

    Decoding a caller's image changes it: afterwards it has 8 bits, or another size.
    """
    if not isinstance(image, ImageFile) or not image.tile or image.tell():
        return None
    if image.fp is None:
        raise BadImage("its file was closed before it was decoded; call load() while it is open")
    position = image.fp.tell()
    image.fp.seek(0)
    content = image.fp.read(MAX_BYTES + 1)
    image.fp.seek(position)
    try:
        second = open_image(content)
    except (BadImage, UnidentifiedImageError):  # too large, or of a kind that only the caller opens
        return None
    same = (second.size, second.mode, second.info) == (image.size, image.mode, image.info)
    return content if same else None


def check_pixel_range(pixel_range: PixelRange | None) -> PixelRange | None:
    """The values of black and white as two floating point numbers, the lower one first.

    >>> check_pixel_range((0, 4095))
    (0.0, 4095.0)
    """
    if pixel_range is None:
        return None
    try:
        low, high = map(float, pixel_range)
    except (TypeError, ValueError, OverflowError):
        low = high = math.nan
    if not -math.inf < low < high < math.inf:
        raise ConfigError(f"pixel_range must be two numbers, the lower one first, not {pixel_range!r}")
    return low, high


def open_image(picture: Picture, pixel_range: PixelRange | None = None) -> Image.Image:
    """An image of any kind as a PIL image, not decoded yet; use it inside :func:`bad_images`.

    Args:
        pixel_range: black and white of an array of uint16, whose 8 bits are taken here.
    """
    if isinstance(picture, Image.Image):
        return picture
    if isinstance(picture, np.ndarray):
        picture = _eight_bits(picture, pixel_range)
        if picture.dtype != np.uint8:
            raise BadImage(
                f"its pixels are {picture.dtype}, not uint8, uint16 or float in [0, 1]{cast_hint(picture.dtype)}"
            )
        return Image.fromarray(picture.squeeze(-1) if picture.shape[-1:] == (1,) and picture.ndim == 3 else picture)
    if isinstance(picture, Path):
        facts = picture.stat()
        if not stat.S_ISREG(facts.st_mode):  # reading a pipe never ends
            raise BadImage("it is not a regular file")
        require_bytes(facts.st_size)
        picture = read_file(picture, MAX_BYTES)
    require_bytes(len(picture))
    try:
        return Image.open(io.BytesIO(picture), formats=FORMATS)
    except UnidentifiedImageError as error:
        if picture[:4] in (b"II*\0", b"MM\0*"):
            raise BadImage("it is a TIFF file of a kind that Pillow cannot read, such as colours as floats") from error
        raise


def file_stamp(picture: object) -> str:
    """A text that changes when an image's file does; empty for images that are no files.

    >>> file_stamp(b"pixels")
    ''
    """
    if not isinstance(picture, Path):
        return ""
    try:
        facts = picture.stat()
    except (OSError, ValueError):  # ValueError: a path with a zero byte
        return ""
    return f"{facts.st_size} {facts.st_mtime_ns}"


def require_bytes(count: int) -> None:
    """Refuse an encoded image by its number of bytes, which is known before it is read.

    >>> require_bytes(2**30)
    Traceback (most recent call last):
    ...
    ocssl.imaging.BadImage: it has 1,073,741,824 bytes, more than the 67,108,864 that are allowed
    """
    if not count:
        raise BadImage("it is empty")
    if count > MAX_BYTES:
        raise BadImage(f"it has {count:,} bytes, more than the {MAX_BYTES:,} that are allowed")


class _Allowance:
    """Pixels that may be decoded at once; who asks for more than are left waits."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._used = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def taken(self, pixels: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + pixels <= self._total)
            self._used += pixels
        try:
            yield
        finally:
            with self._changed:
                self._used -= pixels
                self._changed.notify_all()


_allowance = _Allowance(MAX_PIXELS)


def _square_rgb(
    image: Image.Image, size: int | None, fit: Fit, pixel_range: PixelRange | None, *, mine: bool
) -> Pixels:
    """A square in RGB, upright; the PIL image itself is not changed, unless it was opened here (``mine``)."""
    _check_pixels(image)
    width, height = image.size
    if size is None and width != height:
        raise BadImage(f"it is {width}×{height}, not square: set image_size to crop and resize")
    size = size or width
    if mine and min(image.size) >= 4 * size and isinstance(image, JpegImageFile):
        image.draft("RGB", (2 * size, 2 * size))  # decoded straight to that or more; enough for the resampling filter
    with _allowance.taken(image.width * image.height):
        image, turn = _resized(image, size, fit, pixel_range), _turn(image)
    if turn is not None:  # a square of the turned image is the turned square
        image = image.transpose(turn)
    return _channels_first(np.asarray(image, dtype=np.uint8))


def _check_pixels(image: Image.Image) -> None:
    width, height = image.size
    if not width or not height:
        raise BadImage("it has no pixels")
    if width * height > MAX_PIXELS:
        raise BadImage(
            f"it has {width}×{height} pixels, more than the {MAX_PIXELS:,} that are allowed; make it smaller"
        )


def _channels_first(pixels: Pixels) -> Pixels:
    """Pixels ``(H, W, 3)`` as ``(3, H, W)``, in an array of their own that may be written."""
    return pixels.transpose(2, 0, 1).copy()


def _resized(image: Image.Image, size: int, fit: Fit, pixel_range: PixelRange | None) -> Image.Image:
    """A square in RGB; of a large image that is not RGB, no second full copy is made."""
    width, height = image.size
    factor = 1
    deep = _is_deep(image)  # a strip does not say it
    if image.mode != "RGB" and width * height > LARGE_PIXELS:
        factor = max(1, min(width, height) // (2 * size))
        image = _to_rgb_in_strips(image, factor, pixel_range, deep)
    else:
        image = _to_rgb(image, pixel_range, deep, _check_bits)
    if image.size == (size, size):
        return image
    if fit == "squash":  # a reduced image may end with parts of pixels
        return image.resize((size, size), Image.Resampling.BILINEAR, box=(0, 0, width / factor, height / factor))
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left / factor, top / factor, (left + side) / factor, (top + side) / factor)
    return image.resize((size, size), Image.Resampling.BICUBIC, box=box)


def _to_rgb_in_strips(image: Image.Image, factor: int, pixel_range: PixelRange | None, deep: bool) -> Image.Image:
    """As :func:`_to_rgb`, then reduced by a whole factor, a strip of rows at a time."""
    width, height = image.size
    rows = -(-max(1, STRIP_PIXELS // width) // factor) * factor
    found = Image.new("RGB", (-(-width // factor), -(-height // factor)))
    highest = [0]
    for top in range(0, height, rows):
        strip = _to_rgb(image.crop((0, top, width, min(top + rows, height))), pixel_range, deep, highest.append)
        found.paste(strip.reduce(factor) if factor > 1 else strip, (0, top // factor))
    _check_bits(max(highest))
    return found


def _to_rgb(
    image: Image.Image, pixel_range: PixelRange | None, deep: bool, check: Callable[[int], None]
) -> Image.Image:
    """RGB: 16-bit pixels are scaled, transparent ones laid on white, of an animation the first frame is taken.

    Args:
        deep: whether the image has 16 bits per colour in its file, see :func:`_is_deep`.
        check: called with the highest value of 16 bits.
    """
    if image.mode.startswith("I") or image.mode == "F":
        if image.mode == "F" and pixel_range is None:
            raise BadImage(
                "its pixels are floating point numbers; set pixel_range to those of black and white, e.g. [0, 1]"
            )
        return Image.fromarray(_scaled(np.asarray(image), pixel_range, check)).convert("RGB")
    if deep:  # Pillow gives the upper 8 bits: the middle of what they stand for
        pixels = np.asarray(image.convert("RGB" if image.mode == "RGB" else "RGBA"))
        colours = _scaled(pixels[..., :3].astype(np.int32) * 256 + 128, pixel_range, check)
        image = Image.fromarray(np.concatenate([colours, pixels[..., 3:]], axis=-1))
    clear_colours = image.mode == "P" and image.palette is not None and image.palette.mode == "RGBA"
    if clear_colours or image.mode in ("RGBA", "RGBa", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        ground = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(ground, image).convert("RGB")
    return image.convert("RGB")


def _is_deep(image: Image.Image) -> bool:
    """Whether an image that is not decoded yet has 16 bits per colour in its file."""
    tiles = getattr(image, "tile", None) if image.mode in ("RGB", "RGBA", "LA") else None
    how = tiles[0][3] if tiles else None
    raw = how[0] if isinstance(how, tuple) and how else how
    return isinstance(raw, str) and ";16" in raw


def _scaled(pixels: np.ndarray, pixel_range: PixelRange | None, check: Callable[[int], None]) -> Pixels:
    """Pixels of more than 8 bits as uint8, from a range, or from all of 16 bits."""
    if pixel_range is not None:
        low, high = pixel_range
        if not np.isfinite(pixels).all():
            raise BadImage("its pixels hold NaN or infinity")
        scaled = np.clip((pixels.astype(np.float64) - low) / (high - low), 0, 1)
        return (scaled * 255).round().astype(np.uint8)
    if pixels.min() < 0 or (highest := int(pixels.max())) > 0xFFFF:
        raise BadImage("its pixels have more than 16 bits; set pixel_range to those of black and white")
    check(highest)
    return (pixels.astype(np.int64) >> 8).astype(np.uint8)


def _eight_bits(pixels: np.ndarray, pixel_range: PixelRange | None) -> Pixels:
    """An array as uint8: 16 bits are scaled as in a file, and floats lie in [0, 1]."""
    if pixels.dtype == np.uint16 and pixels.size:
        return _scaled(pixels, pixel_range, _check_bits)
    if pixels.dtype in (np.float16, np.float32, np.float64) and pixels.size:
        if not (pixels.min() >= 0 and pixels.max() <= 1):
            low, high = pixels.min(), pixels.max()
            raise BadImage(f"its pixels are floats from {low:g} to {high:g}, not in [0, 1]; {rescale_hint(low, high)}")
        exact = pixels.astype(np.promote_types(pixels.dtype, np.float32))
        return (exact * 255).round().astype(np.uint8)
    return pixels


def _check_bits(highest: int) -> None:
    """Warn of an image whose highest value of 16 bits needs fewer."""
    bits = next((bits for bits in (8, 12, 14) if 0 < highest < 2**bits), None)
    if bits is not None:
        remedy = ", or convert them to 8 bits if they have colours" if bits == 8 else ""
        warn_once(
            f"an image with 16 bits per pixel has no value above {2**bits - 1:,}, and is taken as dark; if all are of "
            f"{bits} bits, begin anew with pixel_range=[0, {2**bits - 1}]{remedy}"
        )


def _turn(image: Image.Image) -> Image.Transpose | None:
    """The turn that makes a decoded image upright, by its EXIF orientation; Pillow has made it already for TIFF."""
    if "exif" not in image.info:
        return None
    with contextlib.suppress(Exception):  # a broken EXIF block does not make an image unusable
        return _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    return None


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return f"it is not an image ({', '.join(FORMATS)})"
    if isinstance(error, FileNotFoundError):
        return "it is not there"
    if isinstance(error, Image.DecompressionBombError):
        return f"it has more than the {MAX_PIXELS:,} pixels that are allowed; make it smaller"
    return f"it is broken ({str(error) or type(error).__name__})"


def cast_hint(dtype: np.dtype[Any]) -> str:
    """How pixels of a type that is not read become uint8, to be put behind the type's name."""
    return "; if they reach from 0 to 255, use .astype(np.uint8)" if np.issubdtype(dtype, np.integer) else ""


def rescale_hint(low: float, high: float) -> str:
    """How floats outside of [0, 1] come into it."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "replace NaN and infinity"
    return "divide them by 255" if low >= 0 and 2 <= high <= 255 else "clip or rescale them"
