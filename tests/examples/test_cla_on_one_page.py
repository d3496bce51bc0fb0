"""The example in plain PyTorch ends with the weights of the learner."""

from __future__ import annotations

import copy
import runpy
from pathlib import Path

import torch
from torch import nn

from ocssl.checks import small_learner, small_stream

PAGE = Path(__file__).parents[2] / "examples" / "cla_on_one_page.py"


def test_it_ends_with_the_weights_of_the_learner() -> None:
    learner = small_learner("cla-e", memory_size=20, precision="fp64", tau=0.9, joint_views=True)
    state, config = learner.train_state, learner.config
    encoder = nn.Sequential(*copy.deepcopy([state.encoder.backbone, state.encoder.projector]))
    predictor, aligner = copy.deepcopy((state.strategy.method.predictor, state.strategy.aligner))
    generator = torch.Generator().set_state(state.generator.get_state())
    stream = small_stream(60)  # three times the memory

    names = ("stream_batch", "batch", "passes", "memory_size", "lr", "omega", "tau")
    settings = {name: getattr(config, name) for name in names}
    train = runpy.run_path(str(PAGE))["train"]
    teacher = train(stream, encoder, predictor, aligner, state.augment, generator, **settings)
    learner.partial_fit(stream)

    assert torch.equal(generator.get_state(), state.generator.get_state())
    target = state.strategy.target.network
    for ours, plain in (
        (state.encoder.backbone, encoder[0]),
        (state.encoder.projector, encoder[1]),
        (state.strategy.method.predictor, predictor),
        (state.strategy.aligner, aligner),
        (target.backbone, teacher[0]),
        (target.projector, teacher[1]),
    ):
        expected = plain.state_dict()
        for name, value in ours.state_dict().items():
            torch.testing.assert_close(value, expected[name], rtol=1e-6, atol=1e-8, msg=f"{name}: {{}}".format)


def test_it_fits_on_a_page() -> None:
    assert len(PAGE.read_text().splitlines()) <= 150
