"""Faulty memories: the checks find each of them, and say what to correct."""

from __future__ import annotations

import pytest
import torch

from ocssl.checks import check_memory, check_strategy
from ocssl.errors import ConfigError
from ocssl.memory import Fifo, Memory


class Counting(Memory):
    """FIFO by a counter that is not saved."""

    inserted = 0

    def assign_slots(self, n, generator):
        first, self.inserted = self.inserted, self.inserted + n
        return (first + self.slots[:n]) % self.capacity


class Single(Fifo):
    """Puts a sample that comes alone into the first slot."""

    def assign_slots(self, n, generator):
        return super().assign_slots(n, generator) if n > 1 else self.slots[:1]


class Colliding(Fifo):
    """Once it is full, may put two new samples into one slot."""

    def assign_slots(self, n, generator):
        anywhere = torch.randint(self.capacity, (n,), generator=generator)
        return torch.where(self.arrived < self.capacity, super().assign_slots(n, generator), anywhere)


class Overflowing(Memory):
    def assign_slots(self, n, generator):
        return self.slots[:n] + self.arrived


class Sparing(Fifo):
    def assign_slots(self, n, generator):
        return super().assign_slots(n, generator)[:2]


class Listing(Fifo):
    def assign_slots(self, n, generator):
        return super().assign_slots(n, generator).tolist()


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Colliding, r"assign_slots\(\d\) must return \d different slots, not \["),
        (Overflowing, r"assign_slots\(5\) must return slots below 12, or 12 \+ i for new sample i if it is not kept"),
        (Sparing, r"Sparing.assign_slots\(5\) must return \(5,\) of torch.int64, not \(2,\) of torch.int64"),
        (Listing, r"Listing.assign_slots\(5\) must return \(5,\) of torch.int64, not list"),
    ],
)
def test_a_memory_that_assigns_wrong_slots_is_caught(faulty, kind: type[Memory], complaint: str) -> None:
    with pytest.raises((AssertionError, ConfigError), match=complaint):
        check_memory(faulty(kind))


def test_a_memory_with_a_counter_that_is_not_saved_is_caught(faulty) -> None:
    name = faulty(Counting)
    with pytest.raises(AssertionError, match="a restored memory goes on differently"):
        check_memory(name)
    with pytest.raises(AssertionError, match="resumed run differs"):
        check_strategy("er", memory=name)


class Shuffling(Fifo):
    def sample(self, n, generator):
        return torch.randperm(len(self), generator=generator, device=self.device)[:n]


class InTurn(Memory):
    def assign_slots(self, n, generator):
        return (self.seen + self.slots[:n]) % self.capacity


@pytest.mark.parametrize("kind", [Shuffling, InTurn])
def test_a_memory_whose_numbers_a_capture_would_keep_is_caught(faulty, kind: type[Memory]) -> None:
    name = faulty(kind)
    with pytest.raises(AssertionError, match=r"a step reads len\(self\) or self.seen, .* read the tensor self.arrived"):
        check_memory(name)
    with pytest.raises(
        AssertionError, match=r"a step reads len\(\) or seen of the memory, .* self.arrived in a memory"
    ):
        check_strategy("er", memory=name)


class Numbering(Memory):
    def assign_slots(self, n, generator):
        return (self.arrived + torch.arange(n)) % self.capacity


class Reading(Memory):
    def assign_slots(self, n, generator):
        return (self.arrived.item() + self.slots[:n]) % self.capacity


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Numbering, r"a step makes a tensor on the CPU, by arange\(\) without device"),
        (Reading, r"a step reads values of a tensor on the host, by item\(\), .* or set host_work = True"),
    ],
)
def test_a_memory_that_leaves_the_device_is_caught(faulty, kind: type[Memory], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_memory(faulty(kind))


@pytest.mark.parametrize("kind", [Shuffling, InTurn, Reading])
def test_a_memory_that_works_on_the_host_may_read_values_there(faulty, kind: type[Memory]) -> None:
    name = faulty(type("OnTheHost", (kind,), {"host_work": True}))
    check_memory(name)
    check_strategy("er", memory=name)


def test_a_memory_that_leaves_a_slot_empty_is_caught(faulty) -> None:
    with pytest.raises(AssertionError, match="after 6 samples slot 5 is empty"):
        check_memory(faulty(Single))
