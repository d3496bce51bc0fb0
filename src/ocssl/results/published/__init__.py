"""The paper's tables, numbers and hyperparameters, and how its rows are named and drawn."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml


@cache
def read_yaml(name: Literal["names", "tables"]) -> dict[str, Any]:
    """The content of ``names.yaml`` or ``tables.yaml``."""
    content: dict[str, Any] = yaml.safe_load((resources.files(__name__) / f"{name}.yaml").read_text(encoding="utf-8"))
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
def hyperparameters(
    budget: str | None, row: str, method: str | None, dataset: str, batch: int | None = None, passes: int | None = None
) -> dict[str, str]:
    """The paper's b, n_p, lr and ω of a strategy, as text; empty where the paper has none.

    The low budget has two lines for i.i.d. training: b and n_p choose one, by default the larger b.

    Args:
        row: see :func:`ocssl.results.names.row_name`.
        method: the objective; None where the strategy has its own.

    >>> hyperparameters("low", "iid", "simsiam", "cifar100", passes=3)["b"]
    '10'
    """
    wanted = {"budget": budget, "method": row, "ssl": method or "-", "dataset": dataset}
    lines = [
        line for line in read_csv("hyperparameters") if all(line[column] == text for column, text in wanted.items())
    ]
    fitting = [line for line in lines if batch in (None, int(line["b"])) and passes in (None, int(line["n_p"]))]
    return max(fitting or lines, key=lambda line: int(line["b"]), default={})
