"""LoRA while adapting: only low-rank factors learn, and what is deployed is an ordinary network."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers.steps import step_of
from ocssl import Learner
from ocssl.checks import check_strategy, small_learner, small_stream
from ocssl.checks.training import _assert_same
from ocssl.errors import ConfigError
from ocssl.export import load, publish
from ocssl.nn import register_backbone
from ocssl.nn.lora import LowRank
from ocssl.options import Options
from ocssl.strategies import Adapt


class Transformer(nn.Module):
    """Four patches of an image, one layer of attention, and their mean."""

    Options = Options

    def __init__(self, options: Options | None = None, image_size: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, image_size // 2, stride=image_size // 2)
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, images: Tensor) -> Tensor:
        tokens: Tensor = self.layer(self.patches(images).flatten(2).transpose(1, 2))
        return self.norm(tokens.mean(1))


class Linear(nn.Sequential):
    """Nothing but linear layers without bias."""

    Options = Options

    def __init__(self, options: Options | None = None, image_size: int = 8) -> None:
        flat = 3 * image_size**2
        super().__init__(nn.Flatten(), nn.Linear(flat, 10, bias=False), nn.ReLU(), nn.Linear(10, 6, bias=False))


@pytest.fixture(autouse=True)
def _known() -> None:
    register_backbone("transformer")(Transformer)
    register_backbone("linear")(Linear)


LINEAR = {f"layer.{name}" for name in ("self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight",
                                       "linear2.weight")}  # fmt: skip


def adapting(**settings: object) -> tuple[Learner, Adapt]:
    fixed = {"backbone": "transformer", "train": "lora:2", "heads_first": 0, "lr": 0.05, "backbone_lr": 1.0}
    learner = small_learner("adapt", **{**fixed, **settings})
    strategy = learner.train_state.strategy
    assert isinstance(strategy, Adapt)
    return learner, strategy


def sums(strategy: Adapt) -> dict[str, Tensor]:
    """The weights of linear layers in double precision, one outer product of columns and rows after the other."""
    found, changes = {}, strategy.low_rank
    assert changes is not None
    for name, down, up in zip(changes.names, changes.down, changes.up, strict=True):
        found[name] = strategy.original.network.backbone.get_parameter(name).double().clone()
        for column, row in zip(up.detach().double().T, down.detach().double(), strict=True):
            found[name] += column[:, None] * row
    return found


def test_the_contracts_hold() -> None:
    check_strategy("adapt", backbone="linear", train="lora:2")


def test_the_backbone_is_the_original_and_a_product_of_the_factors() -> None:
    learner, strategy = adapting()
    start = {name: tensor.clone() for name, tensor in learner.train_state.encoder.backbone.state_dict().items()}
    learner.partial_fit(small_stream(24))
    wanted = sums(strategy)
    assert set(wanted) == LINEAR
    for name, tensor in learner.train_state.encoder.backbone.state_dict().items():
        if name in wanted:
            torch.testing.assert_close(tensor.double(), wanted[name], rtol=1e-5, atol=1e-6)
            change = tensor - start[name]
            assert torch.linalg.matrix_rank(change, rtol=1e-3) == 2
        else:
            assert torch.equal(tensor, start[name])


def test_gradients_are_those_of_the_product() -> None:
    learner, strategy = adapting(passes=1)
    learner.partial_fit(small_stream(12))
    plain, other = copy.deepcopy(learner.train_state.encoder).requires_grad_(True), copy.deepcopy(strategy)
    other.low_rank = None
    assert strategy.low_rank is not None
    changes = copy.deepcopy(strategy.low_rank)
    learner.partial_fit(small_stream(4, seed=1))
    output = learner.output
    assert output is not None
    features = other.encode(plain, output.views, output.features.joint)
    sum(other.losses(step_of(output.batch, output.views, features)).values()).backward()
    for number, (name, down, up) in enumerate(zip(changes.names, changes.down, changes.up, strict=True)):
        gradient = plain.backbone.get_parameter(name).grad
        assert gradient is not None
        torch.testing.assert_close(strategy.low_rank.down[number].grad, up.T @ gradient, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(strategy.low_rank.up[number].grad, gradient @ down.T, rtol=1e-4, atol=1e-6)


def test_what_is_deployed_is_an_ordinary_network(tmp_path: Path) -> None:
    learner, strategy = adapting(average=0.0, mix=1.0)
    learner.partial_fit(small_stream(24))
    network = Transformer()
    network.load_state_dict(learner.network.state_dict())
    publish(learner, tmp_path / "encoder")
    images = small_stream(5, seed=2)
    np.testing.assert_array_equal(load(tmp_path / "encoder").transform(images), learner.transform(images))
    for name, weight in sums(strategy).items():
        torch.testing.assert_close(network.get_parameter(name).double(), weight, rtol=1e-5, atol=1e-6)
    assert type(learner.network) is Transformer
    strategy.remix(0.0)
    for one, other in zip(learner.network.parameters(), strategy.original.network.backbone.parameters(), strict=True):
        assert torch.equal(one, other)


def test_saved_and_resumed_to_the_bit(tmp_path: Path) -> None:
    learner, _ = adapting(heads_first=3)
    learner.partial_fit(small_stream(22)).save(tmp_path)
    again = Learner.load(tmp_path)
    _assert_same(learner, again, "loaded")
    rest = small_stream(30, seed=1)
    _assert_same(learner.partial_fit(rest), again.partial_fit(rest), "trained on")


def test_the_cost_is_that_of_training_everything() -> None:
    spent = [adapting(train=train)[0].partial_fit(small_stream(40)).budget.spent for train in ("all", "lora:1")]
    assert spent[0] == spent[1] > 0


def test_heads_learn_first_and_rates_fall_from_block_to_block() -> None:
    learner, strategy = adapting(heads_first=4, passes=1, layer_decay=0.5, backbone="linear")
    assert strategy.low_rank is not None
    start = [factor.detach().clone() for factor in strategy.low_rank.parameters()]
    learner.partial_fit(small_stream(16))
    assert all(map(torch.equal, start, strategy.low_rank.parameters()))
    learner.partial_fit(small_stream(8, seed=1))
    groups = strategy.groups(learner.train_state.encoder)
    assert [float(group.share) for group in groups] == [0.5, 1.0]
    assert groups[0].parameters == [strategy.low_rank.down[0], strategy.low_rank.up[0]]
    assert not any(map(torch.equal, start, strategy.low_rank.parameters()))


def test_layers_that_are_frozen_stay_so() -> None:
    network = Transformer()
    network.layer.linear1.requires_grad_(False)
    assert set(LowRank(network, 4).names) == LINEAR - {"layer.linear1.weight"}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"backbone": "convnet-w4"}, "train='lora:2' trains nothing: the backbone has no linear layer; use 'all', "),
        ({"train": "lora:9"}, "train='lora:9' is too much: no linear layer of the backbone has a rank above 8; use "),
        ({"train": "lora:0"}, "train must be 'all', 'norms', 'last:N' or 'lora:N' with N of at least 1, not 'lora:0'"),
        ({"train": "lora"}, "train must be 'all', 'norms', 'last:N' or 'lora:N' with N of at least 1, not 'lora'"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        adapting(**settings)
