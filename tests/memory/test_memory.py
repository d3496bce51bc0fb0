"""Memories against textbook versions that handle one sample at a time, and against the exact laws of chance."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, chisquare

from ocssl.errors import CheckpointError, ConfigError
from ocssl.memory import Column, Fifo, Memory, MinRed, MinRedAuthors, MinRedOriginal, Reservoir, registry
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


# ------------------------------------------------------------------------------------------------------------ FIFO


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


def chi_square_of_inclusion(counts: torch.Tensor, size: int, trials: int) -> float:
    """p-value of "every member is included equally often" when each trial takes ``size`` different members.

    Members of one trial exclude each other: a count varies by trials · share · (1 − share), and the counts sum up
    to a fixed total, which leaves members − 1 of them free.
    """
    members = len(counts)
    share = size / members
    statistic = ((counts - trials * share) ** 2).sum().item() / (trials * share * (1 - share)) * (members - 1) / members
    return chi2.sf(statistic, members - 1)


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


@every_kind
def test_filled_slots_are_sampled_uniformly_alone_and_in_pairs(kind):
    memory, generator = make(kind, capacity=10, staging=7), seeded(3)
    fill(memory, [7], generator)
    trials, singles, pairs = 2000, torch.zeros(7), Counter()
    for _ in range(trials):
        slots = memory.sample(2, generator).tolist()
        singles[slots] += 1
        pairs[frozenset(slots)] += 1
    assert chi_square_of_inclusion(singles, 2, trials) > 0.001
    assert len(pairs) == 21
    assert chisquare([*pairs.values()]).pvalue > 0.001


@every_kind
def test_sampling_changes_nothing_but_the_generator(kind):
    memory, generator = make(kind, capacity=6, staging=3), seeded()
    fill(memory, [3, 3, 3], generator)
    before = {name: tensor.clone() for name, tensor in memory.state_dict().items()}
    first, second = memory.sample(3, seeded(4)), memory.sample(3, seeded(4))
    assert torch.equal(first, second)
    assert all(torch.equal(tensor, before[name]) for name, tensor in memory.state_dict().items())


# ---------------------------------------------------------------------------------------------------------- MinRed


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
            memory.update_features(slots, seen)
            for slot, feature in zip(slots.tolist(), seen.tolist(), strict=True):
                sample = next(s for s in pool if s.number == identities(memory)[slot])
                old = sample.feature
                sample.feature = feature if old is None else [(a + b) / 2 for a, b in zip(old, feature, strict=True)]
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


def test_the_original_variant_chooses_one_by_one_and_can_choose_at_once():
    kind = registry.get("minred", variant="original")
    assert kind is MinRedOriginal
    assert make(kind, capacity=4, staging=2).sequential
    assert kind(4, (3, 1, 1), staging=2, columns={"features": Column((DIM,))}).sequential
    assert not make(kind, capacity=4, staging=2, selection="simultaneous").sequential


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
            memory.update_features(slots, seen)
            for slot, feature in zip(slots.tolist(), seen.tolist(), strict=True):
                sample = next(s for s in pool if s.number == identities(memory)[slot])
                old = sample.feature
                sample.feature = feature if old is None else [(a + b) / 2 for a, b in zip(old, feature, strict=True)]
    assert by_age > 0


@pytest.mark.parametrize("kind", [MinRedAuthors, MinRedOriginal])
def test_the_variants_of_minred_go_on_exactly_from_a_saved_state(kind):
    memory, twin, generator = make(kind, 7, staging=3), make(kind, 7, staging=3), seeded()
    fill(memory, [3, 3, 2, 3], generator)
    twin.load_state_dict({name: tensor.clone() for name, tensor in memory.state_dict().items()})
    for one in (memory, twin):
        fill(one, [3, 1, 3], seeded(5))
    for name, tensor in memory.state_dict().items():
        assert torch.equal(tensor, twin.state_dict()[name]), name


def test_minred_refuses_an_unknown_selection():
    with pytest.raises(ConfigError, match="selection must be 'sequential' or 'simultaneous', not 'simultanious'"):
        make(MinRedOriginal, capacity=4, staging=2, selection="simultanious")
    with pytest.raises(ConfigError, match="unknown setting 'selection'"):
        make(MinRed, capacity=4, staging=2, selection="sequential")


@every_kind
@pytest.mark.parametrize("size", [0, -1, 2.5])
def test_a_memory_of_no_samples_is_refused(kind, size):
    with pytest.raises(ConfigError, match=f"memory_size must be a whole number from 1 to 100,000,000, not {size}"):
        make(kind, capacity=4, staging=2, memory_size=size)


# ------------------------------------------------------------------------------------------------- stored features


@every_kind
@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_stored_features_follow_in_closed_form(kind, keep):
    memory, generator = make(kind, capacity=6, staging=6), seeded()
    fill(memory, [6], generator)
    before, goal = memory.columns["features"].clone(), torch.randn(2, DIM, generator=generator)
    slots, times = torch.tensor([4, 1]), 5
    for _ in range(times):
        memory.update_features(slots, goal, keep=keep)
    after = memory.columns["features"]
    torch.testing.assert_close(after[slots], keep**times * before[slots] + (1 - keep**times) * goal)
    untouched = [0, 2, 3, 5]
    assert torch.equal(after[untouched], before[untouched])


@every_kind
def test_a_first_feature_is_taken_as_it_is(kind):
    memory = make(kind, capacity=4, staging=4)
    memory.add(pictures([0, 1, 2, 3]), {}, seeded())
    assert not memory.featured[:4].any()
    first = torch.randn(1, DIM, generator=seeded(1))
    memory.update_features(torch.tensor([2]), first)
    assert torch.equal(memory.columns["features"][2], first[0])
    assert memory.featured[:4].tolist() == [False, False, True, False]


@every_kind
def test_normalised_features_have_length_one_after_each_blend(kind):
    memory, generator = make(kind, capacity=4, staging=4), seeded()
    fill(memory, [4], generator)
    old, new = memory.columns["features"][:2].clone(), torch.randn(2, DIM, generator=generator)
    memory.update_features(torch.tensor([0, 1]), new, normalize=True)
    for row in range(2):
        blend = (0.5 * old[row] + 0.5 * new[row]).tolist()
        length = math.sqrt(sum(x * x for x in blend))
        assert memory.columns["features"][row].tolist() == pytest.approx([x / length for x in blend], abs=1e-6)


@every_kind
def test_a_feature_stays_with_its_image_wherever_that_goes(kind):
    memory, generator, features = make(kind, capacity=7, staging=3), seeded(), {}
    for batch in minibatches([3, 2, 3, 1, 3, 3, 2, 3]):
        new = torch.randn(len(batch), DIM, generator=generator)
        features |= dict(zip(batch, new, strict=True))
        memory.add(pictures(batch), {"features": new}, generator)
        for slot, number in enumerate(identities(memory)):
            assert torch.equal(memory.columns["features"][slot], features[number])
            assert memory.born[slot] == number


# ----------------------------------------------------------------------------------------------------------- state


@every_kind
@pytest.mark.parametrize("sizes", [[], [3], [3, 3, 2, 3, 3]])
def test_a_memory_goes_on_exactly_from_a_saved_state(kind, sizes):
    memory, generator = make(kind, capacity=7, staging=3), seeded()
    fill(memory, sizes, generator)
    state = {name: tensor.clone() for name, tensor in memory.state_dict().items()}
    twin, same_draws = make(kind, capacity=7, staging=3), torch.Generator()
    twin.load_state_dict(state)
    same_draws.set_state(generator.get_state())
    assert len(twin) == len(memory)
    assert twin.seen == memory.seen

    for one, its_generator in ((memory, generator), (twin, same_draws)):
        fill(one, [3, 1, 3], its_generator)
        slots = one.sample(3, its_generator)
        one.update_features(slots, torch.randn(3, DIM, generator=its_generator))
        fill(one, [2, 3], its_generator)
    assert memory.state_dict().keys() == twin.state_dict().keys()
    for name, tensor in memory.state_dict().items():
        assert torch.equal(tensor, twin.state_dict()[name]), name


def foreign_states() -> dict[str, dict[str, torch.Tensor]]:
    own = make(Fifo, capacity=6, staging=3).state_dict()
    return {
        "of another policy": make(MinRed, capacity=6, staging=3).state_dict(),
        "of another size": make(Fifo, capacity=7, staging=3).state_dict(),
        "of another feature width": make(Fifo, capacity=6, staging=3, dim=DIM + 1).state_dict(),
        "without features": Fifo(6, (3, 1, 1), staging=3).state_dict(),
        "with a part too few": {name: tensor for name, tensor in own.items() if name != "born"},
        "with a part too many": {**own, "column.view": torch.zeros(9, 3)},
        "of another type": {**own, "images": own["images"].float()},
    }


@pytest.mark.parametrize("what", foreign_states())
def test_a_foreign_state_is_refused_and_changes_nothing(what):
    memory = make(Fifo, capacity=6, staging=3)
    fill(memory, [3, 3, 2], seeded())
    before = {name: tensor.clone() for name, tensor in memory.state_dict().items()}
    with pytest.raises(CheckpointError, match="the saved memory does not fit"):
        memory.load_state_dict(foreign_states()[what])
    assert all(torch.equal(tensor, before[name]) for name, tensor in memory.state_dict().items())
    assert memory.seen == 8


# -------------------------------------------------------------------------------------------------------- refusals


@every_kind
def test_a_memory_smaller_than_the_stream_minibatch_is_refused(kind):
    with pytest.raises(ConfigError, match=r"memory_size \(9\) must be at least stream_batch \(10\)"):
        make(kind, capacity=9, staging=10)
    make(kind, capacity=10, staging=10)


def test_minred_needs_features():
    with pytest.raises(ConfigError, match="memory 'minred' needs a column 'features'"):
        MinRed(4, (3, 1, 1), staging=2)


def test_a_column_cannot_take_the_name_of_what_a_memory_keeps_anyway() -> None:
    with pytest.raises(ConfigError, match="column 'born' is one of the memory's own"):
        Fifo(4, (3, 2, 2), staging=2, columns={"born": Column((1,))})
