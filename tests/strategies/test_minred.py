"""MinRed: which features new and replayed samples have, by default and in the original variant."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ocssl.batch import Batch, StepOutput
from ocssl.memory import MinRed, registry
from ocssl.strategies import MinimumRedundancy
from ocssl.strategies.authors import MinimumRedundancyAuthors, MinimumRedundancyOriginal


def some_images(n: int) -> torch.Tensor:
    return torch.randn(n, 3, 4, 4, generator=torch.Generator().manual_seed(n))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (MinimumRedundancy, {}),
        (MinimumRedundancyOriginal, {"insert_features": True, "normalize_features": False}),
        (MinimumRedundancyOriginal, {"insert_features": True}),
        (MinimumRedundancyAuthors, {"insert_mode": "evaluation"}),
    ],
)
def test_new_samples_enter_with_features_in_evaluation_mode(build, kind, options):
    strategy, encoder = build(kind, **options)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    got = strategy.features_before(some_images(4), encoder)["features"]
    assert encoder.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.state_dict().items())
    expected = encoder.eval()(some_images(4)[None], joint=True).projected[0]
    normalised = getattr(strategy.options, "normalize_features", False)
    torch.testing.assert_close(got, F.normalize(expected, dim=-1) if normalised else expected)


def test_in_the_original_new_samples_have_no_features(build):
    strategy, encoder = build(MinimumRedundancyOriginal)
    assert strategy.features_before(some_images(4), encoder) == {}


@pytest.mark.parametrize(
    ("kind", "options", "normalised"),
    [
        (MinimumRedundancy, {}, False),
        (MinimumRedundancyOriginal, {}, True),
        (MinimumRedundancyOriginal, {"normalize_features": False}, False),
    ],
)
def test_stored_features_move_halfway_to_the_replayed_ones(build, some_views, kind, options, normalised):
    strategy, encoder = build(kind, **options)
    memory = MinRed(6, (3, 4, 4), staging=6, columns=strategy.columns())
    generator = torch.Generator().manual_seed(0)
    stored = torch.randn(6, 7, generator=generator)
    memory.add(torch.zeros(6, 3, 4, 4, dtype=torch.uint8), {"features": stored}, generator)
    slots, views = torch.tensor([4, 1, 2]), some_views(3)
    features = encoder(views, joint=True).detach()
    batch = Batch(torch.zeros(3, 3, 4, 4, dtype=torch.uint8), stream=0, slots=slots)
    strategy.after_step(StepOutput(batch, views, features, {}, 0), encoder, memory)

    new = features.projected.mean(0)
    expected = (stored[slots] + (F.normalize(new, dim=-1) if normalised else new)) / 2
    expected = F.normalize(expected, dim=-1) if normalised else expected
    torch.testing.assert_close(memory.columns["features"][slots], expected)
    assert torch.equal(memory.columns["features"][[0, 3, 5]], stored[[0, 3, 5]])


def test_each_variant_has_its_own_variant_of_the_memory():
    strategies = (MinimumRedundancy, MinimumRedundancyAuthors, MinimumRedundancyOriginal)
    kinds = [registry.get("minred", kind.memory_variant) for kind in strategies]
    assert [kind.__name__ for kind in kinds] == ["MinRed", "MinRedAuthors", "MinRedOriginal"]


def test_the_authors_pass_new_samples_in_training_mode(build):
    strategy, encoder = build(MinimumRedundancyAuthors)
    _, twin = build(MinimumRedundancyAuthors)
    got = strategy.features_before(some_images(4), encoder)["features"]
    torch.testing.assert_close(got, twin.projector(twin.backbone(some_images(4))), rtol=0, atol=1e-6)
    for mine, theirs in zip(encoder.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs)
    before = [buffer.clone() for buffer in encoder.buffers()]
    one = strategy.features_before(some_images(1), encoder)["features"]
    assert one.isfinite().all()
    assert all(torch.equal(a, b) for a, b in zip(before, encoder.buffers(), strict=True))
    assert encoder.training


@pytest.mark.parametrize(
    ("kind", "options", "sizes"),
    [
        (MinimumRedundancy, {}, [(3, 0), (3, 0), (0, 8), (0, 8)]),
        (MinimumRedundancyAuthors, {"partial_batches": False}, [(3, 0), (3, 0), (0, 8), (0, 8)]),
        (MinimumRedundancyAuthors, {}, [(0, 3), (0, 6), (0, 8), (0, 8)]),
    ],
)
def test_the_authors_train_on_the_memory_from_the_first_minibatch_on(build, kind, options, sizes):
    strategy, _ = build(kind, stream_batch=3, batch=8, **options)
    memory = MinRed(12, (3, 4, 4), staging=3, columns=strategy.columns())
    found, keys, generator = [], set(), torch.Generator().manual_seed(0)
    for _ in sizes:
        stream = torch.ones(3, 3, 4, 4, dtype=torch.uint8)
        memory.add(stream, {"features": torch.randn(3, 7, generator=generator)}, generator)
        batch = strategy.compose(stream, memory, generator)
        found.append((batch.stream, len(batch) - batch.stream))
        keys.add((strategy.graph_key(memory), found[-1]))
    assert found == sizes
    assert len({key for key, _ in keys}) == len(keys) == len(set(sizes))
