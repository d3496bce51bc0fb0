"""Made-up results that look like real ones: every row of the paper's main tables, three seeds, both protocols.

Test data only. Accuracies are the paper's plus noise from a fixed seed (and some points more under the clean protocol),
so that tables have an order, curves a shape and differences both signs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy

from helpers.results import named
from ocssl.results import Result
from ocssl.results.published import read_csv
from ocssl.runs.config import RunConfig, parse
from ocssl.runs.presets import resolve

STREAM = {"cifar100": 45_000, "imagenet100": 115_000}
EXPERIENCES = 20
LIFT = {"clean": 7.0, "authors": -0.6}
SLOWNESS = {"scale": 1.35, "cla-e": 1.12, "minred": 1.05}


def main_rows() -> Iterator[dict[str, str]]:
    """The paper's main tables, but for the untrained encoder, which no run is of."""
    return (row for row in read_csv("results") if row["table"] == "main" and row["method"] != "random")


def results(
    protocols: tuple[str, ...] = ("clean", "authors"),
    seeds: tuple[int, ...] = (0, 1, 2),
    budgets: tuple[str, ...] = ("high", "low"),
) -> Iterator[Result]:
    """One result for each row, protocol and seed."""
    for row in main_rows():
        if row["dataset"] == "cifar100" and row["budget"] in budgets:
            for protocol in protocols:
                for seed in seeds:
                    yield one(row, protocol, seed)


def write(folder: Path, found: Iterator[Result]) -> Path:
    """Put results into a folder, each in a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for result in found:
        (folder / f"{result.name}.json").write_text(result.to_json())
    return folder


def one(row: dict[str, str], protocol: str, seed: int) -> Result:
    """What a run of this row might have ended with."""
    config = _config(row, protocol, seed)
    samples = STREAM[row["dataset"]]
    draw = numpy.random.default_rng([seed, sum(map(ord, "".join(row.values()) + protocol))])
    final = float(row["final"]) + LIFT[protocol] * (row["budget"] == "high") + float(draw.normal(0, 0.35))
    iid = row["method"] == "iid"
    planned = 2 * samples * int(row["n_p"]) * int(row["b"]) // 10
    samples = planned // 2 if iid else samples
    borders = [samples] if iid else [samples * (index + 1) // EXPERIENCES for index in range(EXPERIENCES)]
    curve = [round(final, 2)] if iid else _curve(final, float(row["avg"]), draw)
    seconds = planned / 42_000 * SLOWNESS.get(row["method"], 1.0) * float(draw.uniform(0.97, 1.03)) + 11
    found = {
        **named(config),
        "dataset": row["dataset"],
        "budget": row["budget"],
        "final": curve[-1],
        "avg": None if iid else sum(curve) / len(curve),
        "curve": curve,
        "cbp_planned": planned,
        "cbp_spent": planned if iid else planned - _warm_up(int(row["b"]) - 10, int(row["n_p"])),
        "train_seconds": seconds,
        "eval_seconds": 15.0,
        "knn": None,
        "matrix": [],
        "forgetting": None,
        "references": {"untrained": 15.2 + 0.2 * seed, "pixels": 18.04},
        "borders": borders,
        "experiences": [[index] for index in range(EXPERIENCES)],
        "samples": samples,
        "fingerprint": "synthetic",
        "warnings": [],
        "versions": {"ocssl": "0.1.0", "python": "3.12.3", "torch": "2.11.0"},
        "hardware": {"system": "Linux", "cpu": "made up", "cores": 16, "device": "cuda", "gpu": "Imaginary GPU"},
        "code": "test data, not a run",
        "started": "2026-01-01T00:00:00+00:00",
        "finished": f"2026-01-01T00:{10 + seed:02d}:00+00:00",
    }
    return Result.model_validate(found)


def again(base: Result, final: float | None = None, changes: dict[str, Any] | None = None, **settings: Any) -> Result:
    """A run like another, with some settings changed, whose curve ends with `final`; `changes` are of the result."""
    curve = base.curve if final is None else [*base.curve[:-1], final]
    numbers = {"final": curve[-1], "avg": sum(curve) / len(curve), "curve": curve}
    found = named(parse(base.config | settings))
    return Result.model_validate(base.model_dump() | numbers | found | (changes or {}))


def _warm_up(replayed: int, passes: int) -> int:
    """What is not spent because replay begins only once the memory holds more than a step replays."""
    return 2 * replayed * passes * (replayed // 10 + 1)


def _config(row: dict[str, str], protocol: str, seed: int) -> RunConfig:
    strategy, _, memory = row["method"].partition("-") if row["method"].startswith("er-") else (row["method"], "", "")
    given: dict[str, Any] = {name: row[name] for name in ("dataset", "budget")} | {"protocol": protocol, "seed": seed}
    given |= {"batch": int(row["b"])} | ({"stream": "iid"} if strategy == "iid" else {"strategy": strategy})
    given |= {"memory": memory} if memory else {}
    given |= {"method": row["ssl"]} if row["ssl"] != "-" else {}
    return resolve(given)


def _curve(final: float, average: float, draw: numpy.random.Generator) -> list[float]:
    """Rises from the untrained encoder and levels off; steeper the closer the average lies to the end."""
    steepness = 2.0 + 12.0 * max(0.0, average / final - 0.75)
    along = numpy.linspace(1, EXPERIENCES, EXPERIENCES) / EXPERIENCES
    rise = (1 - numpy.exp(-steepness * along)) / (1 - numpy.exp(-steepness))
    curve = 15.4 + (final - 15.4) * rise + draw.normal(0, 0.3, EXPERIENCES)
    curve[-1] = final
    return [round(float(value), 2) for value in curve]
