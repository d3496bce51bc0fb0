"""Choices that variants make by default, as docs/variants.md lists them; tests of a choice name it."""

from __future__ import annotations

import pytest

from ocssl.config import parse_learner

CHOICES = [
    ("scale", "authors", {"anchors": "replay", "teacher_update": "pass", "own_pair": "lowered", "past_head": "shared"}),
    ("scale", "original", {"anchors": "stream", "teacher_update": "minibatch", "own_pair": "lowered"}),
    ("osiris-r", "authors", {"head": "frozen", "repeat_updates": 2, "separate_heads": True}),
    ("osiris-r", "original", {"head": "copied", "repeat_updates": 1, "plain_heads": True, "late_replay": True}),
    ("cassle", "authors", {"joint_target": True, "from_start": True, "distance": "cosine"}),
    ("cassle-r", "authors", {"joint_target": True, "from_start": True, "distance": "cosine"}),
    ("cassle", "original", {"joint_target": False, "from_start": False, "distance": "original", "aligner_dim": 2048}),
    ("cla-e", "authors", {"joint_target": True, "joint_views": False}),
]


@pytest.mark.parametrize(("strategy", "variant", "chosen"), CHOICES)
def test_a_variant_makes_its_choices_by_default(strategy, variant, chosen):
    config = parse_learner({"strategy": strategy, "variant": variant}).model_dump()
    assert {name: config[name] for name in chosen} == chosen
