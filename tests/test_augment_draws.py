"""The distribution of what the augmentation draws, against the documented procedure and known probabilities."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from dataclasses import replace

import pytest
import torch
from scipy.stats import binomtest, chi2_contingency, chisquare, ks_2samp, kstest, pearsonr

from ocssl.augment import Augmentation, Draws

N = 20_000
LIKELY = 1e-3  # a p-value below it is taken for a wrong distribution; seeds are fixed, so this never flickers


def draw(height: int = 32, width: int = 32, n: int = N, seed: int = 0, **options) -> Draws:
    given = Augmentation.Options().model_copy(update=options)  # not validated: no user can have crops that never fit
    return Augmentation(32, given).draw(n, height, width, torch.Generator().manual_seed(seed))


def slow_crop(height, width, rng, scale=(0.2, 1.0), ratio=(3 / 4, 4 / 3)):
    """One random resized crop as torchvision documents it: ten tries, then the largest central crop of legal aspect."""
    for _ in range(10):
        area = height * width * rng.uniform(*scale)
        aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, height - h), rng.randint(0, width - w), h, w
    if width / height < ratio[0]:
        w, h = width, round(width / ratio[0])
    elif width / height > ratio[1]:
        w, h = round(height * ratio[1]), height
    else:
        w, h = width, height
    return (height - h) // 2, (width - w) // 2, h, w


def boxes(draws: Draws) -> list[tuple[int, ...]]:
    table = torch.stack([draws.top, draws.left, draws.height, draws.width], dim=1)
    assert torch.equal(table, table.round())
    return [tuple(row) for row in table.int().tolist()]


def same_distribution(first, second) -> float:
    """p-value of "both samples are drawn alike"; values rarer than 20 are put together."""
    a, b = Counter(first), Counter(second)
    common = [value for value in a.keys() | b.keys() if a[value] + b[value] >= 20]
    table = [[count[value] for value in common] + [len(first) - sum(count[v] for v in common)] for count in (a, b)]
    columns = [column for column in zip(*table, strict=True) if sum(column)]
    return chi2_contingency([*zip(*columns, strict=True)]).pvalue


SHAPES = [(32, 32), (20, 60), (48, 16), (224, 224)]


@pytest.mark.parametrize(("height", "width"), SHAPES)
def test_crops_are_distributed_as_torchvision_documents_them(height, width):
    rng = random.Random(1)
    ours = boxes(draw(height, width))
    theirs = [slow_crop(height, width, rng) for _ in range(N)]
    coarse = max(1, height // 32)
    for name, fact in {
        "size": lambda box: (box[2] // coarse, box[3] // coarse),
        "top": lambda box: box[0],
        "left": lambda box: box[1],
        "area": lambda box: round(20 * box[2] * box[3] / (height * width)),
        "aspect": lambda box: round(10 * math.log(box[3] / box[2])),
        "room below": lambda box: height - box[2] - box[0],
        "room at the right": lambda box: width - box[3] - box[1],
    }.items():
        assert same_distribution([fact(b) for b in ours], [fact(b) for b in theirs]) > LIKELY, name


@pytest.mark.parametrize(("height", "width"), SHAPES)
def test_crops_lie_within_the_image(height, width):
    for top, left, crop_height, crop_width in boxes(draw(height, width)):
        assert crop_height >= 1
        assert crop_width >= 1
        assert 0 <= top <= height - crop_height
        assert 0 <= left <= width - crop_width


@pytest.mark.parametrize(
    ("height", "width", "box"),
    [(10, 100, (0, 43, 10, 13)), (100, 10, (43, 0, 13, 10)), (30, 36, (0, 0, 30, 36))],
)
def test_when_nothing_fits_the_largest_central_crop_of_legal_aspect_is_taken(height, width, box):
    """Crops asked to be larger than the image never fit."""
    assert set(boxes(draw(height, width, n=50, crop_scale=(9.0, 10.0)))) == {box}


@pytest.mark.parametrize(("name", "probability"), [("flip", 0.5), ("jitter", 0.8), ("gray", 0.2)])
def test_an_operation_happens_with_its_probability(name, probability):
    happened = int(getattr(draw(), name).sum())
    assert binomtest(happened, N, probability).pvalue > LIKELY
    assert not getattr(draw(**{name: 0.0}), name).any()
    assert getattr(draw(**{name: 1.0}), name).all()


@pytest.mark.parametrize(("column", "strength"), [(0, 0.4), (1, 0.4), (2, 0.2)])
def test_factors_are_uniform_around_one(column, strength):
    factors = draw().factors[:, column]
    assert factors.min() >= 1 - strength - 1e-6
    assert factors.max() <= 1 + strength + 1e-6
    assert kstest(factors, "uniform", args=(1 - strength, 2 * strength)).pvalue > LIKELY


def test_hue_shifts_are_uniform_around_zero():
    assert kstest(draw().hue, "uniform", args=(-0.1, 0.2)).pvalue > LIKELY
    assert kstest(draw(hue=0.5).hue, "uniform", args=(-0.5, 1.0)).pvalue > LIKELY


def test_all_24_orders_of_the_jitter_are_equally_likely():
    draws = draw()
    orders: Counter[tuple[int, ...]] = Counter()
    for blends, place in zip(draws.blends.tolist(), draws.hue_after.tolist(), strict=True):
        blends.insert(place, 3)
        orders[tuple(blends)] += 1
    assert orders.keys() == set(itertools.permutations(range(4)))
    assert chisquare([*orders.values()]).pvalue > LIKELY


def test_operations_are_drawn_independently_of_each_other():
    draws = draw()
    facts = {
        "flip": draws.flip,
        "jitter": draws.jitter,
        "gray": draws.gray,
        "hue place": draws.hue_after,
        "first blend": draws.blends[:, 0],
        "strong brightness": draws.factors[:, 0] > 1,
        "strong contrast": draws.factors[:, 1] > 1,
        "strong saturation": draws.factors[:, 2] > 1,
        "positive hue": draws.hue > 0,
        "tall crop": draws.height > draws.width,
        "large crop": draws.height * draws.width > 600,
    }
    for (one, a), (other, b) in itertools.combinations(facts.items(), 2):
        table = torch.zeros(int(a.max()) + 1, int(b.max()) + 1)
        table.index_put_((a.long(), b.long()), torch.ones(N), accumulate=True)
        assert chi2_contingency(table.numpy()).pvalue > LIKELY / 10, (one, other)  # 55 pairs


def test_neighbouring_rows_are_drawn_independently():
    draws = draw()
    for numbers in (draws.height, draws.top, draws.hue, draws.factors[:, 0], draws.flip.float(), draws.gray.float()):
        assert pearsonr(numbers[:-1], numbers[1:]).pvalue > LIKELY


def slow_clamped_crop(height, width, rng, scale=(0.2, 1.0), ratio=(3 / 4, 4 / 3)):
    """One crop at any place, with sides cut to the image's."""
    area = height * width * rng.uniform(*scale)
    aspect = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
    w, h = min(width, math.sqrt(area * aspect)), min(height, math.sqrt(area / aspect))
    return rng.uniform(0, height - h), rng.uniform(0, width - w), h, w


def test_clamped_crops_are_drawn_once_and_cut_to_the_image():
    draws, rng = draw(crops="clamped"), random.Random(1)
    slow = list(zip(*(slow_clamped_crop(32, 32, rng) for _ in range(N)), strict=True))
    for ours, theirs in zip((draws.top, draws.left, draws.height, draws.width), slow, strict=True):
        assert ks_2samp(ours.numpy(), theirs).pvalue > LIKELY
    assert (draws.top + draws.height <= 32 + 1e-4).all()
    whole = draw()
    share = [((d.height >= 32) | (d.width >= 32)).float().mean().item() for d in (whole, draws)]
    assert share == pytest.approx([0.077, 0.163], abs=0.01)  # as the two kinds were measured over 200,000 draws


def test_a_clamped_crop_reads_beyond_its_edge_and_a_whole_one_does_not():
    ramp = torch.arange(8.0).expand(1, 3, 8, 8).contiguous()  # each pixel has the number of its column
    crop = draw(n=1)
    values = {"top": 0.0, "left": 2.0, "height": 8.0, "width": 4.0, "flip": False}
    crop = replace(crop, **{name: torch.full((1,), value) for name, value in values.items()})
    rows = {
        crops: Augmentation(8, Augmentation.Options(crops=crops)).crop_and_flip(ramp, crop)[0, 0, 0]
        for crops in ("whole", "clamped")
    }
    inside = 2 + (torch.arange(8) + 0.5) / 8 * 4 - 0.5
    torch.testing.assert_close(rows["clamped"], inside)
    torch.testing.assert_close(rows["whole"], inside.clamp(2, 5))
