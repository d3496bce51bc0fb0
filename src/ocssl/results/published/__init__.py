"""The paper's tables, numbers and hyperparameters, and how its rows are named and drawn."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml


@cache
def read_yaml(name: Literal["names", "tables"]) -> dict[str, Any]:
    """The content of ``names.yaml`` or ``tables.yaml``."""
    text = (resources.files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # ten times faster in C
    return content


@cache
def read_csv(name: Literal["results", "hyperparameters"]) -> tuple[dict[str, str], ...]:
    """The lines of a file, each a mapping from column to text; empty where the paper prints nothing.

    >>> read_csv("hyperparameters")[0]["lr"]
    '0.1'
    """
    text = (resources.files(__name__) / f"{name}.csv").read_text()
    return tuple(csv.DictReader(text.splitlines()))


@cache
def published_results() -> dict[tuple[str, ...], dict[str, str]]:
    """The lines of ``results.csv`` by table, objective, b, n_p, row and data set.

    >>> published_results()["main", "simsiam", "138", "3", "cla-e", "cifar100"]["final"]
    '43.1'
    """
    names = ("table", "ssl", "b", "n_p", "method", "dataset")
    return {tuple(line[name] for name in names): line for line in read_csv("results")}


@cache
def hyperparameter_lines(budget: str | None, row: str, method: str | None, dataset: str) -> tuple[dict[str, str], ...]:
    """The lines of ``hyperparameters.csv`` for a row's name; the low budget has two for i.i.d. training."""
    wanted = {"budget": budget, "method": row, "ssl": method or "-", "dataset": dataset}
    lines = read_csv("hyperparameters")
    return tuple(line for line in lines if all(line[column] == text for column, text in wanted.items()))


def choose_line(lines: Sequence[dict[str, str]], batch: int | None, passes: int | None) -> dict[str, str]:
    """The line with these b and n_p, where they are given and there is one; of several the one with the largest b.

    >>> choose_line(hyperparameter_lines("low", "iid", "simsiam", "cifar100"), batch=None, passes=3)["b"]
    '10'
    """
    fitting = [line for line in lines if batch in (None, int(line["b"])) and passes in (None, int(line["n_p"]))]
    return max(fitting or lines, key=lambda line: int(line["b"]), default={})
