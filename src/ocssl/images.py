"""Whatever a user calls images, as one uint8 tensor; anything else is refused with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from ocssl.errors import InputError
from ocssl.pictures import BadImage, square_rgb

Images: TypeAlias = np.ndarray | Tensor | Sequence[Image.Image]


def as_uint8(images: Images, image_size: int) -> Tensor:
    """Images as ``(n, 3, image_size, image_size)`` uint8, on the device they were on.

    Args:
        images: a uint8 array ``(n, s, s, 3)``, a tensor ``(n, 3, s, s)`` (uint8, or float in [0, 1]), or a list of PIL
            images, which become square RGB as image files do (:func:`ocssl.pictures.square_rgb`).

    >>> as_uint8(np.zeros((2, 32, 32, 3), dtype=np.uint8), 32).shape
    torch.Size([2, 3, 32, 32])
    """
    if isinstance(images, Tensor):
        tensor = images
    elif isinstance(images, np.ndarray):
        tensor = _from_array(images)
    elif isinstance(images, (list, tuple)):
        tensor = _from_pil(images, image_size)
    else:
        raise InputError(
            "images must be a uint8 array (n, s, s, 3), a tensor (n, 3, s, s) or a list of PIL images, "
            f"not {type(images).__name__}"
        )
    return _bytes(_checked_shape(tensor, image_size))


def _from_array(array: np.ndarray) -> Tensor:
    if array.dtype not in (np.uint8, np.float16, np.float32, np.float64):
        raise InputError(f"images must be uint8 or float in [0, 1]; this array is {array.dtype}")
    if array.ndim == 4 and array.shape[-1] != 3:
        hint = " (channels first? pass a tensor, or move the axis)" if array.shape[1] == 3 else ""
        raise InputError(f"an image array must be (n, height, width, 3), not {array.shape}{hint}")
    if array.ndim != 4:
        raise InputError(f"an image array must be (n, height, width, 3), not {array.shape}")
    # torch warns of memory that it may not write to, such as a mapped file: copy that.
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).permute(0, 3, 1, 2)


def _from_pil(images: Sequence[Image.Image], image_size: int) -> Tensor:
    arrays = []
    for i, image in enumerate(images):
        if not isinstance(image, Image.Image):
            raise InputError(f"a list of images must hold PIL images; item {i} is {type(image).__name__}")
        try:
            arrays.append(square_rgb(image, image_size))
        except BadImage as problem:
            raise InputError(f"item {i} of the list is not readable as an image: {problem}") from problem
    if not arrays:
        raise InputError("the batch of images is empty")
    return torch.from_numpy(np.stack(arrays))


def _checked_shape(tensor: Tensor, image_size: int) -> Tensor:
    if tensor.ndim != 4 or tensor.shape[1] != 3:
        raise InputError(f"an image tensor must be (n, 3, height, width), not {tuple(tensor.shape)}")
    if len(tensor) == 0:
        raise InputError("the batch of images is empty")
    if tensor.shape[2:] != (image_size, image_size):
        height, width = tensor.shape[2:]
        raise InputError(f"images are {height}×{width}, but this learner was built with image_size={image_size}")
    return tensor


def _bytes(tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.uint8:
        return tensor.contiguous()
    if not tensor.is_floating_point():
        raise InputError(f"images must be uint8 or float in [0, 1]; these are {tensor.dtype}")
    low, high = (value.item() for value in tensor.aminmax())
    if low != low or high != high:
        raise InputError("images contain NaN")
    if low < 0 or high > 1:
        raise InputError(f"float images must lie in [0, 1]; these reach from {low:g} to {high:g}")
    return (tensor * 255).round().to(torch.uint8).contiguous()
