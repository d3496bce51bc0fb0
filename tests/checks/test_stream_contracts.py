"""The contract suite of streams on everything registered, and proof that it notices a broken contract."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ocssl.checks import check_stream
from ocssl.data import streams
from ocssl.data.streams import Shuffled, Stream, StreamType
from ocssl.errors import ConfigError


@pytest.mark.parametrize("name", streams.registry.names())
def test_every_stream_keeps_the_contract(name: str) -> None:
    options = {"epoch_end": "drop"} if name == "iid" else {}  # only runs on i.i.d. data carry images over
    check_stream(name, **options)


class Halves(StreamType):
    """The samples in their order, in two experiences of 90 or fewer, if nothing else is changed."""

    def build(self, labels, *, indices, stream_batch, **unused):
        return Stream.from_groups(self.groups(labels, indices), stream_batch, "drop")

    def groups(self, labels, indices):
        return np.array_split(indices.numpy(), 2)


class NoSeed(Halves):
    def build(self, labels, *, indices, stream_batch):
        return super().build(labels, indices=indices, stream_batch=stream_batch)


class NoOrderSeed(Shuffled):
    def build(self, labels, *, indices, data_seed, stream_batch, column):
        return Halves().build(labels, indices=indices, stream_batch=stream_batch)


class Lists(Halves):
    def build(self, labels, **how):
        return [*super().build(labels, **how)]


class HeldOut(Halves):
    def groups(self, labels, indices):
        return [np.arange(len(labels))]


class Floats(Halves):
    def groups(self, labels, indices):
        return [indices.double().numpy()]


class Nothing(Halves):
    def groups(self, labels, indices):
        return []


class Tiny(Halves):
    def groups(self, labels, indices):
        return np.array_split(indices.numpy(), 60)


class Carrying(Halves):
    def build(self, labels, *, indices, stream_batch, **unused):
        return Stream.from_groups(self.groups(labels, indices), stream_batch, "carry")


class OwnBatch(Halves):
    def build(self, labels, *, indices, **unused):
        return Stream.from_groups(self.groups(labels, indices), 10, "drop")


class Sorting(Halves):
    def groups(self, labels, indices):
        labels.numpy().sort()
        return super().groups(labels, indices)


class UnseededStream(Halves):
    def groups(self, labels, indices):
        return np.array_split(indices[torch.randperm(len(indices))].numpy(), 2)


class UnseededBorders(Halves):
    turn = 0

    def groups(self, labels, indices):
        UnseededBorders.turn += 1
        return np.split(indices.numpy(), [7 * self.turn])


class OneGenerator(Halves):
    """Draws each experience when it is wanted, from one generator for all."""

    parts = 2

    def build(self, labels, *, indices, data_seed, stream_batch, **unused):
        groups, draws = np.array_split(indices.numpy(), self.parts), np.random.default_rng(data_seed)
        return Stream([*map(len, groups)], lambda number: draws.permutation(groups[number]), stream_batch, "drop")


class OneGeneratorForMany(OneGenerator):
    parts = 5  # more than a stream keeps


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (NoSeed, r"build\(\) of NoSeed cannot be called as a run does \(got an unexpected .* 'data_seed'\); its"),
        (NoOrderSeed, "unexpected keyword argument 'order_seed'"),
        (Lists, r"build\(\) of stream 'wrong' must return a Stream, not list"),
        (
            HeldOut,
            r"stream 'wrong' has sample \d+ in experience 0, which is not among the indices that build\(\) is given",
        ),
        (Floats, r"experience 0 of the stream must be integers of shape \(180,\), not float64 of shape \(180,\)"),
        (Nothing, "stream 'wrong' has no experience"),
        (Tiny, "experience 0 of stream 'wrong' has no full minibatch of 7 samples; use fewer experiences"),
        (Carrying, "experience 0 of stream 'wrong' ends at sample 90, inside a minibatch of 7 samples; .* last='drop'"),
        (
            OwnBatch,
            "experience 0 of stream 'wrong' ends at sample 90, inside a minibatch of 7 samples; give its Stream",
        ),
        (Sorting, r"build\(\) changes the labels or the indices that it is given; change a copy"),
        (UnseededStream, "two streams from one seed differ; draw with ocssl.data.streams.permutation"),
        (UnseededBorders, "two streams from one seed have other borders; draw with"),
        (OneGenerator, "a stream that goes on at sample 84 differs; draw with .* whatever was drawn before"),
        (OneGeneratorForMany, "an experience differs when it is drawn again; draw with"),
    ],
)
def test_a_stream_that_breaks_the_contract_is_caught(kind: type[StreamType], complaint: str) -> None:
    streams.register("wrong")(kind)
    with pytest.raises(AssertionError, match=complaint):
        check_stream("wrong")


def test_a_stream_that_keeps_the_contract_passes_with_its_settings() -> None:
    streams.register("right")(Halves)
    check_stream("right")
    with pytest.raises(ConfigError, match="unknown setting 'experiences'"):
        check_stream("right", experiences=3)
