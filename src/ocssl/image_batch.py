"""Images in any form to one batch of uint8 pixels; :mod:`ocssl.imaging` reads one image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ocssl.errors import ConfigError, InputError
from ocssl.imaging import BadImage, Fit, PixelRange, cast_hint, decode, rescale_hint

Images: TypeAlias = np.ndarray | Tensor | Image.Image | Sequence[Image.Image | np.ndarray | Tensor | Path | str]


def as_uint8(images: Images, image_size: int, fit: Fit = "crop", pixel_range: PixelRange | None = None) -> Tensor:
    """A batch of images as uint8 ``(n, 3, image_size, image_size)``, on the device they were on.

    Args:
        images: a tensor ``(n, 3, s, s)``; an array ``(n, h, w)`` or ``(n, h, w, 1|3|4)`` of any size; or a list of any
            sizes: PIL images, arrays ``(h, w)`` or ``(h, w, 1|3|4)``, tensors ``(3, h, w)``, paths. Arrays are uint8,
            uint16, which are scaled as files are, or float in [0, 1]; tensors uint8 or float in [0, 1]. One PIL image
            and one array ``(h, w)`` or ``(h, w, 1|3|4)`` are a batch of one.
        fit, pixel_range: as for :func:`decode`.

    >>> as_uint8(np.zeros((2, 32, 32, 3), dtype=np.uint8), 32).shape
    torch.Size([2, 3, 32, 32])
    >>> as_uint8([np.zeros((48, 64), dtype=np.uint8), np.zeros((9, 9, 4), dtype=np.uint8)], 32).shape
    torch.Size([2, 3, 32, 32])
    """
    if isinstance(images, Image.Image):
        images = [images]
    if isinstance(images, Tensor):
        tensor = images
    elif isinstance(images, np.ndarray):
        batch = _as_batch(images)
        if batch.shape[1:] == (image_size, image_size, 3) and batch.dtype != np.uint16:
            # torch warns of memory that it may not write to, such as a mapped file: copy that.
            tensor = torch.from_numpy(np.require(batch, requirements=["C", "W"])).permute(0, 3, 1, 2)
        else:
            tensor = _from_list([*batch], image_size, fit, pixel_range)
    elif isinstance(images, (list, tuple)):
        tensor = _from_list(images, image_size, fit, pixel_range)
    else:
        hint = "; put a path into a list" if isinstance(images, str | Path) else ""
        raise InputError(
            "images must be a uint8 array (n, h, w, 3), a tensor (n, 3, s, s) or a list of PIL images, arrays or "
            f"paths, not {type(images).__name__}{hint}"
        )
    if tensor.ndim != 4 or tensor.shape[1] != 3:
        one = " (one image? add an axis: images[None])" if tensor.ndim == 3 and len(tensor) == 3 else ""
        hint = " (channels last? permute it, or pass an array)" if tensor.shape[-1:] == (3,) else one
        raise InputError(f"an image tensor must be (n, 3, height, width), not {tuple(tensor.shape)}{hint}")
    if len(tensor) == 0:
        raise InputError("the batch of images is empty")
    if tensor.shape[2:] != (image_size, image_size):
        height, width = tensor.shape[2:]
        raise InputError(
            f"images are {height}×{width}, but this learner was built with image_size={image_size}; resize them, or "
            "pass a list of tensors"
        )
    return _to_bytes(tensor)


def check_batch(batch: int) -> int:
    """How many images go through a network at once, as a whole number of at least 1.

    >>> check_batch(2.5)
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: batch must be a whole number of at least 1, not 2.5
    """
    if not hasattr(batch, "__index__") or batch < 1:
        raise ConfigError(f"batch must be a whole number of at least 1, not {batch!r}")
    return int(batch)


def _as_batch(array: np.ndarray) -> np.ndarray:
    """An array of one image or of several as ``(n, h, w)`` or ``(n, h, w, 1|3|4)``."""
    if array.dtype not in (np.uint8, np.uint16, np.float16, np.float32, np.float64):
        raise InputError(
            f"images must be uint8, uint16 or float in [0, 1]; this array is {array.dtype}{cast_hint(array.dtype)}"
        )
    if array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4)):
        array = array[None]
    if array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[3] not in (1, 3, 4)):
        first = array.ndim == 4 and array.shape[1] == 3
        hint = " (channels first? pass a tensor, or move the axis)" if first else ""
        raise InputError(f"an image array must be (n, height, width, 3), not {array.shape}{hint}")
    return array


def _from_list(images: Sequence[object], image_size: int, fit: Fit, pixel_range: PixelRange | None) -> Tensor:
    found = np.empty((len(images), 3, image_size, image_size), np.uint8)
    for i, image in enumerate(images):
        picture = Path(image) if isinstance(image, str) else image
        if isinstance(image, Tensor) and image.ndim == 3:
            unknown = image.is_floating_point() and image.dtype not in (torch.float16, torch.float32, torch.float64)
            picture = (image.float() if unknown else image).detach().cpu().numpy().transpose(1, 2, 0)  # e.g. bfloat16
        misshapen = (
            isinstance(picture, np.ndarray) and picture.ndim != 2 and (picture.ndim != 3 or picture.shape[2] > 4)
        )
        if misshapen or not isinstance(picture, Image.Image | np.ndarray | Path):
            shape = f" {tuple(image.shape)}" if isinstance(image, (np.ndarray, Tensor)) else ""
            hint = ": open it with PIL.Image.open(io.BytesIO(…))" if isinstance(image, bytes) else ""
            raise InputError(
                "a list of images must hold PIL images, arrays (h, w, 3), tensors (3, h, w) or paths; "
                f"item {i} is {type(image).__name__}{shape}{hint}"
            )
        try:
            found[i] = decode(picture, image_size, fit, pixel_range)
        except (BadImage, OSError) as problem:
            named = f" ('{picture}')" if isinstance(picture, Path) else ""
            raise InputError(f"item {i} of the list{named} is not readable as an image: {problem}") from problem
    return torch.from_numpy(found)


def _to_bytes(tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.uint8:
        return tensor.contiguous()
    if not tensor.is_floating_point():
        raise InputError(
            f"images must be uint8 or float in [0, 1]; these are {tensor.dtype}; if they reach from 0 to 255, use "
            ".to(torch.uint8)"
        )
    low, high = (value.item() for value in tensor.aminmax())
    if low != low or high != high:
        raise InputError("images contain NaN")
    if low < 0 or high > 1:
        reach = f"these reach from {low:.7g} to {high:.7g}"
        raise InputError(f"float images must lie in [0, 1]; {reach}; {rescale_hint(low, high)}")
    exact = tensor.to(torch.promote_types(tensor.dtype, torch.float32))  # as decode() rounds a list
    return (exact * 255).round().to(torch.uint8).contiguous()
