"""Memories that keep samples by their losses."""

from __future__ import annotations

import pytest
import torch

from ocssl import memory
from ocssl.batch import Batch, Step
from ocssl.checks import check_memory, check_strategy, small_learner, small_stream
from ocssl.errors import ConfigError
from ocssl.memory import Column, Memory
from ocssl.nn import Features

METHODS = ("simsiam", "simclr", "byol", "moco", "swav", "dino")


class Hardest(Memory):
    needs_losses = True

    def assign_slots(self, n, generator):
        return self.highest(self.columns["losses"], n)


@pytest.fixture(autouse=True)
def hardest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(memory.registry._entries, "hardest", Hardest)


def test_it_keeps_the_samples_with_the_highest_losses() -> None:
    kept = Hardest(5, (3, 1, 1), staging=3)
    generator, losses = torch.Generator().manual_seed(0), torch.rand(23, generator=torch.Generator().manual_seed(1))
    for rows in torch.arange(23).split(3):
        kept.add(rows.to(torch.uint8)[:, None, None, None].expand(-1, 3, 1, 1), {"losses": losses[rows]}, generator)
        stored = kept.images[: len(kept), 0, 0, 0].tolist()
        until = int(rows[-1]) + 1
        assert sorted(stored) == sorted(losses[:until].argsort(descending=True)[:5].tolist())
        assert kept.columns["losses"][: len(kept)].tolist() == losses[stored].tolist()


@pytest.mark.parametrize("views", [2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_the_losses_of_samples_have_the_loss_as_their_mean(method: str, views: int) -> None:
    state = small_learner("finetune", method=method, views=views).train_state
    batch = Batch(small_stream(6), stream=6)
    made = state.augment(batch.images, views=views, generator=state.generator)
    features, subject = state.encoder(made, True), state.strategy.method
    assert subject is not None
    step = Step(batch, made, features, state.generator)
    loss, losses = subject.loss(step), subject.sample_losses(step)
    torch.testing.assert_close(losses.mean(), loss)
    assert losses.std() > 0


@pytest.mark.parametrize("method", ["simsiam", "byol"])
def test_each_loss_belongs_to_its_sample(method: str) -> None:
    """Where a loss is a mean over samples, that of one sample is the loss of a batch with it alone."""
    state = small_learner("finetune", method=method).train_state
    subject = state.strategy.method
    assert subject is not None
    subject.eval()  # batch norm treats each sample alone
    made = state.augment(small_stream(5), views=2, generator=state.generator)

    def step(rows: slice) -> Step:
        views = made[:, rows]
        state.encoder.eval()
        features: Features = state.encoder(views, True)
        return Step(Batch(small_stream(5)[rows], stream=views.shape[1]), views, features, state.generator)

    alone = torch.stack([subject.loss(step(slice(i, i + 1))) for i in range(5)])
    torch.testing.assert_close(subject.sample_losses(step(slice(None))), alone, rtol=1e-4, atol=1e-5)


def test_a_learner_stores_the_losses_of_new_and_of_replayed_samples() -> None:
    learner = small_learner("er", memory="hardest", method="simclr", passes=1, memory_size=20)
    kept = learner.train_state.memory
    assert kept is not None
    for piece in small_stream(40).split(4):
        learner.partial_fit(piece)
        output = learner.output
        assert output is not None
        assert output.sample_losses is not None
        if output.batch.slots is not None and len(kept) < 20:  # nothing was dropped since
            assert torch.equal(kept.columns["losses"][output.batch.slots], output.sample_losses[output.batch.replay])
            new = kept.columns["losses"][len(kept) - 4 : len(kept)]
            assert torch.equal(new, output.sample_losses[output.batch.fresh])


def test_nothing_else_changes_where_losses_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The losses of samples cost no draw and do not change what is learned."""
    learners = []
    for needed in (False, True):
        monkeypatch.setattr(memory.Reservoir, "needs_losses", needed)
        learners.append(small_learner("er", method="byol").partial_fit(small_stream(40)))
    plain, other = (learner.train_state for learner in learners)
    assert torch.equal(plain.generator.get_state(), other.generator.get_state())
    mine, theirs = (
        {name: t for name, t in state.state_dict().items() if name.startswith(("encoder.", "strategy.method.target."))}
        for state in (plain, other)
    )
    assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []


def test_the_contracts_hold() -> None:
    check_memory("hardest")
    check_strategy("er", memory="hardest", method="byol")
    check_strategy("cla-r", memory="hardest")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"strategy": "er", "method": "barlow"}, "method 'BarlowTwins' has no loss of each sample"),
        ({"strategy": "osiris-r"}, "OsirisR has no loss of each sample"),
        ({"strategy": "minred"}, "which strategy 'minred' does not know when they arrive"),
        ({"strategy": "lump"}, "which strategy 'lump' does not know when they arrive"),
    ],
)
def test_a_learner_that_does_not_know_them_is_refused(settings, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        small_learner(memory="hardest", **settings).partial_fit(small_stream(20))


def test_a_column_of_the_same_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="column 'losses' is one of the memory's own"):
        Hardest(5, (3, 1, 1), staging=3, columns={"losses": Column(())})
