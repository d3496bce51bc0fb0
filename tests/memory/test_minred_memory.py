"""MinRed and its variants against versions that handle one sample at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from memories import (
    DIM,
    fill,
    identities,
    make,
    make_minred,
    minibatches,
    pictures,
    seeded,
)

from ocssl.errors import ConfigError
from ocssl.memory import Memory, MinRed, MinRedAuthors, MinRedOriginal


@dataclass
class Sample:
    number: int
    feature: list[float] | None


def cosine(a: list[float], b: list[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def redundancy(sample: Sample, pool: list[Sample]) -> float:
    """Cosine to the nearest neighbour; below any cosine for who has none, lower still for who has no feature."""
    if sample.feature is None:
        return -20.0
    others = [cosine(sample.feature, o.feature) for o in pool if o is not sample and o.feature is not None]
    return max(others, default=-10.0)


def drop_sequentially(pool: list[Sample], capacity: int) -> list[Sample]:
    pool = sorted(pool, key=lambda sample: sample.number)
    while len(pool) > capacity:
        pool.remove(max(pool, key=lambda sample: redundancy(sample, pool)))  # max takes the first, thus the oldest
    return pool


def drop_simultaneously(pool: list[Sample], capacity: int) -> list[Sample]:
    scores = {sample.number: redundancy(sample, pool) for sample in pool}
    ranked = sorted(pool, key=lambda sample: (-scores[sample.number], sample.number))
    return ranked[max(0, len(pool) - capacity) :]


SLOW_DROPS: dict[str, Callable[[list[Sample], int], list[Sample]]] = {
    "sequential": drop_sequentially,
    "simultaneous": drop_simultaneously,
}
both_drops = pytest.mark.parametrize("drops", SLOW_DROPS)


def assert_agrees(memory: Memory, pool: list[Sample]) -> None:
    kept = {sample.number: sample for sample in pool}
    assert sorted(identities(memory)) == sorted(kept)
    for slot, number in enumerate(identities(memory)):
        assert memory.born[slot] == number
        assert bool(memory.featured[slot]) == (kept[number].feature is not None)
        if kept[number].feature is not None:
            assert memory.columns["features"][slot].tolist() == pytest.approx(kept[number].feature, abs=1e-5)


def move(memory: Memory, pool: list[Sample], slots: torch.Tensor, seen: torch.Tensor) -> None:
    """Give both the features of replayed samples, half of which enters the stored ones."""
    memory.update_features(slots, seen)
    for slot, feature in zip(slots.tolist(), seen.tolist(), strict=True):
        sample = next(s for s in pool if s.number == identities(memory)[slot])
        old = sample.feature
        sample.feature = feature if old is None else [(a + b) / 2 for a, b in zip(old, feature, strict=True)]


def random_features(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(count, DIM, generator=generator)


def quarter_turns(count: int, generator: torch.Generator) -> torch.Tensor:
    """Vectors of ±1 in four dimensions: every cosine is a whole number of halves, so equals are many and exact."""
    return torch.randint(2, (count, 4), generator=generator) * 2.0 - 1


@both_drops
@pytest.mark.parametrize("features", [random_features, quarter_turns])
@pytest.mark.parametrize("sizes", [[4] * 8, [3, 1, 4, 2, 4, 4, 1, 1, 3], [1] * 14, [2, 4, 3, 4]])
def test_minred_drops_what_the_slow_version_drops_before_at_and_after_full(drops, features, sizes):
    for seed in range(4):
        generator, pool, capacity = seeded(seed), [], 9
        memory = make_minred(drops, capacity, staging=4, dim=features(1, seeded()).shape[1])
        for batch in minibatches(sizes):
            new = features(len(batch), generator)
            memory.add(pictures(batch), {"features": new}, generator)
            pool = SLOW_DROPS[drops](pool + [Sample(*pair) for pair in zip(batch, new.tolist(), strict=True)], capacity)
            assert_agrees(memory, pool)


@both_drops
def test_minred_keeps_agreeing_while_features_arrive_late_and_move(drops):
    for seed in range(5):
        generator, pool, capacity = seeded(seed), [], 8
        memory = make_minred(drops, capacity, staging=3)
        for step, batch in enumerate(minibatches([3, 2, 3, 3, 1, 3, 3, 2, 3, 3, 3, 1])):
            new = random_features(len(batch), generator)
            described = step % 3 == 1
            memory.add(pictures(batch), {"features": new} if described else {}, generator)
            newcomers = [Sample(n, f if described else None) for n, f in zip(batch, new.tolist(), strict=True)]
            pool = SLOW_DROPS[drops](pool + newcomers, capacity)
            assert_agrees(memory, pool)

            slots = memory.sample(min(2, len(memory)), generator)
            seen = random_features(len(slots), generator)
            move(memory, pool, slots, seen)
            assert_agrees(memory, pool)


def full_minred(features: list[list[float]], drops: str) -> Memory:
    memory = make_minred(drops, capacity=len(features), staging=2, dim=2)
    for number, feature in enumerate(features):
        memory.add(pictures([number]), {"features": torch.tensor([feature])}, seeded())
    return memory


def test_of_two_twins_the_older_goes_first_and_the_younger_may_stay():
    memory = full_minred([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.2]], "sequential")
    memory.add(pictures([3]), {"features": torch.tensor([[0.0, 2.0]])}, seeded())  # direction of sample 1
    assert sorted(identities(memory)) == [0, 2, 3]


def test_one_look_may_drop_both_twins_where_two_looks_spare_one():
    start = [[1.0, 0.0], [1.0, 1e-3], [-1.0, 0.3], [-0.2, -1.0]]
    new = torch.tensor([[0.3, 1.0], [-0.3, 1.2]])
    kept = {}
    for drops in SLOW_DROPS:
        memory = full_minred(start, drops)
        memory.add(pictures([4, 5]), {"features": new}, seeded())
        kept[drops] = set(identities(memory))
    assert len({0, 1} & kept["sequential"]) == 1
    assert not {0, 1} & kept["simultaneous"]


def test_samples_without_a_feature_stay_until_there_is_nobody_else():
    memory = full_minred([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], "sequential")
    memory.add(pictures([3, 4]), {}, seeded())
    assert {3, 4} <= set(identities(memory))
    memory.add(pictures([5, 6]), {}, seeded())
    assert sorted(identities(memory)) == [4, 5, 6]  # all bare by now: the oldest went


def test_the_length_of_a_feature_does_not_matter_to_minred():
    short = full_minred([[1.0, 0.0], [0.1, 1.0], [-1.0, 0.0]], "sequential")
    long = full_minred([[9.0, 0.0], [0.01, 0.1], [-50.0, 0.0]], "sequential")
    for memory in (short, long):
        memory.add(pictures([3]), {"features": torch.tensor([[0.9, 0.5]])}, seeded())
    assert sorted(identities(short)) == sorted(identities(long))


def test_with_the_settings_of_the_default_the_variants_of_minred_are_the_default():
    default = make(MinRed, capacity=9, staging=4)
    original = make(MinRedOriginal, capacity=9, staging=4, drop_oldest=False)
    authors = make(MinRedAuthors, capacity=9, staging=4, newcomers="compete")
    for memory in (default, original, authors):
        fill(memory, [4, 4, 3, 4, 1, 4, 4, 2, 4], seeded(1))
    assert identities(default) == identities(original) == identities(authors)


# ------------------------------------------------------------------------------------------- MinRed of other codes


def one_matrix(pool: list[Sample], number: int) -> list[Sample]:
    """The method's own code: one matrix of similarities, in which the row and column of each dropped sample are masked.

    Only samples with features are in the matrix. With fewer than twice ``number`` of them, the longest-kept go.
    """
    described = [sample for sample in pool if sample.feature is not None]
    if len(described) < 2 * number:
        return sorted(pool, key=lambda sample: sample.number)[number:]
    nothing = -math.inf
    matrix = [[nothing if a is b else cosine(a.feature, b.feature) for b in described] for a in described]
    dropped = []
    for _ in range(number):
        nearest = [max(row) for row in matrix]
        worst = nearest.index(max(nearest))
        dropped.append(described[worst].number)
        for i in range(len(matrix)):
            matrix[worst][i] = matrix[i][worst] = nothing
    return [sample for sample in pool if sample.number not in dropped]


def old_samples_only(pool: list[Sample], number: int) -> list[Sample]:
    """The public code of the CLA paper: the smallest distance 1 − cos goes, again and again; that to oneself is 1."""
    pool = list(pool)
    for _ in range(number):
        nearest = [min(1.0 if a is b else 1 - cosine(a.feature, b.feature) for b in pool) for a in pool]
        pool.pop(nearest.index(min(nearest)))
    return pool


@pytest.mark.parametrize("sizes", [[4] * 8, [3, 1, 4, 2, 4, 4, 1, 1, 3], [1] * 14, [2, 4, 3, 4]])
def test_the_authors_minred_drops_old_samples_by_old_features_and_appends_all_newcomers(sizes):
    for seed in range(6):
        generator, pool, capacity = seeded(seed), [], 9
        memory = make(MinRedAuthors, capacity, staging=4)
        for batch in minibatches(sizes):
            new = random_features(len(batch), generator)
            memory.add(pictures(batch), {"features": new}, generator)
            pool = old_samples_only(pool, max(0, len(pool) + len(batch) - capacity))
            pool += [Sample(*pair) for pair in zip(batch, new.tolist(), strict=True)]
            assert_agrees(memory, pool)


def test_in_the_authors_minred_samples_without_a_near_neighbour_are_equals_and_the_oldest_goes():
    apart = [[1.0, 0.0], [-0.64, 0.77], [-0.64, -0.77]]  # every cosine is below 0, that of the last two the highest
    memory = make(MinRedAuthors, capacity=3, staging=1, dim=2)
    for number, feature in enumerate([*apart, [0.0, 1.0]]):
        memory.add(pictures([number]), {"features": torch.tensor([feature])}, seeded())
    assert sorted(identities(memory)) == [1, 2, 3]
    assert [sample.number for sample in old_samples_only([Sample(*pair) for pair in enumerate(apart)], 1)] == [1, 2]
    assert [sample.number for sample in drop_sequentially([Sample(*pair) for pair in enumerate(apart)], 2)] == [0, 2]


@pytest.mark.parametrize(("kind", "turned_away"), [(MinRedAuthors, 0), (MinRed, 30)])
def test_the_authors_minred_turns_no_newcomer_away(kind, turned_away):
    """Minibatches of look-alikes, as in a class-incremental stream."""
    memory, generator, away = make(kind, capacity=40, staging=4, dim=16), seeded(), 0
    for step, batch in enumerate(minibatches([4] * 30)):
        new = torch.randn(4, 16, generator=generator) + 2 * torch.randn(1, 16, generator=generator)
        memory.add(pictures(batch), {"features": new}, generator)
        away += len(set(batch) - set(identities(memory))) if step >= 10 else 0
    assert away == 0 if turned_away == 0 else away > turned_away


@pytest.mark.parametrize(
    ("kind", "options", "kept"),
    [
        (MinRedOriginal, {}, [1, 2, 4]),
        (MinRed, {}, [1, 2, 4]),
        (MinRedOriginal, {"selection": "simultaneous"}, [2, 3, 4]),
    ],
)
def test_of_two_near_twins_the_original_keeps_one(kind, options, kept):
    vectors = [[1.0, 0, 0], [1.0, 0.01, 0], [0, 1.0, 0], [0, 0, 1.0], [0, 0.7, 0.72]]
    memory = make(kind, capacity=3, staging=2, dim=3, **options)
    features = torch.nn.functional.normalize(torch.tensor(vectors), dim=1)
    for rows in ([0, 1], [2], [3, 4]):
        memory.add(pictures(rows), {"features": features[rows]}, seeded())
    assert sorted(identities(memory)) == kept
    if options == {}:
        pool = [Sample(number, feature) for number, feature in enumerate(features.tolist())]
        assert [sample.number for sample in one_matrix(pool, 2)] == kept


def test_the_original_minred_drops_as_its_own_code_while_features_arrive_late_and_move():
    by_age = 0
    for seed in range(6):
        generator, pool, capacity = seeded(seed), [], 12
        memory = make(MinRedOriginal, capacity, staging=3)
        for batch in minibatches([3, 2, 3, 3, 1, 3, 3, 2, 3, 3, 3, 1, 3, 3]):
            memory.add(pictures(batch), {}, generator)
            number = max(0, len(pool) + len(batch) - capacity)
            by_age += number > 0 and sum(sample.feature is not None for sample in pool) < 2 * number
            pool = one_matrix(pool + [Sample(n, None) for n in batch], number)
            assert_agrees(memory, pool)

            slots = memory.sample(2, generator)
            seen = random_features(2, generator)
            move(memory, pool, slots, seen)
    assert by_age > 0


def test_minred_refuses_an_unknown_selection():
    with pytest.raises(ConfigError, match="selection must be 'sequential' or 'simultaneous', not 'simultanious'"):
        make(MinRedOriginal, capacity=4, staging=2, selection="simultanious")
    with pytest.raises(ConfigError, match="unknown setting 'selection'"):
        make(MinRed, capacity=4, staging=2, selection="sequential")
