"""Feature extraction a chunk at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ocssl.errors import ConfigError, InputError
from ocssl.evaluation import extract, extract_parts, features

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


def test_parts_are_put_together_apart_and_counted_together():
    heard: list[tuple[int, int]] = []
    parts = [IMAGES[:3], IMAGES, IMAGES[4:9]]
    found = extract_parts(pixels, parts, batch=4, progress=lambda done, total: heard.append((done, total)))
    assert all(torch.equal(one, pixels(part)) for one, part in zip(found, parts, strict=True))
    assert heard == [(3, 19), (7, 19), (11, 19), (14, 19), (18, 19), (19, 19)]


@pytest.mark.parametrize(
    ("side", "layout", "expected"), [(4, "first", 128), (8, "first", 32), (8, "last", 32), (64, "first", 16)]
)
def test_larger_images_go_through_in_smaller_chunks(monkeypatch, side, layout, expected):
    monkeypatch.setitem(features.CHUNK_PIXELS, "cpu", 2048)
    monkeypatch.setattr(features, "MIN_CHUNK", 16)
    images = np.zeros((200, 3, side, side) if layout == "first" else (200, side, side, 3), dtype=np.uint8)
    sizes: list[int] = []
    extract(lambda images: sizes.append(len(images)) or torch.ones(len(images), 1), images)
    assert sizes[0] == expected
    assert sum(sizes) == 200


def test_a_list_of_images_is_one_set():
    assert torch.equal(extract(lambda images: pixels(torch.stack(images)), list(IMAGES)), pixels(IMAGES))


@pytest.mark.gpu
def test_features_stay_on_the_gpu_in_half_precision():
    found = extract(pixels, IMAGES.cuda())
    assert (found.device.type, found.dtype) == ("cuda", torch.float16)


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
