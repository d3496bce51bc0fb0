"""Defaults that depend on the strategy and the batch: those of the paper's budgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from ocssl.config import parse_learner
from ocssl.results.published import choose_line, hyperparameter_lines
from ocssl.results.tuned import read_tuned
from ocssl.runs.presets import resolve

ROWS = ("cassle", "cassle-r", "finetune", "lump", "er", "minred", "cla-r", "cla-e", "scale", "osiris-r")


@pytest.mark.parametrize("strategy", ROWS)
def test_the_learning_rate_is_the_one_tuned_for_the_strategy_and_the_size_of_its_batches(strategy: str) -> None:
    row = "er-fifo" if strategy == "er" else strategy
    method = None if strategy in ("scale", "osiris-r") else "simsiam"
    lines = (hyperparameter_lines(budget, row, method, "cifar100") for budget in ("low", "high"))
    low, high = (choose_line(of_budget, batch=None, passes=None) for of_budget in lines)
    assert low
    for paper in filter(None, (low, high)):  # the paper has no high budget for those that train on the stream alone
        config = parse_learner({"strategy": strategy, "batch": int(paper["b"])})
        assert config.to_dict()["lr"] == float(paper["lr"]), paper["b"]


def test_cla_b_has_what_our_own_sweep_chose() -> None:
    _, tuned = read_tuned(Path(__file__).parents[1] / "results" / "tuned" / "views@cifar100@clean.yaml")
    config = parse_learner({"strategy": "cla-b"})
    assert (config.batch, config.joint_views) == (10, False)  # as in the sweep
    assert {name: config.to_dict()[name] for name in ("lr", "omega")} == tuned["cla-b"]


@pytest.mark.parametrize(
    ("given", "joint"),
    [
        ({"strategy": "finetune"}, False),
        ({"strategy": "er", "batch": 32}, False),
        ({"strategy": "er", "batch": 33}, True),
        ({"strategy": "cla-e"}, True),
        ({"strategy": "finetune", "stream_batch": 1, "batch": 1}, True),  # batch norm needs two rows
        ({"strategy": "finetune", "joint_views": True}, True),
        ({"strategy": "cla-e", "variant": "authors"}, False),
    ],
)
def test_views_pass_alone_where_batches_are_small(given: dict[str, object], joint: bool) -> None:
    assert parse_learner(given).joint_views is joint


def test_the_runs_of_our_tables_have_the_views_together() -> None:
    for budget in ("low", "high"):
        assert resolve({"strategy": "cla-e", "budget": budget}).learner.joint_views
        assert not resolve({"strategy": "cla-e", "budget": budget, "protocol": "authors"}).learner.joint_views


def lr_of(**given: object) -> object:
    return parse_learner(given).to_dict()["lr"]


def test_defaults_for_other_parts_count_with_the_part_that_they_are_for() -> None:
    assert lr_of(strategy="cla-e", batch=138) == 0.3
    assert lr_of(strategy="cla-e", batch=138, optimizer="adamw") == lr_of(strategy="er", optimizer="adamw") != 0.3
    assert lr_of(strategy="cla-e", batch=138, method="barlow") == 0.01  # the method's before the strategy's
    assert lr_of(strategy="multiview-r", optimizer="sgd") == 0.3  # from CLA-R, its base
    for method in ("simsiam", "emp"):  # none is named, so any will do
        assert parse_learner({"strategy": "cmp", "method": method}).to_dict()["views"] == 8
    views = {
        method: parse_learner({"strategy": "multiview-r", "method": method}).to_dict()["views"]
        for method in ("emp", "simsiam")
    }
    assert views == {"emp": 8, "simsiam": 2}  # one is named
