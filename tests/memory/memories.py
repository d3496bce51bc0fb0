"""What the tests of memories share: memories filled with numbered pictures, and a test of equal shares."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from scipy.stats import chi2

from ocssl.memory import Column, Fifo, Memory, MinRed, MinRedOriginal, Reservoir
from ocssl.options import validate

KINDS = [Fifo, Reservoir, MinRed]
DIM = 5
every_kind = pytest.mark.parametrize("kind", KINDS)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(kind: type[Memory], capacity: int, staging: int, dim: int = DIM, **given) -> Memory:
    options = validate(kind.Options, given)
    return kind(capacity, (3, 1, 1), staging=staging, columns={"features": Column((dim,))}, options=options)


def make_minred(drops: str, capacity: int, staging: int, dim: int = DIM) -> Memory:
    """The default where samples are dropped one by one, the original variant where they are dropped at once."""
    if drops == "sequential":
        return make(MinRed, capacity, staging, dim)
    return make(MinRedOriginal, capacity, staging, dim, selection="simultaneous", drop_oldest=False)


def pictures(identities: list[int]) -> torch.Tensor:
    """Images that carry a number, so that a sample is recognised wherever it went."""
    numbers = torch.tensor(identities)
    return torch.stack([numbers % 256, numbers // 256, numbers * 0], dim=1)[..., None, None].to(torch.uint8)


def identities(memory: Memory) -> list[int]:
    low, high, _ = memory.images[: len(memory), :, 0, 0].long().unbind(1)
    return (low + 256 * high).tolist()


def minibatches(sizes: list[int]) -> Iterator[list[int]]:
    """Numbers 0, 1, 2, … cut into minibatches of the given sizes."""
    numbers = itertools.count()
    for size in sizes:
        yield list(itertools.islice(numbers, size))


def fill(memory: Memory, sizes: list[int], generator: torch.Generator) -> None:
    for batch in minibatches(sizes):
        memory.add(pictures(batch), {"features": torch.randn(len(batch), DIM, generator=generator)}, generator)


def chi_square_of_inclusion(counts: torch.Tensor, size: int, trials: int) -> float:
    """p-value of "every member is included equally often" when each trial takes ``size`` different members.

    Members of one trial exclude each other: a count varies by trials · share · (1 − share), and the counts sum up
    to a fixed total, which leaves members − 1 of them free.
    """
    members = len(counts)
    share = size / members
    statistic = ((counts - trials * share) ** 2).sum().item() / (trials * share * (1 - share)) * (members - 1) / members
    return chi2.sf(statistic, members - 1)
