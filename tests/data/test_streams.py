"""Streams: every sample once, borders where they belong, any start exact, and the same on every machine."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ocssl.data.streams import (
    Stream,
    blurred,
    class_incremental,
    iid,
    ordered,
    permutation,
    registry,
    split_validation,
)
from ocssl.errors import ConfigError, InputError
from ocssl.options import validate


def labels_with(counts: list[int]) -> torch.Tensor:
    """Labels with so many samples of each class, in mixed order."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return labels[torch.from_numpy(permutation(len(labels), "test"))]


def flat(batches) -> list[int]:
    return [index for batch in batches for index in batch.tolist()]


many = settings(max_examples=100, deadline=None, derandomize=True)
class_counts = st.lists(st.integers(1, 30), min_size=1, max_size=12)
seeds = st.integers(0, 2**63)


@st.composite
def incremental_streams(draw, last=("drop", "carry")):
    """Any labels, a validation split of them, and a stream of the rest by either class-incremental recipe."""
    labels = labels_with(draw(class_counts))
    fraction = draw(st.sampled_from([0, 0.1, 0.25, 0.5]))
    train, validation = split_validation(labels, fraction=fraction, seed=draw(seeds))
    make = draw(st.sampled_from([class_incremental, lambda *a, **k: blurred(*a, overlap=0.3, **k)]))
    stream = make(
        labels,
        draw(st.integers(1, len(labels[train].unique()))),
        indices=train,
        data_seed=draw(seeds),
        order_seed=draw(seeds),
        stream_batch=draw(st.integers(1, 12)),
        last=draw(st.sampled_from(last)),
    )
    return labels, train, validation, stream


@many
@given(incremental_streams(last=["carry"]))
def test_every_training_sample_arrives_exactly_once_and_no_validation_sample(case):
    _, train, validation, stream = case
    arrived = flat(stream)
    assert sorted(arrived) == train.tolist()
    assert not set(arrived) & set(validation.tolist())
    assert len(stream) == len(train)


@many
@given(incremental_streams(last=["drop"]))
def test_dropping_loses_less_than_a_minibatch_per_experience_and_repeats_nothing(case):
    _, train, _, stream = case
    arrived = flat(stream)
    assert len(set(arrived)) == len(arrived) == len(stream)
    assert set(arrived) <= set(train.tolist())
    assert len(train) - len(arrived) <= stream.experiences * (stream.batch - 1)
    assert all(len(batch) == stream.batch for batch in stream)
    assert all(border % stream.batch == 0 for border in stream.borders)


@many
@given(incremental_streams(), st.data())
def test_starting_at_n_equals_skipping_n(case, data):
    stream = case[-1]
    start = data.draw(st.integers(0, len(stream)))
    assert flat(stream.starting_at(start)) == flat(stream)[start:]
    whole = start - start % stream.batch
    assert [b.tolist() for b in stream.starting_at(whole)] == [b.tolist() for b in stream][whole // stream.batch :]


@many
@given(incremental_streams(), st.data())
def test_minibatches_know_their_place_wherever_the_stream_starts(case, data):
    stream = case[-1]
    ended = []
    for minibatch in stream.minibatches():
        ended += [(number, minibatch.seen) for number in minibatch.ends]
        assert minibatch.experience == sum(border <= minibatch.seen - 1 for border in stream.borders)
    if len(stream):
        assert [number for number, _ in ended] == list(range(stream.experiences))
        assert all(stream.borders[number] <= seen < stream.borders[number] + stream.batch for number, seen in ended)
        start = data.draw(st.integers(1, len(stream)))
        later = [number for minibatch in stream.starting_at(start).minibatches() for number in minibatch.ends]
        assert later == [number for number in range(stream.experiences) if stream.borders[number] > start]


@many
@given(class_counts, st.sampled_from([0, 0.1, 0.29, 0.5, 0.9]), seeds)
def test_validation_takes_the_same_share_of_every_class_rounded_down(counts, fraction, seed):
    labels = labels_with(counts)
    train, validation = split_validation(labels, fraction, seed)
    assert sorted([*train.tolist(), *validation.tolist()]) == list(range(len(labels)))
    held_out = labels[validation].bincount(minlength=len(counts)).tolist()
    assert held_out == [count * round(fraction * 100) // 100 for count in counts]


@many
@given(st.integers(1, 60), st.integers(1, 4), st.integers(1, 9), seeds)
def test_each_iid_epoch_is_a_permutation_of_its_own(count, epochs, batch, seed):
    stream = iid(count, epochs, data_seed=seed, batch=batch, last="carry")
    arrived = flat(stream)
    parts = [arrived[epoch * count : (epoch + 1) * count] for epoch in range(epochs)]
    assert all(sorted(part) == list(range(count)) for part in parts)
    assert stream.borders == tuple(count * (epoch + 1) for epoch in range(epochs))
    if count > 20:
        assert len({tuple(part) for part in parts}) == epochs
    for start in {0, 1, count - 1, count, len(stream) - batch, len(stream)} - set(range(-batch, 0)):
        assert flat(stream.starting_at(start)) == arrived[start:]


def test_experiences_share_no_class_and_cover_all():
    labels = labels_with([9] * 17)
    stream = class_incremental(labels, 5, stream_batch=1)
    groups = [set(labels[stream.indices(number)].tolist()) for number in range(5)]
    assert [len(group) for group in groups] == [4, 4, 3, 3, 3]
    assert set.union(*groups) == set(range(17))


def test_the_order_seed_changes_the_order_and_not_the_classes():
    labels = labels_with([20] * 6)
    one, other = (class_incremental(labels, 3, order_seed=seed) for seed in (0, 1))
    for number in range(3):
        assert one.indices(number).tolist() != other.indices(number).tolist()
        assert sorted(one.indices(number).tolist()) == sorted(other.indices(number).tolist())


def test_a_given_class_order_is_followed():
    labels = labels_with([4] * 6)
    stream = class_incremental(labels, 3, class_order=[5, 4, 0, 1, 3, 2], stream_batch=1)
    assert [sorted(set(labels[stream.indices(n)].tolist())) for n in range(3)] == [[4, 5], [0, 1], [2, 3]]
    with pytest.raises(ConfigError, match="each of the 6 classes"):
        class_incremental(labels, 3, class_order=[0, 1])


def test_blurring_mixes_around_borders_and_nowhere_else():
    labels = torch.arange(4).repeat_interleave(100)
    sharp = class_incremental(labels, 4, stream_batch=1)
    soft = blurred(labels, 4, overlap=0.4, stream_batch=1)
    assert flat(blurred(labels, 4, overlap=0, stream_batch=1)) == flat(sharp)
    before, after = labels[flat(sharp)], labels[flat(soft)]
    for border in (100, 200, 300):
        window = slice(border - 20, border + 20)
        assert after[window].bincount(minlength=4).tolist() == before[window].bincount(minlength=4).tolist()
        assert 0 < (after[border - 20 : border] != before[border - 1]).sum() < 20
    outside = torch.ones(400, dtype=torch.bool)
    for border in (100, 200, 300):
        outside[border - 20 : border + 20] = False
    assert (after[outside] == before[outside]).all()


def test_a_column_of_times_orders_the_stream_and_ties_keep_their_order():
    times = np.array(["2024-03-01", "2024-01-01", "2024-02-01", "2024-01-01"], dtype="datetime64[D]")
    assert flat(ordered(keys=times, stream_batch=2)) == [1, 3, 2, 0]
    assert flat(ordered(keys=["b", "a", "c"], stream_batch=2)) == [1, 0, 2]
    assert flat(ordered(5, stream_batch=2)) == [0, 1, 2, 3, 4]
    assert ordered(7, experiences=3, stream_batch=1).borders == (3, 5, 7)


def test_a_missing_key_is_named():
    with pytest.raises(InputError, match="sample 1 has no key"):
        ordered(keys=[1.0, float("nan"), 2.0])
    some = ordered(keys=[1.0, float("nan"), 2.0, 0.5], indices=torch.tensor([3, 2, 0]), stream_batch=3)
    assert flat(some) == [3, 0, 2], "only the samples that take part need a key"
    with pytest.raises(InputError, match="sample 1 has no key"):
        ordered(keys=[1.0, float("nan"), 2.0], indices=torch.tensor([1, 2]))


LABELS = torch.arange(6).repeat(21)
TRAIN, _ = split_validation(LABELS, 0.1, seed=4)
TIMES = np.arange(len(LABELS))[::-1] % 50


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        (
            "class-incremental",
            {"experiences": 3},
            lambda: class_incremental(LABELS, 3, indices=TRAIN, data_seed=5, stream_batch=4),
        ),
        (
            "blurred",
            {"experiences": 3, "overlap": 0.5},
            lambda: blurred(LABELS, 3, overlap=0.5, indices=TRAIN, data_seed=5, stream_batch=4, last="drop"),
        ),
        ("ordered", {"experiences": 2}, lambda: ordered(indices=TRAIN, experiences=2, stream_batch=4, last="drop")),
        ("ordered", {"sort_by": "time"}, lambda: ordered(keys=TIMES, indices=TRAIN, stream_batch=4, last="drop")),
        ("iid", {}, lambda: iid(indices=TRAIN, epochs=2, data_seed=5, batch=4, last="carry")),
    ],
)
def test_a_run_finds_every_kind_by_name_and_gets_full_minibatches(name, options, expected):
    kind = registry.get(name)
    stream = kind(validate(kind.Options, options)).build(
        LABELS, indices=TRAIN, data_seed=5, stream_batch=4, epochs=2, column={"time": TIMES}.__getitem__
    )
    assert stream.fingerprint() == expected().fingerprint()
    assert {len(batch) for batch in stream} == {4}


@pytest.mark.parametrize("name", registry.names())
def test_a_kind_of_stream_has_defaults_and_takes_all_samples(name):
    stream = registry.get(name)().build(torch.arange(20).repeat(10), stream_batch=10)
    assert sorted(flat(stream)) == list(range(200))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("class-incremental", {"experiences": 0}, "experiences must be a whole number of at least 1, not 0"),
        ("blurred", {"overlap": -0.1}, "overlap must be a number from 0 to 1, not -0.1"),
        ("ordered", {"overlap": 0.1}, "unknown setting 'overlap'"),
        ("iid", {"online_passes": 1.5}, "online_passes must be a whole number of at least 1, not 1.5"),
    ],
)
def test_options_out_of_range_are_refused(name, options, message):
    with pytest.raises(ConfigError, match=message):
        validate(registry.get(name).Options, options)


def test_sorting_by_a_column_needs_columns():
    kind = registry.get("ordered")
    with pytest.raises(ConfigError, match="sort_by is 'time', and this data set has no columns"):
        kind(validate(kind.Options, {"sort_by": "time"})).build(LABELS)


def test_a_stream_of_many_epochs_draws_one_at_a_time():
    drawn = []

    def draw(number):
        drawn.append(number)
        return np.arange(4)

    stream = Stream([4] * 1000, draw, batch=2, last="drop").starting_at(3990)
    next(iter(stream))
    assert drawn == [997]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: class_incremental(torch.tensor([0, 1]), 3), "2 classes cannot make 3 experiences"),
        (lambda: class_incremental(None), "labels are needed and the data set has none"),
        (lambda: split_validation(None), "labels are needed and the data set has none"),
        (lambda: class_incremental(torch.zeros(3), 1), "one-dimensional integer tensor"),
        (lambda: class_incremental(np.zeros(3, int), 1), "one-dimensional integer tensor, not ndarray"),
        (lambda: split_validation(torch.tensor([0, 1]), fraction=1.0), "below 1, not 1.0"),
        (lambda: blurred(torch.tensor([0, 1]), 2, overlap=1.5), "overlap must be a number from 0 to 1, not 1.5"),
        (lambda: iid(10, 0), "at least one epoch"),
        (lambda: iid(10, batch=0), "at least one sample"),
        (lambda: ordered(10, last="keep"), "'drop' or 'carry', not 'keep'"),
        (lambda: ordered(10).starting_at(11), "cannot start at sample 11"),
        (lambda: ordered(), "either a count or keys"),
        (lambda: ordered(keys=np.array([1, "a"], dtype=object)), "keys must be numbers, texts or times"),
        (
            lambda: ordered(keys=np.array([np.ones(2), np.ones(3)], dtype=object)),
            "keys must be numbers, texts or times",
        ),
        (lambda: iid(indices=torch.tensor([True, False])), "indices must be .* not torch.bool"),
        (lambda: class_incremental(torch.arange(3), 1, indices=torch.tensor([0, 3])), "reach from 0 to 3"),
        (lambda: class_incremental(torch.arange(3), 1, indices=torch.tensor([-1, 0])), "reach from -1 to 0"),
    ],
)
def test_impossible_streams_are_refused_in_one_sentence(make, message):
    with pytest.raises((ConfigError, InputError), match=message):
        make()


# Stored once, compared for ever: a change of any of these changes every published stream.
PAPER_LABELS = torch.arange(100).repeat(500)


def test_the_paper_stream_never_changes():
    train, _ = split_validation(PAPER_LABELS, 0.1, seed=0)
    stream = class_incremental(PAPER_LABELS, 20, indices=train, data_seed=0, stream_batch=10)
    assert stream.fingerprint() == "d537ebc313c2d9faed8ee8e18d470fd5371d6cb52593f6ae36567154ab1f5cf2"
    assert class_incremental(PAPER_LABELS, 20, indices=train, data_seed=1).fingerprint() != stream.fingerprint()


def test_the_other_streams_never_change():
    labels = torch.arange(10).repeat(50)
    assert (
        blurred(labels, 5, overlap=0.3, data_seed=3).fingerprint()
        == "67787378221b3246b76379cf9448ffffdc4d61b0fc78e5a987d1852a62fc4e8b"
    )
    assert iid(500, 3, data_seed=3).fingerprint() == "34ce8b42b80cc804c231baf9cd6252cf85dbb45438214609e808cf8153fe8bc7"
    assert ordered(500).fingerprint() == "5fea70913286b02622064a51a0ba9946fc4320067ed0a5220ff0f4756d02efff"
    assert split_validation(labels, 0.1, seed=3)[1][:5].tolist() == [4, 10, 31, 40, 79]


def test_a_permutation_is_a_sort_by_the_bytes_of_shake_256():
    digest = hashlib.shake_256(b"order/7/1").digest(80)
    keys = [int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(10)]
    assert permutation(10, "order", 7, 1).tolist() == sorted(range(10), key=keys.__getitem__)


def test_no_position_is_no_index():
    empty = Stream.from_groups([np.arange(4)], batch=2, last="drop").between(2, 2)
    assert (empty.tolist(), empty.dtype) == ([], torch.int64)


@pytest.mark.parametrize("found", [np.zeros((3, 1), int), np.zeros(3), np.zeros(2, int), ["a", "b", "c"]])
def test_an_experience_that_is_no_array_of_its_indices_is_refused(found):
    stream = Stream([3], lambda number: found, batch=1, last="drop")
    with pytest.raises(ConfigError, match=r"experience 0 of the stream must be integers of shape \(3,\)"):
        list(stream)
