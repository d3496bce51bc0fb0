"""Small crops besides the views, and what they cost."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from helpers.command import SHORT
from ocssl import methods
from ocssl.checks import check_method, check_strategy, small_learner, small_stream
from ocssl.cli import main
from ocssl.config import parse_learner
from ocssl.errors import ConfigError
from ocssl.losses import between_views, negative_cosine
from ocssl.methods import MultiCrop, SimSiam
from ocssl.runs.presets import is_papers_budget, resolve
from ocssl.runs.run import start


class Small(MultiCrop, SimSiam):
    class Options(MultiCrop.Options, SimSiam.Options):
        pass

    def loss(self, step):
        small = step.small.through(self.predictor)
        return super().loss(step) + negative_cosine(small, step.features.projected.mean(0))


class Ignoring(Small):
    def loss(self, step):
        return between_views(negative_cosine, step.features.through(self.predictor), step.features.projected)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(methods.registry._entries, "small", Small)
    monkeypatch.setitem(methods.registry._entries, "ignoring", Ignoring)


def test_the_contracts_hold() -> None:
    check_strategy("er", method="small", small_side=0.4, small_views=3)  # 3 of 8 pixels: no whole number of passes


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize(("side", "crops"), [(0.5, 4), (0.4, 3), (1.0, 2)])
def test_a_step_costs_the_pixels_that_passed(side: float, crops: int, joint: bool) -> None:
    learner = small_learner(
        "finetune", method="small", small_side=side, small_views=crops, joint_views=joint, stream_batch=5, batch=5
    )
    pixels: list[int] = []

    def passed(network: nn.Module, inputs: tuple[torch.Tensor]) -> None:
        pixels.append(inputs[0][:, 0].numel())

    learner.train_state.encoder.backbone.register_forward_pre_hook(passed)
    learner.partial_fit(small_stream(5))
    steps = learner.budget.steps
    assert learner.budget.spent == steps * math.ceil(sum(pixels) / steps / 64)
    assert learner.budget.spent == steps * learner.config.step_cost()


def test_a_budget_has_smaller_batches_with_small_crops() -> None:
    config = resolve({"strategy": "er", "method": "small", "budget": "high"})
    assert config.learner.cost() == 3
    assert (config.learner.batch, config.learner.passes) == (2 * 138 // 3, 3)
    assert is_papers_budget(config)
    more = resolve({"strategy": "er", "method": "small", "budget": "high", "small_views": 8})
    assert more.learner.step_cost() <= 2 * 138
    assert more.learner.batch < config.learner.batch


def test_the_calculator_says_what_a_run_spends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    crops = {"method": "small", "image_size": 8, "small_side": 0.4, "small_views": 3}  # 2.42 passes of each image
    own = {"strategy": "finetune", "batch": 8, "passes": 3, "evaluate": "final", "references": False}
    plain = {name: value for name, value in SHORT.items() if name != "memory_size"}
    run = start(resolve(plain | own | crops), tmp_path / "run")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in crops.items()]
    for more in ("--batch=8", f"--cbp={run.cbp_spent}"):
        asked = ["budget", f"--samples={run.samples}", "--stream-batch=8", "--passes=3", more, *flags]
        monkeypatch.setattr(sys, "argv", ["ocssl", *asked])
        with pytest.raises(SystemExit):
            main()
        passes, batch, _, _, cbp, _ = capsys.readouterr().out.splitlines()[1].split()
        assert (passes, batch, cbp) == ("3", "8", f"{run.cbp_spent:,}")


def test_a_loss_that_ignores_small_crops_is_caught() -> None:
    with pytest.raises((AssertionError, RuntimeError), match=r"small crops|not have been used"):
        check_method("ignoring")


@pytest.mark.parametrize("strategy", ["lump", "pocon", "adapt"])
def test_strategies_with_views_or_passes_of_their_own_are_refused(strategy: str) -> None:
    with pytest.raises(ConfigError, match=f"strategy '{strategy}' makes views or passes of its own"):
        small_learner(strategy, method="small")


def test_a_backbone_of_one_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="the backbone cannot take small crops of 4×4"):
        small_learner("er", method="small", backbone=nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 8)))


def test_areas_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ConfigError, match="small_scale must be two numbers"):
        parse_learner({"method": "small", "small_scale": (0.4, 0.05)})
