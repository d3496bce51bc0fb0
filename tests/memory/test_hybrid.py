"""Hybrid memories against versions that handle one sample at a time, and own columns of a memory."""

from __future__ import annotations

import pytest
import torch
from memories import chi_square_of_inclusion, fill, identities, make, minibatches, pictures, seeded

import ocssl
from ocssl.checks import check_memory, check_strategy, small_learner, small_stream
from ocssl.errors import ConfigError
from ocssl.memory import Column, Hybrid, HybridMinRed, Memory, Reservoir

SIZES = [3, 3, 1, 3, 2, 3, 3, 3, 1, 3, 3]


@pytest.mark.parametrize("name", ["hybrid", "hybrid-minred"])
def test_hybrids_keep_the_contracts(name: str) -> None:
    check_memory(name)
    check_strategy("cla-r", memory=name)


@pytest.mark.parametrize("sizes", [SIZES, [3] * 9])  # the latter fill the memory in the middle of a minibatch
@pytest.mark.parametrize("recent", [0.4, 0.6])
def test_the_older_samples_are_those_with_the_largest_keys(recent: float, sizes: list[int]) -> None:
    memory, draws = make(Hybrid, 10, staging=3, recent=recent), seeded(1)
    keys: dict[int, float] = {}
    newest, older = [], []
    for batch in minibatches(sizes):
        memory.add(pictures(batch), {}, draws)
        held = dict(zip(identities(memory), memory.columns["key"][: len(memory)].tolist(), strict=True))
        for number in batch:
            keys[number] = held[number]
        newest += batch
        while len(newest) > int(10 * recent):
            older.append(newest.pop(0))
        while len(newest) + len(older) > 10:
            older.remove(min(older, key=keys.__getitem__))
        assert sorted(held) == sorted(newest + older)
        assert all(held[number] == keys[number] for number in held)


def test_every_older_sample_is_equally_likely_to_be_kept() -> None:
    counts, streams = torch.zeros(24), 600
    for seed in range(streams):
        memory, draws = make(Hybrid, 8, staging=4, recent=0.5), seeded(seed)
        for batch in minibatches([4] * 6):
            memory.add(pictures(batch), {}, draws)
        counts[identities(memory)] += 1
    assert counts[20:].tolist() == [streams] * 4
    assert chi_square_of_inclusion(counts[:20], 4, streams) > 0.001


def test_the_hybrid_with_minred_drops_the_most_redundant_of_the_older_samples() -> None:
    memory, draws = make(HybridMinRed, 10, staging=3, recent=0.4), seeded(2)
    features: dict[int, torch.Tensor] = {}
    present: list[int] = []
    for batch in minibatches(SIZES):
        drawn = torch.randn(len(batch), 5, generator=draws)
        features |= dict(zip(batch, drawn, strict=True))
        memory.add(pictures(batch), {"features": drawn}, draws)
        present += batch
        while len(present) > 10:
            older = [number for number in present if number <= batch[-1] - 4]
            present.remove(max(older, key=lambda i: max(cosine(features[i], features[j]) for j in present if j != i)))
        assert sorted(identities(memory)) == present


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(one @ other / (one.norm() * other.norm()))


@pytest.mark.parametrize("kind", [Hybrid, HybridMinRed])
@pytest.mark.parametrize("recent", [0.2, 0.8])
def test_a_minibatch_must_fit_both_parts(kind: type[Memory], recent: float) -> None:
    with pytest.raises(ConfigError, match=r"recent \(0.\d\) of memory_size 10 must leave room for 3 samples"):
        make(kind, 10, staging=3, recent=recent)


class Surprising(Reservoir):
    """Samples more often what changed its features most."""

    def own_columns(self) -> dict[str, Column]:
        return {"score": Column(())}

    def new_columns(self, n: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
        return {"score": torch.ones(n, device=self.device)}

    def after_step(self, output) -> None:
        if output.batch.slots is not None:
            one, two = output.features.projected[:2, output.batch.replay]
            self.columns["score"][output.batch.slots] = (one - two).norm(dim=1)

    def sample(self, n: int, generator: torch.Generator) -> torch.Tensor:
        scores = self.columns["score"][: self.capacity].clamp(min=1e-3)
        filled = self.slots[: self.capacity] < self.arrived
        return torch.multinomial(torch.where(filled, scores, 0.0), n, generator=generator)


def test_a_memory_asks_for_a_column_and_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ocssl.memory.registry._entries, "surprising", Surprising)
    check_memory("surprising")
    check_strategy("er", memory="surprising")
    memory = small_learner("er", memory="surprising").partial_fit(small_stream(40)).train_state.memory
    assert memory is not None
    assert len(memory.columns["score"][: len(memory)].unique()) > 5


class Backwards(Memory):
    def assign_slots(self, n: int, generator: torch.Generator) -> torch.Tensor:
        return self.capacity - 1 - (self.arrived + self.slots[:n]) % self.capacity


class Thinned(Memory):
    def assign_slots(self, n: int, generator: torch.Generator) -> torch.Tensor:
        order = self.arrived + self.slots[:n]
        return torch.where(order % 4 == 0, (order // 4) % self.capacity, self.capacity + self.slots[:n])


@pytest.mark.parametrize("kind", [Backwards, Thinned])
def test_slots_that_are_sampled_before_they_are_written_are_found(kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ocssl.memory.registry._entries, "gaps", kind)
    with pytest.raises(AssertionError, match=r"slot \d+ of the memory was sampled, but never written; assign_slots"):
        check_strategy("er", memory="gaps", memory_size=60)


def test_a_memory_says_what_it_holds() -> None:
    memory = make(Hybrid, 2000, staging=3)
    fill(memory, [3, 2], seeded())
    assert repr(memory) == "Hybrid(5 of 2,000 samples, 5 seen)"
