"""A learner's weights after some minibatches are those of a slow loop that does what the paper says."""

from __future__ import annotations

import pytest
import torch
from plain import AVERAGED, REPLAYS, Plain, watch

from ocssl.checks import small_learner, small_stream

WAYS = {  # of passing the views: settings of a learner, and what they mean
    "together": ({"joint_views": True}, {"alone": False, "together": False}),
    "each alone": ({"joint_views": False}, {"alone": True, "together": False}),
    "the authors'": ({"variant": "authors"}, {"alone": True, "together": True}),
}
STRATEGIES = ["finetune", "er", "cla-b", "cla-e", "cla-r", "cassle", "cassle-r"]
CASES = [
    *((strategy, "simsiam", way) for strategy in STRATEGIES for way in WAYS),
    *((strategy, "simclr", "together") for strategy in ("finetune", "er", "cla-e", "cla-r")),
]


@pytest.mark.parametrize(("strategy", "method", "way"), CASES)
def test_weights_follow_the_paper_step_by_step(strategy: str, method: str, way: str) -> None:
    settings, meaning = WAYS[way]
    # All train on batches of twelve: in smaller ones batch norm magnifies the last bit a hundred million times.
    sizes = {"memory": "fifo", "batch": 12} if strategy in REPLAYS else {"stream_batch": 12, "batch": 12}
    decay = {"tau": 0.9} if strategy in AVERAGED else {}
    learner = small_learner(strategy, method=method, precision="fp64", **decay, **sizes, **settings)
    plain, draws = Plain(learner, **meaning), watch(learner)
    experiences = small_stream(24, seed=1), small_stream(12, seed=2)  # 20 are kept, so the oldest go
    for images in experiences:
        for minibatch in images.split(learner.stream_batch):
            learner.partial_fit(minibatch)
        learner.boundary()
    recorded = iter(draws)
    for images in experiences:
        for minibatch in images.split(learner.stream_batch):
            plain.fit(minibatch, recorded)
        plain.border()
    assert not [*recorded], "as many passes as the learner made"

    train_state = learner.train_state
    pairs = [(train_state.encoder.backbone, plain.network[0]), (train_state.encoder.projector, plain.network[1])]
    pairs += [(train_state.strategy.method.predictor, plain.predictor)] if method == "simsiam" else []
    if plain.aligner is not None:
        pairs.append((train_state.strategy.aligner, plain.aligner))
    if plain.teacher is not None:
        teacher = train_state.strategy.target.network
        pairs += [(teacher.backbone, plain.teacher[0]), (teacher.projector, plain.teacher[1])]
    for ours, theirs in pairs:
        expected = theirs.state_dict()
        for name, value in ours.state_dict().items():
            torch.testing.assert_close(value, expected[name], rtol=1e-6, atol=1e-8, msg=f"{name}: {{}}".format)
    if strategy == "cla-r":
        expected = torch.stack([plain.features[slot] for slot in range(learner.memory_size)])
        torch.testing.assert_close(train_state.memory.columns["features"][: learner.memory_size], expected)
