"""What every memory does: stored features, going on from a saved state, refusals."""

from __future__ import annotations

import math

import pytest
import torch
from memories import (
    DIM,
    KINDS,
    every_kind,
    fill,
    identities,
    make,
    minibatches,
    pictures,
    seeded,
)

from ocssl.checks import small_learner, small_stream
from ocssl.distributed import ProcessGroup
from ocssl.errors import CheckpointError, ConfigError
from ocssl.memory import Column, Fifo, MinRed, MinRedAuthors, MinRedOriginal
from ocssl.memory.base import RowLayout


@pytest.mark.parametrize("size", [0, -1, 2.5])
def test_a_memory_of_no_samples_is_refused(size):
    with pytest.raises(ConfigError, match=f"memory_size must be a whole number from 1 to 100,000,000, not {size}"):
        make(Fifo, capacity=4, staging=2, memory_size=size)


@pytest.mark.parametrize("column", [(8,), Column(8), torch.zeros(8)])
def test_a_column_that_is_none_is_refused(column):
    with pytest.raises(ConfigError, match="column 'outputs' must be a Column with a tuple for its shape"):
        Fifo(4, (3, 2, 2), staging=2, columns={"outputs": column})


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


@pytest.mark.parametrize("kind", [*KINDS, MinRedAuthors, MinRedOriginal])
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


def test_a_memory_smaller_than_the_stream_minibatch_is_refused():
    with pytest.raises(ConfigError, match=r"memory_size \(9\) must be at least stream_batch \(10\)"):
        make(Fifo, capacity=9, staging=10)
    make(Fifo, capacity=10, staging=10)


def test_minred_needs_features():
    with pytest.raises(ConfigError, match="memory 'minred' needs a column 'features'"):
        MinRed(4, (3, 1, 1), staging=2)


def test_a_column_cannot_take_the_name_of_what_a_memory_keeps_anyway() -> None:
    with pytest.raises(ConfigError, match="column 'born' is one of the memory's own"):
        Fifo(4, (3, 2, 2), staging=2, columns={"born": Column((1,))})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("feature", torch.zeros(2, DIM), r"column 'feature' is not one of the memory's \(features, count\)"),
        (
            "features",
            torch.zeros(3, DIM),
            r"column 'features' takes \(2, 5\) of torch.float32 for 2 new samples, not \(3",
        ),
        ("features", torch.zeros(2, DIM + 1), r"takes \(2, 5\) .*, not \(2, 6\) of torch.float32"),
        ("count", torch.full((2,), 0.5), r"column 'count' takes \(2,\) of torch.int64 .*, not \(2,\) of torch.float32"),
    ],
)
def test_a_column_of_another_name_shape_or_type_is_refused_and_nothing_stored(name, value, message):
    columns = {"features": Column((DIM,)), "count": Column((), torch.int64)}
    memory = Fifo(4, (3, 1, 1), staging=2, columns=columns)
    with pytest.raises(ConfigError, match=message):
        memory.add(pictures([1, 2]), {name: value}, seeded())
    assert len(memory) == 0
    assert not memory.images.any()


def test_features_are_offered_to_a_memory_without_them():
    memory = Fifo(4, (3, 1, 1), staging=2)
    memory.add(pictures([1, 2]), {"features": torch.zeros(2, DIM)}, seeded())
    assert len(memory) == 2


def test_a_memory_learns_of_boundaries(monkeypatch):
    monkeypatch.setattr(Fifo, "boundary", lambda memory: memory.images.zero_())
    learner = small_learner("er", memory="fifo").partial_fit(small_stream(8))
    assert learner.train_state.memory.images.any()
    assert not learner.boundary().train_state.memory.images.any()


def test_a_column_of_booleans_stays_one_in_a_group(monkeypatch):
    monkeypatch.setattr(ProcessGroup, "all_reduce", lambda self, tensor: tensor)  # the other process has nothing
    layout = RowLayout(capacity=4, staging=1, group=ProcessGroup(rank=0, size=2))
    rows = torch.tensor([True, False, True, True])  # slots 0 and 2, staging, and what lies elsewhere
    found = layout.read(rows, torch.tensor([0, 1, 2]))
    assert found.dtype == torch.bool
    assert found.tolist() == [True, False, False]
