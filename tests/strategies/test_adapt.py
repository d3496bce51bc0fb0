"""Adapting a trained network: what learns and how fast, what it is aligned to, and what is deployed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from helpers.steps import step_of
from ocssl import Learner
from ocssl.checks import check_strategy, small_learner, small_stream
from ocssl.checks.training import _assert_same
from ocssl.config import parse_learner
from ocssl.errors import ConfigError
from ocssl.nn.blocks import blocks, select_trained
from ocssl.strategies import Adapt


def weights(network: nn.Module) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in network.state_dict().values()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def adapting(**settings: object) -> tuple[Learner, Adapt, nn.Module]:
    learner = small_learner("adapt", **settings)
    strategy = learner.train_state.strategy
    assert isinstance(strategy, Adapt)
    return learner, strategy, learner.train_state.encoder.backbone


@pytest.mark.parametrize(
    "settings",
    [
        {"omega": 1.0, "hold_norm": False, "aligned": "replay", "mix": 1.0},
        {"layer_decay": 0.5, "optimizer": "sgd", "method": "simsiam"},
        {"average": 0.0, "optimizer": "lars", "anneal": 5},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_the_contracts_hold_with_other_settings(settings: dict[str, object]) -> None:
    check_strategy("adapt", **settings)


def test_the_map_starts_as_the_identity_so_that_features_agree(build, some_views, batch_of) -> None:
    strategy, encoder = build(Adapt, omega=2.0)
    views, batch = some_views(8), batch_of(3, 5)
    losses = strategy.penalty(step_of(batch, views, strategy.encode(encoder, views, True)))
    assert losses["alignment"].item() == pytest.approx(-2, abs=1e-5)
    with torch.no_grad():
        encoder.backbone[1].weight.add_(0.3)
        strategy.aligner[0].weight[0, 1] = 0.5
    features = strategy.encode(encoder, views, True)
    cosines = [
        torch.cosine_similarity(strategy.aligner[0].weight @ new, old, dim=0)
        for view, had in zip(features.backbone, strategy.original.network(views, True).backbone, strict=True)
        for new, old in zip(view, had, strict=True)
    ]
    expected = -2 * torch.stack(cosines).mean()
    torch.testing.assert_close(strategy.penalty(step_of(batch, views, features))["alignment"], expected)


def test_replay_samples_alone_are_aligned_where_that_is_chosen(build, some_views, batch_of) -> None:
    strategy, encoder = build(Adapt, omega=1.0, aligned="replay")
    views = some_views(8)
    with torch.no_grad():
        encoder.backbone[1].weight.add_(0.3)
    features = strategy.encode(encoder, views, True)
    assert strategy.penalty(step_of(batch_of(8, 0), views, features)) == {}
    got = strategy.penalty(step_of(batch_of(3, 5), views, features))["alignment"]
    old = strategy.original.network(views, True).backbone
    torch.testing.assert_close(got, -torch.cosine_similarity(features.backbone, old, dim=-1)[:, 3:].mean())


@pytest.mark.parametrize("settings", [{}, {"optimizer": "sgd"}, {"optimizer": "lars"}, {"layer_decay": 0.5}], ids=str)
def test_heads_learn_first(settings: dict[str, object]) -> None:
    learner, _, backbone = adapting(heads_first=4, passes=1, **settings)
    start, heads = weights(backbone), weights(learner.train_state.encoder.projector)
    learner.partial_fit(small_stream(16))
    assert same(start, weights(backbone))
    assert not same(heads, weights(learner.train_state.encoder.projector))
    assert same(start, weights(learner.network))
    assert learner.budget.spent == 0, "no gradient goes through the backbone"
    learner.partial_fit(small_stream(4, seed=1))
    assert not same(start, weights(backbone))
    assert learner.budget.spent > 0


def test_a_backbone_without_a_learning_rate_stays_as_it_is() -> None:
    learner, _, backbone = adapting(heads_first=0, backbone_lr=0.0)
    start = weights(backbone)
    learner.partial_fit(small_stream(40))
    assert same(start, weights(backbone))
    assert same(start, weights(learner.network))


def test_statistics_of_batch_norm_stay_where_they_are_held() -> None:
    for hold in (True, False):
        learner, _, backbone = adapting(hold_norm=hold)
        start = [buffer.clone() for buffer in backbone.buffers()]
        learner.partial_fit(small_stream(24)).transform(small_stream(4))
        learner.partial_fit(small_stream(24))
        assert same(start, list(backbone.buffers())) is hold


@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize("method", ["byol", "moco", "dino"])
def test_a_target_network_passes_views_in_the_mode_of_the_backbone(method: str, hold: bool) -> None:
    learner, strategy, _ = adapting(method=method, hold_norm=hold, heads_first=100)  # both have the original weights
    learner.partial_fit(small_stream(24))
    train_state = learner.train_state
    views = train_state.augment(small_stream(6), views=2, generator=train_state.generator)
    features = strategy.encode(train_state.encoder, views, True).backbone
    assert torch.equal(strategy.method.target(views, True).backbone, features)


def test_nothing_is_dropped_while_the_norms_are_held() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.Dropout(0.5))
    learner, strategy, _ = adapting(backbone=network)
    learner.partial_fit(small_stream(8))
    assert learner.output is not None
    train_state = learner.train_state
    views = train_state.augment(small_stream(3), views=2, generator=train_state.generator)
    assert strategy.encode(train_state.encoder, views, True).backbone.count_nonzero() == 2 * 3 * 8


@pytest.mark.parametrize("hold", [True, False])
def test_the_deployed_weights_are_the_average_mixed_with_the_original(hold: bool) -> None:
    learner, _, backbone = adapting(heads_first=0, passes=1, average=0.8, mix=0.6, hold_norm=hold, lr=0.5)
    start, history = [tensor.double() for tensor in weights(backbone)], []
    for step in range(6):
        learner.partial_fit(small_stream(4, seed=step))
        history.append(weights(backbone))
    for number, (began, got) in enumerate(zip(start, learner.network.state_dict().values(), strict=True)):
        shares = [0.8 ** (5 - step) for step in range(6)]
        average = sum(share * past[number].double() for share, past in zip(shares, history, strict=True)) / sum(shares)
        if got.is_floating_point():
            torch.testing.assert_close(got.double(), 0.6 * average + 0.4 * began, rtol=1e-5, atol=1e-6)
        else:
            assert got == history[-1][number]


def test_the_share_can_be_changed_without_training(tmp_path) -> None:
    learner, strategy, _ = adapting(lr=0.5)
    learner.partial_fit(small_stream(40))
    images, trained = small_stream(6, seed=3), weights(learner.train_state.encoder)
    at_first = learner.transform(images)
    strategy.remix(0.0)
    assert same(weights(learner.network), weights(strategy.original.network.backbone))
    strategy.remix(1.0)
    assert same(weights(learner.network), weights(strategy.average.network))
    assert same(trained, weights(learner.train_state.encoder))
    learner.save(tmp_path)
    again = Learner.load(tmp_path)
    _assert_same(learner, again, "the share is saved")
    _assert_same(learner.partial_fit(small_stream(8)), again.partial_fit(small_stream(8)), "a share that goes on")
    assert again.train_state.strategy.share == 1.0
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="share must be a number from 0 to 1, not"):
            strategy.remix(wrong)
    fresh, strategy, _ = adapting(lr=0.5)
    fresh.partial_fit(small_stream(40))
    strategy.remix(0.25)
    strategy.remix(0.75)
    assert (fresh.transform(images) == at_first).all()


def test_a_share_and_rates_that_are_given_when_loading_count_from_there_on(tmp_path) -> None:
    learner, strategy, _ = adapting(heads_first=0, layer_decay=0.5, backbone="resnet18-w4", passes=1)
    strategy.remix(0.25)
    strategy.slow_down(0.5)
    learner.partial_fit(small_stream(40)).save(tmp_path)
    kept, other, fixed = (
        Learner.load(tmp_path, **given) for given in ({}, {"mix": 0.0, "layer_decay": 0.25}, {"backbone_lr": 0.0})
    )
    assert kept.train_state.strategy.share == fixed.train_state.strategy.share == 0.25
    torch.testing.assert_close(kept.train_state.strategy.rates, 0.5 * 0.03 * 0.5 ** torch.arange(8.0, -1, -1))
    torch.testing.assert_close(other.train_state.strategy.rates, 0.03 * 0.25 ** torch.arange(8.0, -1, -1))
    assert same(weights(other.network), weights(other.train_state.strategy.original.network.backbone))
    before = [p.detach().clone() for p in fixed.train_state.encoder.backbone.parameters()]
    fixed.partial_fit(small_stream(8))
    assert same(before, [*fixed.train_state.encoder.backbone.parameters()])


def test_a_strong_alignment_keeps_features_near_those_of_the_original() -> None:
    kept = []
    for omega in (0.0, 100.0):
        learner, strategy, _ = adapting(omega=omega, heads_first=0, mix=1.0, average=0.0, lr=0.05, passes=4)
        images = learner.train_state.augment.normalize(small_stream(50, seed=5))
        learner.partial_fit(small_stream(80))
        old = strategy.original.network(images[None], True).backbone[0]
        kept.append(torch.cosine_similarity(learner.network.eval()(images), old).mean().item())
    assert kept[1] > kept[0] + 0.01


def test_the_learning_rate_falls_from_block_to_block_and_can_be_lowered() -> None:
    learner, strategy, backbone = adapting(heads_first=0, layer_decay=0.5, backbone_lr=0.1, backbone="resnet18-w4")
    optimizer = learner.train_state.optimizer
    groups = strategy.groups(learner.train_state.encoder)
    assert [float(group.share) for group in groups] == pytest.approx([0.1 * 0.5 ** (8 - i) for i in range(9)])
    numbers = [len(members) for members, _ in optimizer._groups]
    assert sum(numbers[1:]) == len(list(backbone.parameters()))
    assert sum(numbers) == len(optimizer.parameters)
    strategy.slow_down(0.5)
    assert float(groups[-1].share) == pytest.approx(0.05)
    for wrong in (-0.5, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="factor must be a number of at least 0"):
            strategy.slow_down(wrong)
    learner.partial_fit(small_stream(8))
    assert float(groups[-1].share) == pytest.approx(0.05)


def trained_names(network: nn.Module, trained: str) -> Iterator[str]:
    select_trained(network, trained)
    return (name for name, parameter in network.named_parameters() if parameter.requires_grad)


def test_what_learns_can_be_chosen() -> None:
    for trained, moves in (
        ("last:2", lambda name: name.startswith("layer4")),
        ("norms", lambda name: "bn" in name or "downsample.1" in name),
        ("all", lambda name: True),
    ):
        learner, _, backbone = adapting(train=trained, backbone="resnet18-w4", heads_first=0, lr=0.1)
        start = {name: parameter.detach().clone() for name, parameter in backbone.named_parameters()}
        learner.partial_fit(small_stream(40))
        moved = {name for name, parameter in backbone.named_parameters() if not torch.equal(parameter, start[name])}
        assert moved == {name for name in start if moves(name)}, trained


def test_blocks_of_a_network() -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Parameter(torch.zeros(2))
            self.stem = nn.Conv2d(3, 4, 3)
            self.norm = nn.GroupNorm(2, 4)
            self.stages = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4)) for _ in range(3)])
            self.head = nn.Linear(4, 2)

    network = nn.Sequential(Wrapped(), nn.Flatten())
    names = {parameter: name.removeprefix("0.") for name, parameter in network.named_parameters()}
    found = [[names[parameter] for parameter in block] for block in blocks(network)]
    assert found[0] == ["token", "stem.weight", "stem.bias", "norm.weight", "norm.bias"]
    assert found[1] == [f"stages.0.{part}" for part in ("0.weight", "0.bias", "2.weight", "2.bias")]
    assert (len(found), found[-1]) == (5, ["head.weight", "head.bias"])
    assert list(trained_names(network, "last:1")) == ["0.head.weight", "0.head.bias"]
    for wrong, sentence in (("last:6", "has 5 blocks; use 'all'"), ("norms", "no norm with weights")):
        with pytest.raises(ConfigError, match=sentence):
            select_trained(network if wrong == "last:6" else nn.Linear(2, 2), wrong)


@pytest.mark.parametrize("wrong", ["last", "last:0", "last:-1", "some", "", 3])
def test_other_words_for_what_learns_are_refused(wrong: object) -> None:
    with pytest.raises(
        ConfigError, match="train must be 'all', 'norms', 'last:N' or 'lora:N' with N of at least 1, not"
    ):
        parse_learner({"strategy": "adapt", "train": wrong})


def test_the_defaults_are_those_of_the_strategy_and_of_the_parts_that_it_names() -> None:
    config = parse_learner({"strategy": "adapt"}).to_dict()
    wanted = {"method": "simclr", "temperature": 0.2, "optimizer": "adamw", "lr": 0.001, "batch": 64, "passes": 1}
    wanted |= {"memory": "fifo", "average": 0.995, "hidden_dim": 1024, "output_dim": 256, "joint_views": True}
    assert {name: config[name] for name in wanted} == wanted
    other = parse_learner({"strategy": "adapt", "method": "moco", "passes": 2, "stream_batch": 50}).to_dict()
    plain = parse_learner({"strategy": "er", "method": "moco"}).to_dict()
    assert (other["temperature"], other["passes"], other["batch"]) == (plain["temperature"], 2, 100)
    assert parse_learner({"strategy": "er"}).to_dict()["average"] == 0
    assert "adapt" in repr(small_learner("adapt"))
