"""A sample kept evenly from a stream."""

from __future__ import annotations

import pytest
import torch

from ocssl.errors import CheckpointError
from ocssl.live.sample import EvenSample


def numbered(first: int, last: int) -> torch.Tensor:
    """Images ``(n, 3, 2, 2)`` whose first two pixels hold their number."""
    images = torch.zeros(last - first, 3, 2, 2, dtype=torch.uint8)
    images[:, 0, 0, 0] = torch.arange(first, last) // 256
    images[:, 0, 0, 1] = torch.arange(first, last) % 256
    return images


def numbers(sample: EvenSample) -> list[int]:
    return [int(image[0, 0, 0]) * 256 + int(image[0, 0, 1]) for image in sample.images]


def slow(length: int, size: int) -> list[int]:
    """Positions of the sample, by the definition."""
    every = 1
    while len(range(0, length, every)) > size:
        every *= 2
    return list(range(0, length, every))


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("size", [2, 10, 64])
def test_it_holds_the_evenly_spaced_images_of_a_stream_of_any_length(size: int, chunk: int) -> None:
    sample = EvenSample(size, side=2)
    for start in range(0, 700, chunk):
        stop = min(start + chunk, 700)
        sample.add(numbered(start, stop))
        assert numbers(sample) == sample.positions.tolist() == slow(stop, size)
    assert size / 2 < len(sample) <= size


@pytest.mark.parametrize("length", [0, 3, 10, 11, 95])
def test_a_restored_sample_goes_on_as_the_first(length: int) -> None:
    first = EvenSample(10, side=2)
    first.add(numbered(0, length))
    second = EvenSample(10, side=2)
    second.restore(first.facts(), first.images.clone())
    for sample in (first, second):
        sample.add(numbered(length, 300))
    assert numbers(first) == numbers(second) == slow(300, 10)


@pytest.mark.parametrize("length", [9, 10, 11, 22, 41])
def test_a_larger_sample_is_thinned_as_if_it_had_been_smaller_from_the_start(length: int) -> None:
    large, small = EvenSample(40, side=2), EvenSample(10, side=2)
    large.add(numbered(0, length))
    small.restore(large.facts(), large.images.clone())
    assert numbers(small) == slow(length, 10)
    small.add(numbered(length, 300))
    assert numbers(small) == slow(300, 10)


@pytest.mark.parametrize("facts", [{"count": 5, "every": 1}, {"count": 4, "every": 0}, {"count": "4", "every": 1}])
def test_a_sample_that_cannot_be_is_refused(facts: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match="does not fit"):
        EvenSample(10, side=2).restore(facts, numbered(0, 4))
