"""Result files: a published one with other numbers and settings, and the rows that a folder of them fills."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ocssl.results import Row, find_table, read_result, read_results, sections_of
from ocssl.runs.config import RunConfig
from ocssl.runs.naming import names_of
from ocssl.runs.presets import resolve

PUBLISHED = Path(__file__).parents[2] / "results"
CLA_E = PUBLISHED / "cifar100-simsiam-cla-e-fifo-high-clean-seed0.json"
SETTINGS = {"dataset": "cifar100", "method": "simsiam", "strategy": "cla-e", "budget": "high", "execution": "compiled"}


def named(config: RunConfig) -> dict[str, Any]:
    """What a result says of its configuration."""
    return names_of(config) | {"config": config.to_dict()}


def content(*, final: float = 50.0, avg: float = 43.0, seed: int = 0, **settings: Any) -> dict[str, Any]:
    """CLA-E on CIFAR-100 at the high budget, but for these numbers and settings."""
    found = read_result(CLA_E).model_dump(mode="json")
    config = resolve(SETTINGS | {"seed": seed} | settings)
    steps = len(found["curve"])
    curve = [*[(steps * avg - final) / (steps - 1)] * (steps - 1), final]
    return found | named(config) | {"final": final, "avg": avg, "curve": curve, "dataset": config.dataset}


def put(folder: Path, name: str, found: dict[str, Any]) -> Path:
    """Write a result into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(found))
    return path


def smoke_rows(results: Path) -> dict[str, Row]:
    """The rows of the table ``smoke`` under the clean protocol, by name."""
    found = sections_of(read_results(results), find_table("smoke"))
    return {row.name: row for section in found if section.protocol == "clean" for row in section.rows}
