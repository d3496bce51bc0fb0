"""FIFO, the reservoir and sampling, by exact laws and by frequencies."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from memories import (
    chi_square_of_inclusion,
    every_kind,
    fill,
    identities,
    make,
    minibatches,
    pictures,
    seeded,
)
from scipy.stats import chisquare

from ocssl.memory import Fifo, Memory, Reservoir


@settings(deadline=None, derandomize=True)
@given(capacity=st.integers(3, 9), sizes=st.lists(st.integers(1, 3), max_size=12))
def test_fifo_keeps_the_newest_samples_and_overwrites_the_oldest(capacity, sizes):
    memory, newest = make(Fifo, capacity, staging=3), []
    for batch in minibatches(sizes):
        memory.add(pictures(batch), {}, seeded())
        newest = (newest + batch)[-capacity:]
        assert sorted(identities(memory)) == newest
        assert all(number % capacity == slot for slot, number in enumerate(identities(memory)))


# ------------------------------------------------------------------------------------------------------- reservoir


def run_stream(kind: type[Memory], capacity: int, batches: list[torch.Tensor], generator: torch.Generator) -> list[int]:
    memory = kind(capacity, (3, 1, 1), staging=max(map(len, batches)))
    for batch in batches:
        memory.add(batch, {}, generator)
    return identities(memory)


def test_reservoir_includes_every_sample_of_the_stream_equally_often():
    capacity, length, streams = 7, 20, 600
    batches = [pictures(batch) for batch in minibatches([5] * (length // 5))]
    counts, generator = torch.zeros(length), seeded(1)
    for _ in range(streams):
        kept = run_stream(Reservoir, capacity, batches, generator)
        assert len(set(kept)) == capacity
        counts[kept] += 1
    assert chi_square_of_inclusion(counts, capacity, streams) > 0.001


def algorithm_r(capacity: int, length: int) -> dict[tuple[int, ...], Fraction]:
    """Exact probability of every content of the slots, one sample after the other."""
    law = {tuple(range(capacity)): Fraction(1)}
    for sample in range(capacity, length):
        following: dict[tuple[int, ...], Fraction] = Counter()
        for content, probability in law.items():
            for slot in range(sample + 1):
                after = (*content[:slot], sample, *content[slot + 1 :]) if slot < capacity else content
                following[after] += probability / (sample + 1)
        law = following
    return law


@pytest.mark.parametrize("sizes", [[2, 2, 1], [1, 2, 2]])
def test_reservoir_fills_its_slots_by_the_law_of_algorithm_r_however_the_stream_is_cut(sizes):
    """A minibatch is as its samples one by one: the later of two in the same slot overwrites the earlier."""
    law, trials, generator = algorithm_r(capacity=2, length=5), 1000, seeded(2)
    batches = [pictures(batch) for batch in minibatches(sizes)]
    found = Counter(tuple(run_stream(Reservoir, 2, batches, generator)) for _ in range(trials))
    assert found.keys() <= law.keys()
    assert chisquare([found[key] for key in law], [float(p) * trials for p in law.values()]).pvalue > 0.001


# -------------------------------------------------------------------------------------------------------- sampling


@every_kind
@pytest.mark.parametrize("arrived", [[3], [3, 3, 1], [3] * 9])
def test_samples_are_different_filled_slots(kind, arrived):
    memory, generator = make(kind, capacity=10, staging=3), seeded()
    fill(memory, arrived, generator)
    assert len(memory) == min(sum(arrived), 10)
    for count in range(1, len(memory) + 1):
        slots = memory.sample(count, generator).tolist()
        assert len(set(slots)) == count
        assert set(slots) <= set(range(len(memory)))
    assert sorted(memory.sample(len(memory), generator).tolist()) == list(range(len(memory)))


def test_filled_slots_are_sampled_uniformly_alone_and_in_pairs():
    memory, generator = make(Fifo, capacity=10, staging=7), seeded(3)
    fill(memory, [7], generator)
    trials, singles, pairs = 2000, torch.zeros(7), Counter()
    for _ in range(trials):
        slots = memory.sample(2, generator).tolist()
        singles[slots] += 1
        pairs[frozenset(slots)] += 1
    assert chi_square_of_inclusion(singles, 2, trials) > 0.001
    assert len(pairs) == 21
    assert chisquare([*pairs.values()]).pvalue > 0.001


def test_sampling_changes_nothing_but_the_generator():
    memory, generator = make(Fifo, capacity=6, staging=3), seeded()
    fill(memory, [3, 3, 3], generator)
    before = {name: tensor.clone() for name, tensor in memory.state_dict().items()}
    first, second = memory.sample(3, seeded(4)), memory.sample(3, seeded(4))
    assert torch.equal(first, second)
    assert all(torch.equal(tensor, before[name]) for name, tensor in memory.state_dict().items())
