"""The paper's published numbers and hyperparameters, as printed there."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources


@cache
def table(name: str) -> tuple[dict[str, str], ...]:
    """The rows of ``hyperparameters`` or ``results``, each a mapping from column to text; empty where the paper is.

    >>> table("hyperparameters")[0]["lr"]
    '0.1'
    """
    text = (resources.files(__name__) / f"{name}.csv").read_text()
    return tuple(csv.DictReader(text.splitlines()))
