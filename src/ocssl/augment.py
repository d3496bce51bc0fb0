"""Augmented views of a whole batch at once, each sample with draws of its own, on the images' device.

Drawing and applying are apart: :meth:`Augmentation.draw` turns a generator into a table of parameters, one row per
view of a sample, and :meth:`Augmentation.apply` is a pure function of images and that table. All shapes are fixed, so
the same code runs eagerly, compiled, or inside a captured graph.

Two orders exist. ``clean`` augments pixels in [0, 1] and normalises last. ``authors`` does what the paper's public code
did: it normalises first, so that colour jitter meets normalised values after a clamp to [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ocssl.errors import ConfigError
from ocssl.registry import unknown

CIFAR100_MEAN = (0.5071, 0.4865, 0.4409)
CIFAR100_STD = (0.2673, 0.2564, 0.2762)
ORDERS = ("clean", "authors")

_ATTEMPTS = 10  # tries per crop before the central fallback
_LUMA = (0.299, 0.587, 0.114)
_BLEND_ORDERS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))  # brightness, contrast, saturation
_UNIFORMS = 2 * _ATTEMPTS + 2 + 1 + 1 + 4 + 2 + 1


@dataclass(frozen=True)
class Draws:
    """What was drawn for n views. All tensors have n rows.

    ``top, left, height, width`` are the crop in whole pixels; ``factors`` are brightness, contrast and saturation;
    ``hue`` is a shift in turns; ``blends`` the order of the three factors (indices) and ``hue_after`` how many of them
    come before the hue shift; ``flip``, ``jitter`` and ``gray`` say whether the operation happens.
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

    def rows(self, index: slice) -> Draws:
        """The draws of some views only."""
        return Draws(**{field.name: getattr(self, field.name)[index] for field in fields(self)})


class Augmentation:
    """The paper's augmentation: random resized crop, flip, colour jitter, grayscale.

    Args:
        image_size: side of the square views.
        order: ``"clean"`` (normalise last) or ``"authors"`` (normalise first).
        mean, std: per channel, for the normalisation.
        scale, ratio: range of the crop's area (fraction) and aspect.
        flip, jitter, gray: probabilities.
        brightness, contrast, saturation, hue: strength of the jitter.
        dtype: of the views; they are computed in float32.

    >>> augment = Augmentation(image_size=32)
    >>> images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    >>> augment(images, views=2, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([2, 4, 3, 32, 32])
    """

    def __init__(
        self,
        image_size: int,
        *,
        order: Literal["clean", "authors"] = "clean",
        mean: Sequence[float] = CIFAR100_MEAN,
        std: Sequence[float] = CIFAR100_STD,
        scale: tuple[float, float] = (0.2, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip: float = 0.5,
        jitter: float = 0.8,
        brightness: float = 0.4,
        contrast: float = 0.4,
        saturation: float = 0.2,
        hue: float = 0.1,
        gray: float = 0.2,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        if order not in ORDERS:
            raise unknown("augmentation order", order, ORDERS)
        if len(mean) != 3 or len(std) != 3:
            raise ConfigError(f"mean and std need one number for each of 3 channels, not {len(mean)} and {len(std)}")
        if min(std) <= 0:
            raise ConfigError(f"std must be positive in every channel, not {tuple(std)}")
        self.image_size = image_size
        self.order = order
        self.scale, self.ratio = scale, ratio
        self.p_flip, self.p_jitter, self.p_gray = flip, jitter, gray
        self.hue = hue
        self.dtype = dtype
        # Constants live on the device from the start: a captured step may not copy from the host.
        self.mean = torch.tensor(mean, dtype=torch.float32, device=device).view(1, 3, 1, 1)
        self.std = torch.tensor(std, dtype=torch.float32, device=device).view(1, 3, 1, 1)
        self.strengths = torch.tensor([brightness, contrast, saturation], device=device)
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
        """Plain images as the network sees them in evaluation: ``(n, 3, h, w)`` uint8 to normalised float32.

        >>> aug = Augmentation(32, mean=(0.5,) * 3, std=(0.5,) * 3)
        >>> aug.normalize(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)).flatten().tolist()
        [1.0, 1.0, 1.0]
        """
        return self._normal(images).to(self.dtype)

    def _normal(self, images: Tensor) -> Tensor:
        return (images.float() / 255 - self.mean) / self.std

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> Draws:
        """Parameters of n views of images of the given size, all from one call of the generator."""
        u = torch.rand(n, _UNIFORMS, generator=generator, device=generator.device)
        areas, aspects = u[:, :_ATTEMPTS], u[:, _ATTEMPTS : 2 * _ATTEMPTS]
        place_y, place_x, flip, jitter, *jitters, blend, hue_after, gray = u[:, 2 * _ATTEMPTS :].unbind(1)
        top, left, crop_height, crop_width = self._crop(areas, aspects, place_y, place_x, height, width)
        factors = 1 + (2 * torch.stack(jitters[:3], dim=1) - 1) * self.strengths
        return Draws(
            top=top,
            left=left,
            height=crop_height,
            width=crop_width,
            flip=flip < self.p_flip,
            jitter=jitter < self.p_jitter,
            factors=factors,
            hue=(2 * jitters[3] - 1) * self.hue,
            blends=self.blend_orders[(blend * len(_BLEND_ORDERS)).long()],
            hue_after=(hue_after * 4).long(),
            gray=gray < self.p_gray,
        )

    def apply(self, images: Tensor, draws: Draws) -> Tensor:
        """The views that ``draws`` describes; row i of the draws goes with image i.

        Args:
            images: ``(n, 3, h, w)`` uint8.

        Returns:
            ``(n, 3, image_size, image_size)`` float32, normalised.
        """
        if self.order == "clean":
            pixels = self._recolour(self.crop_and_flip(images.float() / 255, draws), draws)
            return ((pixels - self.mean) / self.std).to(self.dtype)
        return self._recolour(self.crop_and_flip(self._normal(images), draws), draws).to(self.dtype)

    def crop_and_flip(self, images: Tensor, draws: Draws) -> Tensor:
        """Bilinear resize of each crop, mirrored where drawn so; reading clamps to the crop's edge, not the image's."""
        rows = _sample_positions(draws.top, draws.height, self.image_size)
        columns = _sample_positions(draws.left, draws.width, self.image_size)
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
        """Brightness, contrast, saturation and hue in each sample's own order.

        The first three are all blends of the image with something, so three rounds before and three after the hue
        shift cover every order; a round that is not a sample's turn blends with factor 1, which changes nothing.
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
        """Turn the hue by ``shift`` turns per sample; value and saturation stay.

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
        widths, heights = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
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


def _sample_positions(start: Tensor, length: Tensor, out: int) -> Tensor:
    """Pixel coordinates at which a crop ``[start, start + length)`` is read to fill ``out`` pixels: ``(n, out)``."""
    centres = (torch.arange(out, device=start.device) + 0.5) / out
    inside = centres * length[:, None] - 0.5
    return start[:, None] + inside.clamp(min=0).minimum(length[:, None] - 1)


def _hexagon(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value, chroma and hue (in sectors, 0 to 6) of RGB images, each ``(n, 1, h, w)``."""
    value, low = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    chroma = value - low
    red, green, blue = images.unbind(1)
    red, green, blue = red[:, None], green[:, None], blue[:, None]
    safe = torch.where(chroma > 0, chroma, torch.ones_like(chroma))
    hue = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    return value, chroma, hue % 6
