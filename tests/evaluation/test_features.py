"""Feature extraction a chunk at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ocssl.errors import ConfigError, InputError
from ocssl.evaluation import extract

IMAGES = torch.randint(256, (11, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def pixels(images):
    return torch.as_tensor(images).flatten(1).float()


@pytest.mark.parametrize("batch", [1, 4, 11, 100])
def test_chunks_put_together_are_the_whole(batch):
    assert torch.equal(extract(pixels, IMAGES, batch=batch), pixels(IMAGES))


def test_arrays_go_in_and_arrays_may_come_out_of_the_encoder():
    features = extract(lambda images: images.reshape(len(images), -1).astype(np.float64), IMAGES.numpy(), batch=3)
    assert features.dtype == torch.float32
    assert torch.equal(features, pixels(IMAGES))


def test_progress_counts_images():
    heard: list[tuple[int, int]] = []
    extract(pixels, IMAGES, batch=4, progress=lambda done, total: heard.append((done, total)))
    assert heard == [(4, 11), (8, 11), (11, 11)]


def test_no_gradient_is_kept():
    layer = torch.nn.Linear(48, 2)
    assert not extract(lambda images: layer(pixels(images)), IMAGES).requires_grad


def test_an_encoder_that_gives_no_vectors_is_named():
    with pytest.raises(InputError, match=r"features of shape \(4, 3, 4, 4\) for 4 images"):
        extract(lambda images: images.float(), IMAGES, batch=4)


@pytest.mark.parametrize("width", [1, 5])
def test_an_encoder_that_changes_its_mind_about_the_dimension_is_named(width):
    widths = iter([3, width])
    with pytest.raises(InputError, match=rf"shape \(4, {width}\) for 4 images, not \(4, 3\)"):
        extract(lambda images: torch.ones(len(images), next(widths)), IMAGES, batch=4)


def test_nothing_to_encode_is_an_error():
    with pytest.raises(InputError, match="no images"):
        extract(pixels, IMAGES[:0])
    with pytest.raises(ConfigError, match="batch must be at least 1"):
        extract(pixels, IMAGES, batch=0)
