"""Quality of an encoder without labels, on images of a stream in the order of their arrival.

*Neighbours in time*: images that arrive close together often show similar things. An encoder that finds them among all
others has useful features. *Agreement of neighbours*: how far two encoders find the same neighbours. Both read features
centred and at length 1. The yardsticks are features that need no network: raw pixels and a histogram of colours.

A number of one image is the share among its 10 nearest neighbours; :func:`standard_error` is that of the mean over all
images. Which of these numbers follow k-NN accuracy, and on which streams, is in ``docs/gate.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ocssl.errors import ConfigError, InputError
from ocssl.evaluation._inputs import FeatureMatrix, as_features, normalised, scaled

NEIGHBOURS = 10
PERMUTATIONS = 200
PIXEL_SIDE = 32  # raw pixels are averaged down to this, so that large images make no absurdly wide features


@dataclass(frozen=True)
class Interval:
    """Which images count as close in time, by the number of images between.

    Attributes:
        gap: an image up to this far away is no neighbour at all, because it may be nearly a copy.
        window: an image up to this far away, and farther than the gap, is close in time.
    """

    gap: int
    window: int

    def __post_init__(self) -> None:
        if not 0 <= self.gap < self.window:
            raise ConfigError(
                f"the window ({self.window}) must be larger than the gap ({self.gap}), and no gap below 0"
            )

    def chance(self, count: int) -> float:
        """The share of neighbours in time of features that know nothing, among ``count`` images.

        >>> Interval(gap=0, window=1).chance(3)   # 1 of 2, 2 of 2 and 1 of 2
        0.6666666666666666
        """
        rows = torch.arange(count)
        apart = (rows[:, None] - rows).abs()
        near = ((apart > self.gap) & (apart <= self.window)).sum(1)
        return float((near.double() / (apart > self.gap).sum(1)).mean())


def nearest(features: FeatureMatrix, *, gap: int = 0) -> Tensor:
    """The 10 nearest neighbours of each of N images by cosine of centred features ``(N, D)``: rows ``(N, 10)``.

    Args:
        gap: rows up to this far away are left out; 0 leaves out the image itself.

    >>> corners = torch.eye(3).repeat_interleave(12, 0)
    >>> nearest(corners)[0].sort().values.tolist()[-1] < 12
    True
    """
    rows = scaled(as_features(features, "features"))
    if len(rows) < 2 * gap + 1 + NEIGHBOURS:
        raise InputError(f"{NEIGHBOURS} neighbours beyond a gap of {gap} need more than {len(rows)} images")
    rows = normalised(rows - rows.mean(0))
    cosine = rows @ rows.T
    place = torch.arange(len(rows), device=rows.device)
    cosine[(place[:, None] - place).abs() <= gap] = -math.inf
    return cosine.topk(NEIGHBOURS).indices


def in_time(neighbours: Tensor, window: int) -> Tensor:
    """The share of each image's neighbours ``(N, k)`` that are at most ``window`` rows away: ``(N,)``.

    >>> in_time(torch.tensor([[1, 2], [0, 2], [1, 0]]), window=1).tolist()
    [0.5, 1.0, 0.5]
    """
    place = torch.arange(len(neighbours), device=neighbours.device)
    return ((neighbours - place[:, None]).abs() <= window).float().mean(1)


def in_common(neighbours: Tensor, others: Tensor) -> Tensor:
    """The share of each image's neighbours ``(N, k)`` that it has among ``others`` ``(N, k)`` as well: ``(N,)``.

    >>> in_common(torch.tensor([[1, 2], [0, 2]]), torch.tensor([[2, 3], [5, 6]])).tolist()
    [0.5, 0.0]
    """
    if neighbours.shape != others.shape:
        raise InputError(f"others must have the shape {tuple(neighbours.shape)}, not {tuple(others.shape)}")
    return (neighbours[:, :, None] == others.to(neighbours.device)[:, None, :]).any(2).float().mean(1)


def standard_error(values: Tensor, block: int) -> float:
    """The standard error of the mean of values ``(N,)`` in order, those of nearby images being alike.

    It is taken from the means of blocks of ``block`` values; infinite where there are fewer than two blocks.

    >>> round(standard_error(torch.tensor([0.0, 0.0, 1.0, 1.0]), block=2), 3)
    0.5
    """
    blocks = [part.mean() for part in values.double().split(block) if len(part) == block]
    if len(blocks) < 2:
        return math.inf
    return float(torch.stack(blocks).std() / math.sqrt(len(blocks)))


def order_score(neighbours: Tensor, interval: Interval) -> float:
    """By how many standard deviations the neighbours in time exceed those of a stream in random order (z).

    The same neighbours ``(N, k)`` are counted under 200 random orders of the images. Around 0 for a shuffled stream.
    """
    return _order_scores(neighbours, interval.gap, [interval.window])[0]


def _order_scores(neighbours: Tensor, gap: int, windows: list[int]) -> list[float]:
    """:func:`order_score` for each window, under the same random orders."""
    count = len(neighbours)
    draws = torch.Generator().manual_seed(0)
    near = neighbours.cpu()

    def shares(place: Tensor) -> Tensor:
        apart = (place[near] - place[:, None]).abs()
        counted = apart > gap
        within = torch.stack([((apart <= window) & counted).sum() for window in windows])
        return within / counted.sum().clamp(min=1)

    random = torch.stack([shares(torch.randperm(count, generator=draws)) for _ in range(PERMUTATIONS)])
    excess = shares(torch.arange(count)) - random.mean(0)
    found: list[float] = (excess / random.std(0).clamp(min=1e-9)).tolist()
    return found


def find_order(pixels: FeatureMatrix, *others: FeatureMatrix) -> tuple[Interval, float]:
    """The interval in which the order of N images shows best, and by how many standard deviations it does (z).

    Three windows are tried: 5 images beyond the gap, 1/80 and 1/40 of all. There is no gap, unless images are nearly
    copies of those before and after: then images up to 1/200 of all away are left out. They count as copies where most
    images have such a one as their nearest by raw pixels.

    Args:
        pixels: :func:`raw_pixels` of the images, ``(N, D)``.
        others: other features of the same images, with a D of their own.

    >>> scenes = torch.eye(20).repeat_interleave(10, 0)   # 20 scenes of 10 images
    >>> noise = torch.randn(200, 20, generator=torch.Generator().manual_seed(0))
    >>> interval, z = find_order(scenes + 0.3 * noise)
    >>> interval, z > 4
    (Interval(gap=0, window=5), True)
    """
    near = nearest(pixels)
    count = len(near)
    apart = (near[:, 0] - torch.arange(count, device=near.device)).abs()
    gap = max(1, count // 200)
    if float((apart <= gap).float().mean()) <= 0.5:
        gap = 0
    rows = [near if gap == 0 else nearest(pixels, gap=gap), *(nearest(features, gap=gap) for features in others)]
    shortest = gap + NEIGHBOURS // 2
    windows = [max(shortest, window) for window in (0, count // 80, count // 40)]
    scores = [max(of_window) for of_window in zip(*(_order_scores(one, gap, windows) for one in rows), strict=True)]
    z, window = max(zip(scores, windows, strict=True), key=lambda entry: entry[0])
    return Interval(gap, window), z


def raw_pixels(images: Tensor) -> Tensor:
    """Images ``(N, 3, s, s)`` uint8 as features: their pixels in [0, 1], larger ones averaged to 32 × 32.

    >>> raw_pixels(torch.zeros(2, 3, 64, 64, dtype=torch.uint8)).shape
    torch.Size([2, 3072])
    """
    parts = [functional.adaptive_avg_pool2d(p.float() / 255, min(PIXEL_SIDE, p.shape[-1])) for p in images.split(64)]
    return torch.cat(parts).flatten(1)


def colour_histogram(images: Tensor, levels: int = 4) -> Tensor:
    """Square roots of a joint histogram of colours of images ``(N, 3, h, w)`` uint8: ``(N, levels³)``.

    Square roots give every row length 1, and make the inner product of two rows the overlap of their colours.

    Args:
        levels: of each channel, a divisor of 256.

    >>> reds = torch.zeros(1, 3, 2, 2, dtype=torch.uint8)
    >>> reds[:, 0, 0] = 255  # half of the pixels are red, half black
    >>> histogram = colour_histogram(reds, levels=8)
    >>> histogram.shape, histogram.nonzero()[:, 1]
    (torch.Size([1, 512]), tensor([  0, 448]))
    """
    red, green, blue = (images.flatten(2) // (256 // levels)).long().unbind(1)
    places = (red * levels + green) * levels + blue
    counts = torch.zeros(len(images), levels**3, device=images.device)
    counts.scatter_add_(1, places, torch.ones_like(places, dtype=counts.dtype))
    return (counts / places.shape[1]).sqrt()
