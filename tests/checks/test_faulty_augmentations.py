"""Faulty augmentations and backbones: the checks find each of them, and say what to correct."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ocssl.augment import Augmentation
from ocssl.checks import check_strategy
from ocssl.options import Options


class Inverting(Augmentation):
    def __call__(self, images: Tensor, *, views: int, generator: torch.Generator) -> Tensor:
        return super().__call__(images.bitwise_xor_(255), views=views, generator=generator)


class Dropping(Augmentation):
    def __call__(self, images: Tensor, *, views: int, generator: torch.Generator) -> Tensor:
        return super().__call__(images, views=views, generator=generator)[:, : len(images) // 4 * 4]


class Raw(Augmentation):
    """Leaves out the normalisation."""

    def __call__(self, images: Tensor, *, views: int, generator: torch.Generator) -> Tensor:
        return super().__call__(images, views=views, generator=generator) * self.std + self.mean


class Repeating(Augmentation):
    def __call__(self, images: Tensor, *, views: int, generator: torch.Generator) -> Tensor:
        return super().__call__(images, views=1, generator=generator).repeat(views, 1, 1, 1, 1)


class Mixing(Augmentation):
    """Takes (images, views) for (views, images)."""

    def __call__(self, images: Tensor, *, views: int, generator: torch.Generator) -> Tensor:
        made = super().__call__(images, views=views, generator=generator)
        return made.transpose(0, 1).reshape(made.shape)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Raw, r"standard deviation of 0.\d\d, but 1.88 where they are encoded for use; normalise the views once"),
        (Repeating, "the augmentation returns equal views of every image"),
        (Mixing, r"views \[1\] of the augmentation do not have image 0 in row 0"),
        (Inverting, "the augmentation changes the images that it is given"),
        (Dropping, r"must return views \(2, 5, 3, 8, 8\) of torch.float32 for 5 images, not \(2, 4, 3, 8, 8\)"),
    ],
)
def test_a_faulty_augmentation_is_caught(faulty, kind: type[Augmentation], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_strategy("er", augmentation=faulty(kind))


class Comparing(nn.Module):
    """Standardises by the batch, in evaluation mode, too."""

    class Options(Options):
        """None."""

    def __init__(self, options, image_size) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, bias=False)
        self.norm = nn.BatchNorm2d(8, track_running_stats=False)

    def forward(self, images: Tensor) -> Tensor:
        return self.norm(self.conv(images)).relu().mean((2, 3))


class WithDropout(Comparing):
    def __init__(self, options, image_size) -> None:
        super().__init__(options, image_size)
        self.norm = nn.Sequential(nn.BatchNorm2d(8), nn.Dropout(0.2))


class Remembering(Comparing):
    """Counts in evaluation mode, and reads the count in training mode."""

    def __init__(self, options, image_size) -> None:
        super().__init__(options, image_size)
        self.norm = nn.BatchNorm2d(8)
        self.register_buffer("asked", torch.zeros(()))

    def forward(self, images: Tensor) -> Tensor:
        if not self.training:
            self.asked.add_(1)
            return super().forward(images)
        return super().forward(images) * (1 + self.asked)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Remembering, "calling transform changes what is learned"),
        (Comparing, "the features of an image depend on the images that are encoded with it"),
        (WithDropout, "two runs from one seed differ, .* not from torch's own, as nn.Dropout does"),
    ],
)
def test_a_faulty_backbone_is_caught(faulty, kind: type[nn.Module], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_strategy("er", backbone=faulty(kind))
