"""Augmented views of a whole batch at once, with separate random draws for each sample, on the images' device.

:meth:`Augmentation.draw` turns a generator into a table of parameters, one row per view of a sample;
:meth:`Augmentation.apply` is a pure function of images and that table. All shapes are fixed, so the same code runs
eagerly, compiled, or inside a captured graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import field_validator
from torch import Tensor

import ocssl.options
from ocssl.common.console import shown
from ocssl.errors import ConfigError
from ocssl.options import Pair, PerChannel, setting
from ocssl.registry import Registry

registry: Registry[type[Augmentation]] = Registry("augmentation", group="ocssl.augmentations")
register = registry.register

MAX_CROPS = 10
"""Crops that :func:`fixed_crops` knows."""
_ATTEMPTS = 10  # tries per crop before the central fallback
_LUMA = (0.299, 0.587, 0.114)
_BLEND_ORDERS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))  # brightness, contrast, saturation
_UNIFORMS = 2 * _ATTEMPTS + 2 + 1 + 1 + 4 + 2 + 1  # crop, its place, flip, jitter, its factors and order, gray


@dataclass(frozen=True)
class Draws:
    """Random parameters of n views. All tensors have n rows.

    Attributes:
        top, left, height, width: the crop in pixels.
        flip, jitter, gray: whether the operation happens.
        factors: of brightness, contrast and saturation, ``(n, 3)``.
        hue: shift in turns.
        blends: order of the three factors, as indices ``(n, 3)``.
        hue_after: how many of the factors come before the hue shift.
    """

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor
    jitter: Tensor
    factors: Tensor
    hue: Tensor
    blends: Tensor
    hue_after: Tensor
    gray: Tensor


@register("simclr")
class Augmentation:
    """Random resized crop, flip, colour jitter and grayscale, as for SimCLR without blur.

    Args:
        image_size: side of the square views.
        options: settings of the augmentation; None: their defaults.
        dtype: of the views; they are computed in float32.

    >>> augment = Augmentation(image_size=32)
    >>> images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    >>> augment(images, views=2, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([2, 4, 3, 32, 32])
    """

    class Options(ocssl.options.Options):
        """Settings of the augmentation. Mean and standard deviation are those of CIFAR-100."""

        mean: PerChannel = setting((0.5071, 0.4865, 0.4409), "Mean of each channel, for the normalisation.")
        std: PerChannel = setting((0.2673, 0.2564, 0.2762), "Standard deviation of each channel.")
        normalize_first: bool = setting(False, "Normalise before the colour jitter, as the paper's public code did.")
        crop_scale: Pair = setting((0.2, 1.0), "Smallest and largest area of a crop, as fractions of the image.")
        crop_ratio: Pair = setting((3 / 4, 4 / 3), "Smallest and largest aspect ratio of a crop.")
        crops: Literal["whole", "clamped"] = setting(
            "whole",
            "How crops are drawn; `whole`: in whole pixels, drawn again where one does not fit; `clamped`: at any "
            "place, sides that are too long cut to the image's, and reading goes on beyond the crop's edge.",
            since="0.2",
        )
        flip: float = setting(0.5, "Probability of a horizontal flip.", ge=0, le=1)
        jitter: float = setting(0.8, "Probability of colour jitter.", ge=0, le=1)
        brightness: float = setting(0.4, "Strength of the brightness jitter.", ge=0, le=1)
        contrast: float = setting(0.4, "Strength of the contrast jitter.", ge=0, le=1)
        saturation: float = setting(0.2, "Strength of the saturation jitter.", ge=0, le=1)
        hue: float = setting(0.1, "Strength of the hue jitter, in turns.", ge=0, le=0.5)
        gray: float = setting(0.2, "Probability of grayscale.", ge=0, le=1)

        @field_validator("std")
        @classmethod
        def _positive(cls, std: tuple[float, ...]) -> tuple[float, ...]:
            if min(std) <= 0:
                raise ValueError(f"std must be positive in every channel, not {std}")
            return std

        @field_validator("crop_scale", "crop_ratio")
        @classmethod
        def _ordered(cls, ends: tuple[float, float], info: Any) -> tuple[float, float]:
            low, high = ends
            if not 0 < low <= high or (info.field_name == "crop_scale" and high > 1):
                limit = " and at most 1" if info.field_name == "crop_scale" else ""
                raise ValueError(f"{info.field_name} must be two numbers above 0{limit}, low and high, not {ends}")
            return ends

    def __init__(
        self,
        image_size: int,
        options: Options | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.options = options = options or self.Options()
        self.image_size = image_size
        self.normalize_first = options.normalize_first
        self.scale, self.ratio = options.crop_scale, options.crop_ratio
        self.clamped = options.crops == "clamped"
        self.p_flip, self.p_jitter, self.p_gray = options.flip, options.jitter, options.gray
        self.hue = options.hue
        self.dtype = dtype
        # Constants are on the device from the start: a captured step cannot copy from the host.
        self.mean = torch.tensor(options.mean, dtype=torch.float32, device=device).view(1, 3, 1, 1)
        self.std = torch.tensor(options.std, dtype=torch.float32, device=device).view(1, 3, 1, 1)
        self.strengths = torch.tensor([options.brightness, options.contrast, options.saturation], device=device)
        self.blend_orders = torch.tensor(_BLEND_ORDERS, device=device)
        self.luma = torch.tensor(_LUMA, device=device).view(1, 3, 1, 1)
        self.sectors = torch.tensor([5.0, 3.0, 1.0], device=device).view(1, 3, 1, 1)

    def __call__(self, images: Tensor, *, views: int, generator: torch.Generator) -> Tensor:
        """Independent views of each image.

        Args:
            images: ``(n, 3, h, w)`` uint8.
            views: how many views of each.
            generator: on the images' device.

        Returns:
            ``(views, n, 3, image_size, image_size)`` float32, normalised.
        """
        n, _, height, width = images.shape
        draws = self.draw(views * n, height, width, generator)
        repeated = images.expand(views, *images.shape).reshape(views * n, *images.shape[1:])
        out = self.apply(repeated, draws)
        return out.view(views, n, *out.shape[1:])

    def normalize(self, images: Tensor) -> Tensor:
        """Images without augmentation, as in evaluation: ``(n, 3, h, w)`` uint8 to normalised float32.

        >>> augment = Augmentation(32, Augmentation.Options(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)))
        >>> augment.normalize(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)).flatten().tolist()
        [1.0, 1.0, 1.0]
        """
        return self._normal(images).to(self.dtype)

    def _normal(self, images: Tensor) -> Tensor:
        return (images.float() / 255 - self.mean) / self.std

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Draws:
        """Parameters of n views of images of the given size, all from one call of the generator."""
        u = torch.rand(n, _UNIFORMS, generator=generator, device=generator.device)
        return Draws(**self.scaled(u, height, width))

    def scaled(self, u: Tensor, height: int, width: int) -> dict[str, Tensor]:
        """Numbers from 0 to 1, ``(n, numbers)``, as the parameters of :class:`Draws`, by name."""
        areas, aspects = u[:, :_ATTEMPTS], u[:, _ATTEMPTS : 2 * _ATTEMPTS]
        place_y, place_x, flip, jitter, *jitters, blend, hue_after, gray = u[:, 2 * _ATTEMPTS :].unbind(1)
        top, left, crop_height, crop_width = self._crop(areas, aspects, place_y, place_x, height, width)
        factors = 1 + (2 * torch.stack(jitters[:3], dim=1) - 1) * self.strengths
        return {
            "top": top,
            "left": left,
            "height": crop_height,
            "width": crop_width,
            "flip": flip < self.p_flip,
            "jitter": jitter < self.p_jitter,
            "factors": factors,
            "hue": (2 * jitters[3] - 1) * self.hue,
            "blends": self.blend_orders[(blend * len(_BLEND_ORDERS)).long()],
            "hue_after": (hue_after * 4).long(),
            "gray": gray < self.p_gray,
        }

    def apply(self, images: Tensor, draws: Draws) -> Tensor:
        """The views that ``draws`` describes; row i of the draws belongs to image i.

        Args:
            images: ``(n, 3, h, w)`` uint8.

        Returns:
            ``(n, 3, image_size, image_size)`` float32, normalised.
        """
        if self.normalize_first:
            return self._recolour(self.crop_and_flip(self._normal(images), draws), draws).to(self.dtype)
        pixels = self._recolour(self.crop_and_flip(images.float() / 255, draws), draws)
        return ((pixels - self.mean) / self.std).to(self.dtype)

    def crop_and_flip(self, images: Tensor, draws: Draws) -> Tensor:
        """Bilinear resize of each crop, flipped where drawn.

        Reading is clamped to the crop's edge, and with ``crops="clamped"`` to the image's.
        """
        rows = _sample_positions(draws.top, draws.height, self.image_size, beyond=self.clamped)
        columns = _sample_positions(draws.left, draws.width, self.image_size, beyond=self.clamped)
        columns = torch.where(draws.flip[:, None], columns.flip(1), columns)
        height, width = images.shape[-2:]
        grid_y = (2 * rows + 1) / height - 1
        grid_x = (2 * columns + 1) / width - 1
        shape = (len(images), self.image_size, self.image_size)
        grid = torch.stack([grid_x[:, None, :].expand(shape), grid_y[:, :, None].expand(shape)], dim=-1)
        return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)

    def _recolour(self, images: Tensor, draws: Draws) -> Tensor:
        jittered = torch.where(draws.jitter[:, None, None, None], self.jitter(images.clamp(0, 1), draws), images)
        return torch.where(draws.gray[:, None, None, None], self.luminance(jittered).expand_as(jittered), jittered)

    def jitter(self, images: Tensor, draws: Draws) -> Tensor:
        """Brightness, contrast, saturation and hue, in a separate order for each sample.

        The first three blend the image with another one, so three rounds before and three after the hue shift cover
        every order. In a round that a sample skips, the factor is 1, which changes nothing.
        """
        rounds = range(3)
        for i in rounds:
            images = self._blend(images, draws, i, active=draws.hue_after > i)
        images = self.shift_hue(images, draws.hue)
        for i in rounds:
            images = self._blend(images, draws, i, active=draws.hue_after <= i)
        return images

    def _blend(self, images: Tensor, draws: Draws, i: int, active: Tensor) -> Tensor:
        kind = draws.blends[:, i]
        factor = draws.factors.gather(1, kind[:, None]).squeeze(1)
        factor = torch.where(active, factor, torch.ones_like(factor))[:, None, None, None]
        gray = self.luminance(images)
        kind = kind[:, None, None, None]
        other = torch.where(kind == 1, gray.mean((1, 2, 3), keepdim=True), gray) * (kind != 0)
        return (factor * images + (1 - factor) * other).clamp(0, 1)

    def luminance(self, images: Tensor) -> Tensor:
        """``(n, 3, h, w)`` to ``(n, 1, h, w)``."""
        return (images * self.luma).sum(1, keepdim=True)

    def shift_hue(self, images: Tensor, shift: Tensor) -> Tensor:
        """Rotate the hue of each sample by ``shift`` turns; value and saturation stay.

        In a hexagonal colour model a channel is value − chroma · clamp(min(k, 4 − k), 0, 1), where k is its distance in
        sectors from the hue, so only k has to move.
        """
        value, chroma, hue = _hexagon(images)
        k = (self.sectors + hue + 6 * shift[:, None, None, None]) % 6
        return value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)

    def _crop(
        self, areas: Tensor, aspects: Tensor, place_y: Tensor, place_x: Tensor, height: int, width: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        low, high = self.scale
        area = (low + (high - low) * areas) * (height * width)
        log_low, log_high = math.log(self.ratio[0]), math.log(self.ratio[1])
        aspect = torch.exp(log_low + (log_high - log_low) * aspects)
        widths, heights = (area * aspect).sqrt(), (area / aspect).sqrt()
        if self.clamped:
            crop_width, crop_height = widths[:, 0].clamp(max=width), heights[:, 0].clamp(max=height)
            return place_y * (height - crop_height), place_x * (width - crop_width), crop_height, crop_width
        widths, heights = widths.round(), heights.round()
        fits = (widths >= 1) & (widths <= width) & (heights >= 1) & (heights <= height)
        first = fits.int().argmax(dim=1, keepdim=True)
        some = fits.any(dim=1)
        fallback_width = min(width, round(height * self.ratio[1]))
        fallback_height = min(height, round(width / self.ratio[0]))
        crop_width = torch.where(some, widths.gather(1, first).squeeze(1), float(fallback_width))
        crop_height = torch.where(some, heights.gather(1, first).squeeze(1), float(fallback_height))
        free_y, free_x = height - crop_height, width - crop_width
        top = torch.where(some, (place_y * (free_y + 1)).floor(), (free_y / 2).floor())
        left = torch.where(some, (place_x * (free_x + 1)).floor(), (free_x / 2).floor())
        return top, left, crop_height, crop_width


def fixed_crops(images: Tensor, count: int) -> Iterator[Tensor]:
    """The first ``count`` of ten crops of each image, without any draw: ``(n, 3, s, s)`` each.

    The image, the image mirrored, its corners (top left, top right, bottom left, bottom right) of 7/8 of the side, made
    as large as the image by bilinear interpolation, and the corners mirrored.

    Args:
        images: ``(n, 3, s, s)``, floating point.
        count: from 1 to :data:`MAX_CROPS`.

    >>> left, right = fixed_crops(torch.tensor([[[[0.0, 1.0], [2.0, 3.0]]]]), 2)
    >>> right.flatten().tolist()
    [1.0, 0.0, 3.0, 2.0]
    """
    if not hasattr(count, "__index__") or count not in range(1, MAX_CROPS + 1):
        raise ConfigError(f"crops must be a whole number from 1 to {MAX_CROPS}, not {shown(count)}")
    height, width = images.shape[-2:]
    rows, columns = ((slice(round(n * 7 / 8)), slice(n - round(n * 7 / 8), n)) for n in (height, width))
    yield images
    if count > 1:
        yield images.flip(-1)
    for place in range(count - 2):
        corner = images[..., rows[place // 2 % 2], columns[place % 2]]
        crop = F.interpolate(corner, (height, width), mode="bilinear", align_corners=False)
        yield crop if place < 4 else crop.flip(-1)


def _sample_positions(start: Tensor, length: Tensor, out: int, *, beyond: bool) -> Tensor:
    """Pixel coordinates at which a crop ``[start, start + length)`` is read to fill ``out`` pixels: ``(n, out)``.

    Args:
        beyond: whether the outermost may lie up to half a pixel outside of the crop.
    """
    centres = (torch.arange(out, device=start.device) + 0.5) / out
    inside = centres * length[:, None] - 0.5
    return start[:, None] + (inside if beyond else inside.clamp(min=0).minimum(length[:, None] - 1))


def _hexagon(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value, chroma and hue (in sectors, 0 to 6) of RGB images, each ``(n, 1, h, w)``."""
    value, low = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    chroma = value - low
    red, green, blue = images.split(1, dim=1)
    safe = torch.where(chroma > 0, chroma, torch.ones_like(chroma))
    hue = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    return value, chroma, hue % 6
