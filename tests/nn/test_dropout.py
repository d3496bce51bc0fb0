"""Dropout whose masks come from the learner's generator."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ocssl import Learner, methods
from ocssl.checks import check_strategy, small_learner, small_stream
from ocssl.errors import ConfigError
from ocssl.methods import SimSiam
from ocssl.nn import Dropout
from ocssl.nn.dropout import drawing_from


@pytest.mark.parametrize("whole_samples", [False, True])
def test_it_zeroes_a_share_and_keeps_the_mean(whole_samples: bool) -> None:
    layer, x = Dropout(0.25, whole_samples=whole_samples), torch.rand(4000, 2, 3) + 1
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    with drawing_from(generators[0]):
        first, second = layer(x), layer(x)
    with drawing_from(generators[1]):
        assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)
    kept = first != 0
    torch.testing.assert_close(first[kept], x[kept] / 0.75)
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.02)
    assert bool((kept == kept[:, :1, :1]).all()) is whole_samples


def test_it_leaves_torchs_own_generator_alone() -> None:
    before = torch.random.get_rng_state()
    with drawing_from(torch.Generator()):
        Dropout(0.5)(torch.ones(8))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_it_is_the_identity_in_evaluation_and_without_a_share() -> None:
    x = torch.rand(3, 2)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_it_is_refused_where_nothing_is_saved() -> None:
    with pytest.raises(ConfigError, match=r"call eval\(\) on the network"):
        Dropout(0.5)(torch.ones(2))
    with pytest.raises(ConfigError, match="below 1, not 1"):
        Dropout(1)


class Network(nn.Sequential):
    def __init__(self, options, image_size: int) -> None:
        conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        super().__init__(conv, nn.BatchNorm2d(8), nn.ReLU(), Dropout(0.2), nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Projected(SimSiam):
    def projector(self) -> nn.Module:
        return nn.Sequential(super().projector(), Dropout(0.1))


def test_a_projector_with_dropout_fulfils_the_contracts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods.registry._entries, "dropping", Projected)
    check_strategy("minred", method="dropping", variant="authors")  # features of new samples in training mode


def test_a_backbone_with_dropout_goes_on_after_saving(tmp_path) -> None:
    def build(network: nn.Module) -> Learner:
        return small_learner("cla-e", backbone=network)

    def network() -> nn.Module:
        torch.manual_seed(0)
        return Network(None, 8)

    stream = small_stream(32)
    whole, stopped = build(network()).partial_fit(stream), build(network()).partial_fit(stream[:16])
    stopped.save(tmp_path)
    resumed = Learner.load(tmp_path, backbone=network()).partial_fit(stream[16:])
    for name, tensor in whole.train_state.state_dict().items():
        assert torch.equal(tensor, resumed.train_state.state_dict()[name]), name
