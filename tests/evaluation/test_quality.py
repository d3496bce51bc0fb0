"""Label-free quality of an encoder, against slow versions and cases with a known answer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ocssl.errors import ConfigError, InputError
from ocssl.evaluation.quality import (
    NEIGHBOURS,
    Interval,
    colour_histogram,
    find_order,
    in_common,
    in_time,
    nearest,
    order_score,
    raw_pixels,
    standard_error,
)


def slow_nearest(features: np.ndarray, gap: int) -> list[list[int]]:
    """One image at a time, one other at a time."""
    mean = features.mean(0)
    rows = [(row - mean) / np.linalg.norm(row - mean) for row in features]
    found = []
    for i, row in enumerate(rows):
        others = [(float(row @ other), j) for j, other in enumerate(rows) if abs(i - j) > gap]
        found.append([j for _, j in sorted(others, reverse=True)[:NEIGHBOURS]])
    return found


@pytest.mark.parametrize(("count", "gap", "window"), [(30, 0, 5), (47, 3, 9), (60, 6, 12)])
def test_neighbours_in_time_and_in_common_are_those_of_loops(count: int, gap: int, window: int) -> None:
    draws = np.random.default_rng(count)
    first, second = draws.normal(size=(2, count, 7)) + 3
    near, other = (nearest(torch.as_tensor(features), gap=gap) for features in (first, second))
    slow, slow_other = slow_nearest(first, gap), slow_nearest(second, gap)
    assert [sorted(row) for row in near.tolist()] == [sorted(row) for row in slow]
    shares = [sum(abs(i - j) <= window for j in row) / NEIGHBOURS for i, row in enumerate(slow)]
    assert in_time(near, window).tolist() == pytest.approx(shares)
    common = [len({*row} & {*slow_other[i]}) / NEIGHBOURS for i, row in enumerate(slow)]
    assert in_common(near, other).tolist() == pytest.approx(common)


def test_features_of_a_slow_walk_have_all_neighbours_in_time_and_a_gap_leaves_copies_out() -> None:
    angle = torch.linspace(0, 6, 400)
    walk = torch.stack([angle.cos(), angle.sin()], 1)
    inside = slice(50, 350)
    assert in_time(nearest(walk), 5)[inside].min() == 1
    beyond = nearest(walk, gap=8)
    assert in_time(beyond, 8).max() == 0
    assert in_time(beyond, 13)[inside].min() == 1


@pytest.mark.parametrize("length", [1e-35, 1e37])
def test_neighbours_do_not_depend_on_the_length_of_the_features(length: float) -> None:
    features = torch.as_tensor(np.random.default_rng(0).normal(size=(60, 7)) + 3).float()
    assert torch.equal(nearest(features * length).sort().values, nearest(features).sort().values)


def test_chance_is_what_features_that_know_nothing_have() -> None:
    interval = Interval(gap=5, window=25)
    features = torch.randn(1000, 50, generator=torch.Generator().manual_seed(3))
    found = in_time(nearest(features, gap=interval.gap), interval.window)
    chance = interval.chance(1000)
    assert chance == pytest.approx(2 * (25 - 5) / 989, rel=0.03)  # a little less: the first and last have one side
    assert abs(float(found.mean()) - chance) < 3 * standard_error(found, 50)


def test_an_encoder_agrees_with_itself_and_with_a_turned_and_scaled_copy_of_itself() -> None:
    draws = torch.Generator().manual_seed(0)
    features = torch.randn(100, 8, generator=draws)
    turn = torch.linalg.qr(torch.randn(8, 8, generator=draws))[0]
    near = nearest(features)
    assert in_common(near, near).min() == 1
    assert in_common(near, nearest(7 * features @ turn + 5)).mean() > 0.99


@pytest.mark.parametrize("seed", range(5))
def test_an_order_is_found_where_there_is_one_and_not_in_the_same_images_shuffled(seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    interval = Interval(gap=2, window=10)
    classes = torch.randn(10, 16, generator=draws).repeat_interleave(40, 0)
    features = classes + 2 * torch.randn(400, 16, generator=draws)
    mixed = features[torch.randperm(400, generator=draws)]
    ordered, shuffled = (order_score(nearest(rows, gap=interval.gap), interval) for rows in (features, mixed))
    assert ordered > 10
    assert abs(shuffled) < 4


def test_the_order_of_short_scenes_is_found_by_weak_features() -> None:
    draws = torch.Generator().manual_seed(0)
    scenes = torch.randn(100, 16, generator=draws).repeat_interleave(5, 0)
    weak, noise = scenes + 1.5 * torch.randn(500, 16, generator=draws), torch.randn(500, 16, generator=draws)
    interval, z = find_order(noise, weak)
    assert (interval.gap, interval.window) == (0, 5)
    assert z > 10
    assert find_order(noise, weak[torch.randperm(500, generator=draws)])[1] < 4


def test_images_that_are_nearly_copies_of_each_other_are_no_neighbours() -> None:
    draws = torch.Generator().manual_seed(0)
    film = torch.randn(1000, 16, generator=draws).cumsum(0)  # each image differs little from the one before
    interval, z = find_order(film)
    assert interval.gap == 5
    assert z > 10
    assert find_order(film[torch.randperm(1000, generator=draws)])[0].gap == 0


def test_the_standard_error_of_blocks_is_that_of_independent_ones() -> None:
    draws = torch.Generator().manual_seed(0)
    means = torch.randn(50, generator=draws)
    alike = means.repeat_interleave(20)  # twenty copies of a draw tell no more than the draw
    assert standard_error(alike, 20) == pytest.approx(float(means.std()) / math.sqrt(50), rel=1e-6)
    assert standard_error(alike, 1) < standard_error(alike, 20) / 4
    assert standard_error(torch.zeros(30), 20) == math.inf


def test_the_histogram_counts_colours_and_the_pixels_are_pixels() -> None:
    images = torch.randint(0, 256, (3, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    expected = np.zeros((3, 4, 4, 4))
    for number, image in enumerate(images.numpy()):
        for y in range(6):
            for x in range(6):
                red, green, blue = (int(value) // 64 for value in image[:, y, x])
                expected[number, red, green, blue] += 1 / 36
    assert colour_histogram(images).numpy() == pytest.approx(np.sqrt(expected.reshape(3, 64)))
    assert torch.equal(raw_pixels(images), images.flatten(1).float() / 255)
    large = torch.full((2, 3, 64, 64), 51, dtype=torch.uint8)
    assert raw_pixels(large).unique().tolist() == pytest.approx([0.2])


def test_too_few_images_and_impossible_intervals_are_refused() -> None:
    with pytest.raises(InputError, match="10 neighbours beyond a gap of 2 need more than 12 images"):
        nearest(torch.randn(12, 3), gap=2)
    with pytest.raises(ConfigError, match="the window"):
        Interval(gap=3, window=3)
    with pytest.raises(InputError, match="others must have the shape"):
        in_common(torch.zeros(3, 2), torch.zeros(3, 4))
