"""Every strategy × method × memory that the paper allows learns, and only what it may."""

from __future__ import annotations

import inspect
from functools import partial

import pytest
import torch
from grid import combinations

import ocssl
from ocssl.batch import Batch, Step
from ocssl.checks import small_learner, small_stream


@pytest.mark.parametrize(("strategy", "method", "memory"), combinations())
def test_training_moves_the_weights_leaves_targets_alone_and_is_charged(strategy, method, memory) -> None:
    own = {"heads_first": 0} if strategy == "adapt" else {}  # the first steps of heads alone cost nothing
    learner = small_learner(strategy, method=method, memory=memory, passes=1, **own)
    encoder = learner.train_state.encoder
    before = {name: p.detach().clone() for name, p in encoder.named_parameters()}
    learner.partial_fit(small_stream(20)).boundary().partial_fit(small_stream(10, seed=1)).flush()
    assert learner.budget.spent == cost(strategy, [4] * 7 + [2])  # seven minibatches and a flushed remainder
    assert all(torch.tensor(value).isfinite() for value in learner.losses.values())
    assert all(not torch.equal(p, before[name]) for name, p in encoder.named_parameters())
    frozen = [p for p in learner.train_state.strategy.parameters() if not p.requires_grad]
    assert all(p.grad is None for p in frozen)
    output = learner.output
    assert not output.features.projected.requires_grad
    if learner.train_state.memory is not None:
        assert all(not column.requires_grad for column in learner.train_state.memory.columns.values())
        assert all(not recalled.requires_grad for recalled in output.batch.recalled.values())


def cost(strategy: str, minibatches: list[int]) -> int:
    """CBP of a pass over each minibatch, with batches of 12 and 20 images kept."""
    composition = ocssl.strategies.registry.get(strategy).composition
    replay = {"stream": 0, "mixed": 0, "stream+replay": 8, "replay": 12}[composition]
    views = {"pocon": 4, "cmp": 8}.get(strategy, 2)  # two networks, and many views
    expected, held = 0, 0
    for n in minibatches:
        if composition == "replay":
            held = min(held + n, 20)
        replaying = replay > 0 and held > replay
        expected += views * (replay if replaying and composition == "replay" else n + replay * replaying)
        if composition != "replay":
            held = min(held + n, 20)
    return expected


# A memory decides what is replayed, and not how it is learned: each once, the other pairs are slow.
LONGER = [
    case
    if case[0] == "er" or case[2] == ocssl.strategies.registry.get(case[0]).default_memory
    else pytest.param(*case, marks=pytest.mark.slow)
    for case in combinations()
]


@pytest.mark.parametrize(("strategy", "method", "memory"), LONGER)
def test_the_loss_falls_over_a_longer_run(strategy, method, memory) -> None:
    replays = ocssl.strategies.registry.get(strategy).composition in ("stream+replay", "replay")
    learner = small_learner(
        strategy, method=method, memory=memory, memory_size=memory and 48, batch=24,
        stream_batch=8 if replays else 24, passes=2 if replays else 6,
    )  # fmt: skip
    images = colours(36)
    before = objective(learner, images)
    learner.partial_fit(images.repeat(4, 1, 1, 1))
    assert objective(learner, images) < before - 0.1


def colours(n: int) -> torch.Tensor:
    """Images that differ in colour: something that a tiny network learns to tell in a few dozen steps."""
    generator = torch.Generator().manual_seed(3)
    tone, grain = (torch.rand(n, 3, side, side, generator=generator) for side in (1, 8))
    return (200 * tone + 55 * grain).to(torch.uint8)


def objective(learner: ocssl.Learner, images: torch.Tensor) -> float:
    """The self-supervised part of the loss on fixed views: batches along the stream differ too much to compare."""
    train_state = learner.train_state
    views = train_state.augment(images, views=2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = train_state.encoder(views, joint=True)
        step = Step(Batch(images, stream=len(images)), views, features, train_state.generator)
        losses = train_state.strategy.losses(step)
    return float(next(iter(losses.values())))


def test_labels_have_no_way_in() -> None:
    for method in (ocssl.Learner.__init__, ocssl.Learner.partial_fit, ocssl.Learner.transform, ocssl.Learner.flush):
        names = set(inspect.signature(method).parameters)
        assert not names & {"y", "labels", "label", "targets", "target"}
    with pytest.raises(TypeError):
        small_learner("er").partial_fit(small_stream(4), [0, 1, 2, 3])


def test_flush_trains_on_the_remainder_and_only_once() -> None:
    learner = small_learner("er").partial_fit(small_stream(6))
    assert (learner.seen, learner.pending) == (4, 2)
    assert (learner.flush().seen, learner.pending) == (6, 0)
    spent = learner.budget.spent
    assert learner.flush().budget.spent == spent


def test_the_callback_sees_every_minibatch_and_may_save(tmp_path) -> None:
    stream, states = small_stream(22), []

    def save(learner: ocssl.Learner) -> None:
        states.append((learner.seen, learner.pending))
        learner.save(tmp_path / str(learner.seen))

    whole = small_learner("cla-r").partial_fit(stream, callback=save)
    assert states == [(4, 18), (8, 14), (12, 10), (16, 6), (20, 2)]
    resumed = ocssl.Learner.load(tmp_path / "8")
    resumed.partial_fit(stream[:0].new_zeros(1, 3, 8, 8))  # its 14 waiting images come first
    assert resumed.seen == 20
    assert torch.equal(
        resumed.train_state.encoder.backbone.convs[0].weight, whole.train_state.encoder.backbone.convs[0].weight
    )


def test_a_backbone_given_in_evaluation_mode_learns_the_same_whether_or_not_it_is_used_meanwhile() -> None:
    stream, features = small_stream(40), []
    for use in (False, True):
        torch.manual_seed(0)
        own = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
        )
        learner = small_learner("cla-e", backbone=own.eval()).partial_fit(stream[:20])
        if use:
            learner.transform(stream[:3])
        features.append(learner.partial_fit(stream[20:]).encode(stream))
    assert torch.equal(*features)


def test_what_a_call_that_was_cut_short_left_is_flushed_in_full_minibatches(tmp_path) -> None:
    stream = small_stream(22)

    def save_and_break_off(learner: ocssl.Learner) -> None:
        learner.save(tmp_path / "state")
        raise KeyboardInterrupt

    broken = small_learner("cla-r")
    with pytest.raises(KeyboardInterrupt):
        broken.partial_fit(stream, callback=save_and_break_off)
    whole = small_learner("cla-r").partial_fit(stream).flush()
    for learner in (broken, ocssl.Learner.load(tmp_path / "state")):
        assert (learner.seen, learner.pending) == (4, 18)
        assert (learner.flush().seen, learner.pending, learner.budget.spent) == (22, 0, whole.budget.spent)
        assert torch.equal(learner.encode(stream), whole.encode(stream))


def test_teacher_of_cla_follows_in_closed_form() -> None:
    learner = small_learner("cla-b", tau=0.9)
    weight = learner.train_state.encoder.backbone.convs[0].weight
    teacher = learner.train_state.strategy.target.network.backbone.convs[0].weight
    expected = weight.detach().clone()
    step = learner.executor.step

    def watched(stream):
        nonlocal expected
        output = step(stream)
        expected = 0.9 * expected + 0.1 * weight.detach()
        return output

    learner.executor.step = watched
    learner.partial_fit(small_stream(20))
    torch.testing.assert_close(teacher, expected)


def test_stored_features_of_cla_r_follow_at_half_speed() -> None:
    learner = small_learner("cla-r", passes=1).partial_fit(small_stream(16))
    memory = learner.train_state.memory
    before = memory.columns["features"].clone()
    learner.partial_fit(small_stream(4, seed=1))
    batch, features = learner.output.batch, learner.output.features.projected
    expected = 0.5 * before[batch.slots] + 0.5 * features[:, batch.replay].mean(0)
    survived = torch.tensor([slot not in range(16, 20) for slot in batch.slots.tolist()])
    torch.testing.assert_close(memory.columns["features"][batch.slots][survived], expected[survived])
    torch.testing.assert_close(memory.columns["features"][16:20], features[:, batch.fresh].mean(0))


@pytest.mark.parametrize("variant", ["default", "authors"])
@pytest.mark.parametrize("from_start", [True, False])
def test_cassle_aligns_from_the_border_it_was_told(from_start: bool, variant: str) -> None:
    learner = small_learner("cassle", variant=variant, from_start=from_start, joint_views=True).partial_fit(
        small_stream(8)
    )
    assert ("alignment" in learner.losses) is from_start
    learner.boundary()
    frozen = learner.train_state.strategy.target.network.state_dict()
    assert all(torch.equal(frozen[k], v) for k, v in learner.train_state.encoder.state_dict().items())
    learner.partial_fit(small_stream(8, seed=1))
    assert "alignment" in learner.losses


@pytest.mark.parametrize("strategy", ["cla-b", "cla-e", "cla-r", "cassle", "cassle-r"])
def test_targets_and_aligners_see_views_together_where_the_authors_encoder_sees_each_alone(strategy: str) -> None:
    def rows_of(**settings: object) -> dict[str, set[int]]:
        """How many rows at once pass through each part."""
        learner = small_learner(strategy, passes=1, **settings).partial_fit(small_stream(16)).boundary()
        parts = {"encoder": learner.train_state.encoder.projector, "aligner": learner.train_state.strategy.aligner}
        if strategy != "cla-r":  # whose target is no network
            parts["target"] = learner.train_state.strategy.target.network.projector
        passed: dict[str, set[int]] = {name: set() for name in parts}
        for name, module in parts.items():
            module.register_forward_pre_hook(lambda _, given, name=name: passed[name].add(len(given[0])))
        learner.partial_fit(small_stream(4, seed=1))
        return passed

    together, alone, authors = rows_of(joint_views=True), rows_of(joint_views=False), rows_of(variant="authors")
    assert {name: {2 * n for n in rows} for name, rows in alone.items()} == together
    assert authors == together | {"encoder": alone["encoder"]}


def test_boundary_changes_nothing_for_strategies_that_need_none() -> None:
    stream = small_stream(40)
    told = small_learner("cla-e").partial_fit(stream[:20]).boundary().partial_fit(stream[20:])
    untold = small_learner("cla-e").partial_fit(stream)
    assert torch.equal(
        told.train_state.encoder.backbone.convs[0].weight, untold.train_state.encoder.backbone.convs[0].weight
    )


def test_osiris_takes_every_step_twice_only_as_its_authors_did() -> None:
    settings = {"variant": "authors", "momentum": 0.0, "weight_decay": 0.0, "passes": 1}
    once, twice = (small_learner("osiris-r", repeat_updates=n, **settings) for n in (1, 2))
    start = once.train_state.encoder.backbone.convs[0].weight.detach().clone()
    for learner in (once, twice):
        learner.partial_fit(small_stream(4))
    move = once.train_state.encoder.backbone.convs[0].weight - start
    torch.testing.assert_close(
        twice.train_state.encoder.backbone.convs[0].weight - start, 2 * move, rtol=1e-4, atol=1e-6
    )


def test_the_authors_variant_collects_their_choices() -> None:
    learner = small_learner("cassle-r", variant="authors")
    train_state = learner.train_state
    assert learner.config.normalize_first
    assert train_state.joint_views is False
    assert train_state.strategy.target.ready
    scale = small_learner("scale", variant="authors").train_state.strategy
    assert (scale.options.anchors, scale.options.teacher_update) == ("replay", "pass")
    osiris = small_learner("osiris-r", variant="authors").train_state.strategy
    assert osiris.options.repeat_updates == 2
    assert not any(p.requires_grad for p in osiris.h.parameters())
    minred = small_learner("minred", variant="authors").train_state
    assert minred.memory.options.newcomers == "kept"
    assert (minred.strategy.options.insert_mode, minred.strategy.replay_after) == ("training", 1)


def test_minred_newcomers_enter_before_training_described_or_bare() -> None:
    for variant, featured in (("default", True), ("original", False)):
        learner = small_learner("minred", variant=variant, passes=1).partial_fit(small_stream(4))
        assert len(learner.train_state.memory) == 4
        assert learner.train_state.memory.featured[:4].all().item() is featured


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "around", [torch.no_grad, torch.inference_mode, partial(torch.autocast, "cpu", dtype=torch.bfloat16)]
)
def test_what_a_caller_has_set_for_other_networks_changes_nothing_that_is_learned(around, precision) -> None:
    alone, called = (small_learner("cla-e", precision=precision) for _ in range(2))
    alone.partial_fit(small_stream(20))
    with around():
        for images in small_stream(20).split(4):
            called.partial_fit(images)
            features = called.transform(images)
    assert (features == alone.transform(small_stream(20)[-4:])).all()
    kept, found = (learner.train_state.state_dict() for learner in (alone, called))
    assert all(torch.equal(tensor, found[name]) for name, tensor in kept.items())
