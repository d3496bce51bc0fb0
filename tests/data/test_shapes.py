"""The drawn images: balanced, reproducible, near grey, and told apart by outline and texture."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from ocssl.data.shapes import CLASSES, OUTLINES, TEXTURES, draw
from ocssl.errors import ConfigError


def test_every_outline_comes_in_every_texture():
    assert len(OUTLINES) == 6
    assert len(TEXTURES) == 3
    assert len(set(CLASSES)) == 18
    assert CLASSES[0] == "plain disc"
    assert CLASSES[-1] == "dotted star"


@pytest.mark.parametrize("count", [1, 18, 100, 1300])
def test_classes_differ_in_size_by_one_image_at_most(count):
    images, labels = draw(count, seed=3)
    assert images.shape == (count, 3, 32, 32)
    assert images.dtype == torch.uint8
    assert labels.dtype == torch.int64
    sizes = labels.bincount(minlength=18)
    assert sizes.max() - sizes.min() <= 1


def test_labels_arrive_in_random_order():
    labels = draw(1800, seed=0)[1]
    neighbours_alike = (labels[1:] == labels[:-1]).float().mean()
    assert 0.02 < neighbours_alike < 0.1  # 1/18 = 0.056 when independent


def test_the_images_of_a_seed_are_the_same_on_every_machine_and_others_than_those_of_another_seed():
    assert not torch.equal(draw(18, seed=5)[0], draw(18, seed=6)[0])
    digest = hashlib.sha256(draw(700, seed=0)[0].numpy().tobytes()).hexdigest()
    assert digest.startswith("b531c22d7c230491")


def test_colours_stay_near_grey():
    images = draw(900, seed=1)[0].float() / 255
    # The means over an image's pixels leave the noise out: what remains is the tint of ground and figure.
    tint = images.mean(dim=(2, 3))
    assert (tint.amax(1) - tint.amin(1)).max() < 0.03


def test_figures_stand_out_from_their_ground():
    grey = draw(900, seed=2)[0].float().mean(1).flatten(1) / 255
    ground, brightest = grey.quantile(0.1, dim=1), grey.quantile(0.95, dim=1)
    assert (brightest - ground).min() > 0.1


@pytest.mark.parametrize("size", [24, 64])
def test_figures_scale_with_the_image(size):
    small, big = draw(180, size=32, seed=4)[0].float(), draw(180, size=size, seed=4)[0].float()
    shrunk = torch.nn.functional.interpolate(big, size=(32, 32), mode="area")
    assert (small - shrunk).abs().mean() < 8  # the same pictures, but for edges and noise


@pytest.mark.parametrize(("name", "inside", "outside"), [
    ("disc", (0.8, 0.0), (0.9, 0.0)),
    ("ring", (0.75, 0.0), (0.0, 0.0)),
    ("square", (0.7, 0.7), (0.0, 0.8)),
    ("triangle", (0.0, -1.1), (0.0, 0.7)),
    ("cross", (0.9, 0.3), (0.5, 0.5)),
    ("star", (0.0, 0.9), (0.0, -0.9)),
])  # fmt: skip
def test_outlines_are_negative_inside_and_positive_outside(name, inside, outside):
    distance = OUTLINES[name]
    assert distance(*(np.float32([value]) for value in inside))[0] < 0
    assert distance(*(np.float32([value]) for value in outside))[0] > 0


@pytest.mark.parametrize(("count", "size"), [(0, 32), (-1, 32), (5, 4)])
def test_impossible_requests_are_refused(count, size):
    with pytest.raises(ConfigError, match=f"not {count} of {size}"):
        draw(count, size=size, seed=0)
