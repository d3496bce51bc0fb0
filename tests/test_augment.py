"""Every operation of the augmentation against a version for one image or one pixel at a time."""

from __future__ import annotations

import colorsys
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance

from ocssl.augment import Augmentation, Draws
from ocssl.errors import ConfigError
from ocssl.options import validate

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
ORDERS = list(itertools.permutations(range(4)))


MEAN, STD = Augmentation.Options().mean, Augmentation.Options().std  # of CIFAR-100


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def photos(n: int, height: int, width: int) -> torch.Tensor:
    """Noise in every colour, with the corners of the colour cube and some greys among the pixels."""
    images = torch.randint(256, (n, 3, height, width), generator=seeded(), dtype=torch.uint8)
    special = [*itertools.product((0, 255), repeat=3), (128, 128, 128), (7, 7, 7), (200, 200, 10)]
    for place, colour in zip(range(0, height * width, 3), special, strict=False):
        images[:, :, place // width, place % width] = torch.tensor(colour, dtype=torch.uint8)
    return images


def nothing(n: int, height: int, width: int) -> Draws:
    """Draws that leave n images of this size as they are."""
    full = torch.full((n,), False)
    return Draws(
        top=torch.zeros(n),
        left=torch.zeros(n),
        height=torch.full((n,), float(height)),
        width=torch.full((n,), float(width)),
        flip=full,
        jitter=full,
        factors=torch.ones(n, 3),
        hue=torch.zeros(n),
        blends=torch.tensor([[BRIGHTNESS, CONTRAST, SATURATION]]).repeat(n, 1),
        hue_after=torch.zeros(n, dtype=torch.int64),
        gray=full,
    )


def plain(image_size: int) -> Augmentation:
    """The default order with a normalisation that does nothing, so that the views are pixels in [0, 1]."""
    return Augmentation(image_size, Augmentation.Options(mean=(0, 0, 0), std=(1, 1, 1)))


def with_orders(draws: Draws, orders: list[tuple[int, ...]]) -> Draws:
    blends = torch.tensor([[kind for kind in order if kind != HUE] for order in orders])
    return replace(draws, blends=blends, hue_after=torch.tensor([order.index(HUE) for order in orders]))


# ------------------------------------------------------------------------------------------ slow versions per pixel


def luma(pixel):
    red, green, blue = pixel
    return 0.299 * red + 0.587 * green + 0.114 * blue


def blended(pixel, other, factor):
    return tuple(min(1.0, max(0.0, factor * a + (1 - factor) * b)) for a, b in zip(pixel, other, strict=True))


def brighter(pixels, factor):
    return [blended(pixel, (0, 0, 0), factor) for pixel in pixels]


def contrasted(pixels, factor):
    level = sum(luma(pixel) for pixel in pixels) / len(pixels)
    return [blended(pixel, (level,) * 3, factor) for pixel in pixels]


def saturated(pixels, factor):
    return [blended(pixel, (luma(pixel),) * 3, factor) for pixel in pixels]


def hue_turned(pixels, shift):
    turned = []
    for pixel in pixels:
        hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
        turned.append(colorsys.hsv_to_rgb((hue + shift) % 1, saturation, value))
    return turned


SLOW = {BRIGHTNESS: brighter, CONTRAST: contrasted, SATURATION: saturated, HUE: hue_turned}


def slow_jitter(image: torch.Tensor, order, strengths) -> torch.Tensor:
    """Colour jitter of one image ``(3, h, w)`` in [0, 1], pixel by pixel, in the given order."""
    pixels = [tuple(pixel) for pixel in image.double().flatten(1).T.tolist()]
    for kind in order:
        pixels = SLOW[kind](pixels, strengths[kind])
    return torch.tensor(pixels).T.view(image.shape).float()


def assert_same_pixels(got: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(got, expected, atol=tolerance, rtol=0)


# ---------------------------------------------------------------------------------------------------- crop and flip


def slow_crop(image: torch.Tensor, top: int, left: int, height: int, width: int, size: int) -> torch.Tensor:
    crop = image[None, :, top : top + height, left : left + width]
    return F.interpolate(crop, (size, size), mode="bilinear", antialias=False, align_corners=False)[0]


@pytest.mark.parametrize(("height", "width", "size"), [(32, 32, 32), (20, 33, 16), (12, 9, 32)])
def test_a_crop_is_the_bilinear_resize_of_that_part_of_the_image(height, width, size):
    n, augment = 60, plain(size)
    images = photos(n, height, width)
    crops = augment.draw(n, height, width, seeded(1))
    draws = replace(nothing(n, height, width), top=crops.top, left=crops.left, height=crops.height, width=crops.width)
    views = augment.apply(images, draws)
    boxes = torch.stack([draws.top, draws.left, draws.height, draws.width], dim=1).int().tolist()
    assert len({tuple(box) for box in boxes}) > n / 2
    for image, view, box in zip(images, views, boxes, strict=True):
        assert_same_pixels(view, slow_crop(image.float() / 255, *box, size), 2e-5)


@pytest.mark.parametrize("box", [(0, 0, 1, 1), (7, 5, 1, 3), (0, 0, 8, 6), (3, 2, 5, 4)])
def test_a_crop_never_shows_what_lies_outside_it(box):
    top, left, height, width = box
    images = torch.full((1, 3, 8, 6), 255, dtype=torch.uint8)
    images[:, :, top : top + height, left : left + width] = 51
    draws = replace(
        nothing(1, 8, 6),
        **{name: torch.tensor([float(v)]) for name, v in zip(("top", "left", "height", "width"), box, strict=True)},
    )
    assert_same_pixels(plain(8).apply(images, draws), torch.full((1, 3, 8, 8), 0.2))


def test_the_whole_image_at_its_own_size_comes_back_to_the_pixel():
    images = photos(3, 16, 16)
    assert_same_pixels(plain(16).apply(images, nothing(3, 16, 16)), images.float() / 255)


def test_flipped_samples_are_mirrored_left_to_right_and_the_others_are_not():
    images, flips = photos(4, 16, 16), [True, False, False, True]
    views = plain(16).apply(images, replace(nothing(4, 16, 16), flip=torch.tensor(flips)))
    for image, view, flip in zip(images.float() / 255, views, flips, strict=True):
        mirrored = torch.stack([row.flip(-1) for row in image])
        assert_same_pixels(view, mirrored if flip else image)


def test_a_flipped_crop_is_the_mirror_image_of_the_crop():
    images, augment = photos(8, 20, 20), plain(12)
    straight = replace(augment.draw(8, 20, 20, seeded()), flip=torch.zeros(8, dtype=torch.bool))
    turned = replace(straight, flip=torch.ones(8, dtype=torch.bool))
    crop, mirror = augment.crop_and_flip(images.float(), straight), augment.crop_and_flip(images.float(), turned)
    assert_same_pixels(mirror, crop.flip(-1), 1e-2)  # of 255


# --------------------------------------------------------------------------------------------------- colour, alone


@pytest.mark.parametrize("kind", [BRIGHTNESS, CONTRAST, SATURATION])
def test_each_blend_agrees_with_the_pixelwise_version(kind):
    factors = [0.0, 0.6, 0.8, 1.0, 1.2, 1.4]
    n = len(factors)
    images = photos(n, 6, 6)
    draws = nothing(n, 6, 6)
    draws.factors[:, kind] = torch.tensor(factors)
    views = plain(6).apply(images, replace(draws, jitter=torch.ones(n, dtype=torch.bool)))
    for image, view, factor in zip(images, views, factors, strict=True):
        assert_same_pixels(view, slow_jitter(image / 255, [kind], {kind: factor}))


def test_hue_agrees_with_colorsys():
    shifts = [-0.5, -0.1, -0.01, 0.0, 0.05, 0.1, 0.37]
    images = photos(len(shifts), 6, 6)
    views = plain(6).shift_hue(images / 255, torch.tensor(shifts))
    for image, view, shift in zip(images, views, shifts, strict=True):
        assert_same_pixels(view, slow_jitter(image / 255, [HUE], {HUE: shift}))


def test_greys_have_no_hue_to_shift():
    greys = torch.linspace(0, 1, 16).view(1, 1, 4, 4).expand(1, 3, 4, 4)
    assert_same_pixels(plain(4).shift_hue(greys, torch.tensor([0.1])), greys, 1e-7)


def test_grayscale_puts_the_luminance_into_all_three_channels():
    images = photos(2, 6, 6)
    gray, coloured = plain(6).apply(images, replace(nothing(2, 6, 6), gray=torch.tensor([True, False])))
    pixels = (images[0].double() / 255).flatten(1).T.tolist()
    expected = torch.tensor([luma(pixel) for pixel in pixels]).view(6, 6)
    for channel in gray:
        assert_same_pixels(channel, expected)
    assert_same_pixels(coloured, images[1] / 255)


def test_colour_operations_agree_with_pillow_within_its_rounding():
    images = photos(1, 24, 24)
    picture = Image.fromarray(images[0].permute(1, 2, 0).numpy())

    def view(**changes) -> np.ndarray:
        draws = replace(nothing(1, 24, 24), **changes)
        return plain(24).apply(images, draws)[0].permute(1, 2, 0).numpy() * 255

    enhancers = {BRIGHTNESS: ImageEnhance.Brightness, CONTRAST: ImageEnhance.Contrast, SATURATION: ImageEnhance.Color}
    for kind, enhancer in enhancers.items():
        for factor in (0.6, 1.3):
            factors = torch.ones(1, 3)
            factors[0, kind] = factor
            expected = np.asarray(enhancer(picture).enhance(factor), dtype=float)
            assert np.abs(view(jitter=torch.tensor([True]), factors=factors) - expected).max() <= 1.5
    gray = np.asarray(picture.convert("L"), dtype=float)
    assert np.abs(view(gray=torch.tensor([True])) - gray[..., None]).max() <= 1


def test_colour_operations_agree_with_kornia():
    enhance = pytest.importorskip("kornia.enhance", reason="kornia is not installed: a second opinion only")
    color = pytest.importorskip("kornia.color")
    images, factors = photos(5, 12, 12), torch.tensor([0.6, 0.8, 1.0, 1.1, 1.4])
    pixels = images / 255
    references = {
        BRIGHTNESS: enhance.adjust_brightness_accumulative,
        CONTRAST: enhance.adjust_contrast_with_mean_subtraction,
        SATURATION: enhance.adjust_saturation_with_gray_subtraction,
    }
    augment = plain(12)
    for kind, reference in references.items():
        draws = nothing(5, 12, 12)
        draws.factors[:, kind] = factors
        assert_same_pixels(augment.jitter(pixels, draws), reference(pixels, factors), 1e-4)
    shifts = torch.tensor([-0.1, -0.03, 0.0, 0.06, 0.1])
    assert_same_pixels(augment.shift_hue(pixels, shifts), enhance.adjust_hue(pixels, 2 * math.pi * shifts), 1e-4)
    assert_same_pixels(augment.luminance(pixels), color.rgb_to_grayscale(pixels))


# ------------------------------------------------------------------------------------------------- colour, together


def test_each_sample_is_jittered_in_its_own_order():
    n = len(ORDERS)
    images = photos(n, 6, 6)
    drawn = plain(6).draw(n, 6, 6, seeded(2))
    draws = replace(nothing(n, 6, 6), jitter=torch.ones(n, dtype=torch.bool), factors=drawn.factors, hue=drawn.hue)
    views = plain(6).apply(images, with_orders(draws, ORDERS))
    for i, order in enumerate(ORDERS):
        strengths = [*draws.factors[i].tolist(), draws.hue[i].item()]
        assert_same_pixels(views[i], slow_jitter(images[i] / 255, order, strengths), 2e-5)


def test_the_order_of_the_jitter_matters_to_these_images():
    """Without this the test before could pass with any order."""
    image, strengths = photos(1, 6, 6)[0] / 255, [1.4, 0.6, 1.2, 0.1]
    outcomes = torch.stack([slow_jitter(image, order, strengths) for order in ORDERS]).flatten(1)
    apart = torch.pdist(outcomes, p=float("inf"))
    assert (apart > 1e-3).float().mean() > 0.9


def test_samples_that_are_not_drawn_for_jitter_keep_their_colours():
    images = photos(2, 6, 6)
    draws = plain(6).draw(2, 6, 6, seeded())
    draws = replace(nothing(2, 6, 6), factors=draws.factors, hue=draws.hue, jitter=torch.tensor([True, False]))
    jittered, kept = plain(6).apply(images, draws)
    assert (jittered - images[0] / 255).abs().max() > 0.01
    assert_same_pixels(kept, images[1] / 255)


# ----------------------------------------------------------------------------------------------- the two whole ways


def slow_view(image: torch.Tensor, draws: Draws, i: int, size: int, normalize_first: bool) -> torch.Tensor:
    """View i from first to last, one operation after the other, as the two orders are defined."""
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    view = image / 255
    if normalize_first:
        view = (view - mean) / std
    view = slow_crop(view, *(int(getattr(draws, side)[i]) for side in ("top", "left", "height", "width")), size)
    if draws.flip[i]:
        view = view.flip(-1)
    if draws.jitter[i]:
        jitter_order = draws.blends[i].tolist()
        jitter_order.insert(int(draws.hue_after[i]), HUE)
        view = slow_jitter(view.clamp(0, 1), jitter_order, [*draws.factors[i].tolist(), draws.hue[i].item()])
    if draws.gray[i]:
        view = luma(view).expand(3, size, size)
    return view if normalize_first else (view - mean) / std


@pytest.mark.parametrize("normalize_first", [False, True])
def test_a_view_is_what_one_operation_after_the_other_gives(normalize_first):
    n, size = 64, 8
    augment = Augmentation(size, Augmentation.Options(normalize_first=normalize_first))
    images, draws = photos(n, 10, 10), augment.draw(n, 10, 10, seeded(3))
    for choice in (draws.flip, draws.jitter, draws.gray, draws.jitter & draws.gray):
        assert 0 < choice.sum() < n
    views = augment.apply(images, draws)
    for i in range(n):
        assert_same_pixels(views[i], slow_view(images[i], draws, i, size, normalize_first), 2e-4)


def test_after_the_normalisation_jitter_clamps_normalised_values_and_its_absence_keeps_them():
    images = photos(2, 8, 8)
    augment = Augmentation(8, Augmentation.Options(normalize_first=True))
    draws = replace(nothing(2, 8, 8), jitter=torch.tensor([True, False]))
    jittered, kept = augment.apply(images, draws)
    normalised = augment.normalize(images)
    assert_same_pixels(kept, normalised[1], 1e-4)
    assert kept.min() < 0
    assert kept.max() > 1
    assert_same_pixels(jittered, normalised[0].clamp(0, 1), 1e-4)
    darker_than_mean = images[0] / 255 < torch.tensor(MEAN).view(3, 1, 1)
    assert jittered[darker_than_mean].abs().max() < 1e-6


def test_views_normalised_last_stay_within_what_pixels_can_be():
    augment = Augmentation(8)
    views = augment(photos(64, 8, 8), views=2, generator=seeded())
    pixels = views * augment.std + augment.mean
    assert pixels.min() > -1e-6
    assert pixels.max() < 1 + 1e-6


def test_normalize_subtracts_the_mean_and_divides_by_the_deviation():
    images, mean, std = photos(2, 4, 4), (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)
    got = Augmentation(4, Augmentation.Options(mean=mean, std=std)).normalize(images)
    for channel in range(3):
        expected = (images[:, channel].double() / 255 - mean[channel]) / std[channel]
        assert_same_pixels(got[:, channel].double(), expected, 1e-6)


# ----------------------------------------------------------------------------------------- who shares what with whom


@pytest.mark.parametrize("normalize_first", [False, True])
def test_the_same_generator_state_gives_the_same_views(normalize_first):
    augment = Augmentation(8, Augmentation.Options(normalize_first=normalize_first))
    images = photos(6, 8, 8)
    first, second = (augment(images, views=2, generator=seeded(4)) for _ in range(2))
    other = augment(images, views=2, generator=seeded(5))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_every_view_of_every_sample_has_draws_of_its_own():
    images = photos(1, 16, 16).expand(12, -1, -1, -1)
    views = Augmentation(16)(images, views=3, generator=seeded()).flatten(0, 1)
    assert torch.pdist(views.flatten(1)).min() > 1


def test_a_view_depends_on_its_own_image_and_its_own_draws_only():
    augment, images = Augmentation(8), photos(10, 8, 8)
    views = augment(images, views=2, generator=seeded(6))
    draws = augment.draw(20, 8, 8, seeded(6))
    for view, sample in itertools.product(range(2), range(10)):
        row = view * 10 + sample
        own = Draws(**{name: values[row : row + 1] for name, values in vars(draws).items()})
        alone = augment.apply(images[sample : sample + 1], own)
        assert_same_pixels(views[view, sample], alone[0])


def test_the_images_themselves_are_left_alone():
    images = photos(4, 8, 8)
    before = images.clone()
    Augmentation(8)(images, views=2, generator=seeded())
    assert torch.equal(images, before)


# -------------------------------------------------------------------------------------------------------- refusals


def refusal(**given: object) -> str:
    with pytest.raises(ConfigError) as refused:
        validate(Augmentation.Options, given)
    return str(refused.value)


@pytest.mark.parametrize("std", [(0.2, 0.0, 0.2), (0.2, 0.2, -1.0)])
def test_a_deviation_that_is_not_positive_is_refused(std):
    assert refusal(std=std) == f"std must be positive in every channel, not {std}"


@pytest.mark.parametrize("mean", [(0.5,), 0.5, "grey", (0.5, 0.5, float("nan"))])
def test_a_number_of_channels_other_than_three_is_refused(mean):
    assert refusal(mean=mean).startswith("mean must be three numbers, one per channel, not ")


def test_ranges_of_crops_are_checked():
    assert refusal(crop_scale=(0.5, 0.2)) == (
        "crop_scale must be two numbers above 0 and at most 1, low and high, not (0.5, 0.2)"
    )
    assert refusal(crop_scale=(0.2, 2.0)).startswith("crop_scale must be two numbers above 0 and at most 1")
    assert refusal(crop_ratio=(0.0, 1.0)) == "crop_ratio must be two numbers above 0, low and high, not (0.0, 1.0)"
    assert refusal(crop_ratio=1.0).startswith("crop_ratio must be two numbers, low and high, not 1.0")


def test_probabilities_and_strengths_are_checked():
    for name in ("flip", "jitter", "gray", "brightness", "contrast", "saturation"):
        assert refusal(**{name: 1.5}) == f"{name} must be a number from 0 to 1, not 1.5"
    assert refusal(hue=0.6) == "hue must be a number from 0 to 0.5, not 0.6"
    assert refusal(normalize_first="yes") == "normalize_first must be True or False, not 'yes'"


@pytest.mark.parametrize("normalize_first", [False, True])
def test_views_are_float32_whatever_kind_of_number_describes_the_channels(normalize_first):
    given = {"mean": np.array([0.5, 0.5, 0.5]), "std": np.array([1.0, 1.0, 1.0]), "normalize_first": normalize_first}
    augment = Augmentation(8, validate(Augmentation.Options, given))
    assert augment(photos(2, 8, 8), views=2, generator=seeded()).dtype == torch.float32
    assert augment.normalize(photos(2, 8, 8)).dtype == torch.float32
