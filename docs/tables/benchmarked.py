"""Tables of what the scripts in benchmarks/ measured, from their JSON files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from ocssl.results.table import Value

ADAPTED = {
    "cars": "Photographs of 98 makes of cars, EfficientNet-Lite0 at 128 pixels",
    "photos": "Photographs of 100 classes of objects, EfficientNet-Lite0 at 224 pixels",
    "svhn": "House numbers (SVHN), ResNet-18 of ours at 32 pixels",
}
ADAPTATIONS = {
    "frozen": "the network as given",
    "fifo 0 1": "without mixture",
    "fifo 0 0.75": "`adapt`",
    "gated": "`adapt`, the mixture chosen by the gate",
    "fifo 0.3 0.75": "aligned, ω 0.3",
    "fifo 1 0.75": "aligned, ω 1",
    "anchored 0 0.75": "memory `anchored`",
    "anchored 0.3 0.75": "memory `anchored`, aligned, ω 0.3",
    "anchored 1 0.75": "memory `anchored`, aligned, ω 1",
    "ruined": "the rate of the heads for all weights, no mixture",
}
"""Rows of the tables of adapting: arms, or memory, ω and share of what was learned."""
CHOICE = {"choice": "stream", "choice_reference": "elsewhere"}


def adaptations(folder: Path, part: str) -> dict[str, dict[int, dict[str, float]]]:
    """Numbers of the encoders of a part of ``benchmarks/adapt.py`` at its usual rate, by row and seed."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for file in sorted(folder.glob("*.json")):
        run = json.loads(file.read_text())
        asked, config = run["asked"], run["config"]
        if asked["part"] != part or "backbone_lr" in asked["set"]:
            continue
        for name, numbers in run["encoders"].items():
            row = f"{config['memory']} {config['omega']:g} {name.rpartition(' ')[2]}"
            if asked["arm"] in ("frozen", "gated", "ruined"):
                row = asked["arm"]
            found.setdefault(row, {}).setdefault(asked["seed"], numbers)
    return found


def adapted(folder: Path) -> Iterator[str]:
    """A table for each part of ``benchmarks/adapt.py``, from its JSON files."""
    for part, title in ADAPTED.items():
        found = adaptations(folder, part)
        yield f"**{title}**\n\n| | seeds | k-NN | linear probe | elsewhere |\n|---|--:|--:|--:|--:|"
        for row, label in ADAPTATIONS.items():
            if row in found:
                seeds = found[row]
                cells = [
                    Value.over({seed: numbers[kind] for seed, numbers in seeds.items()}, digits=1).with_std()
                    for kind in ("knn", "linear", "reference")
                ]
                yield f"| {label} | {len(seeds)} | {' | '.join(cells)} |"
        yield ""


def choices(folder: Path) -> Iterator[str]:
    """The numbers by which ω and the mixture of ``adapt`` were chosen: what each combination adds to the start."""
    streams = {"cars": ("fifo", adaptations(folder, "cars")), "svhn": ("anchored", adaptations(folder, "svhn"))}
    titles = [f"{part}, {title}" for part in streams for title in CHOICE.values()]
    yield f"| ω | α | {' | '.join(titles)} |\n|--:|--:|{'--:|' * len(titles)}"
    for omega, share in product(("0", "0.3", "1"), ("1", "0.75", "0.5", "0.25")):
        gains = [
            {seed: numbers[kind] - found["frozen"][seed][kind] for seed, numbers in rows.items()}
            for memory, found in streams.values()
            for rows in (found[f"{memory} {omega} {share}"],)
            for kind in CHOICE
        ]
        cells = [Value.over(gain, digits=1, signed=True).with_std() for gain in gains]
        yield f"| {omega} | {share} | {' | '.join(cells)} |"


def steps(file: Path) -> Iterator[str]:
    """A step of ``multiview-r`` beside a bare one, from the JSON file of ``benchmarks/gpu.py``."""
    yield "| budget | views × images | ours, ms | bare, ms | ratio |\n|---|---|--:|--:|--:|"
    for budget, row in zip(("high", "middle", "low"), json.loads(file.read_text())["rows"], strict=True):
        times = f"{row['step_ms']:.2f} | {row['bare_ms']:.2f} | {row['ratio']:.3f}"
        yield f"| {budget} | {row['views']} × {row['batch']} | {times} |"
