"""What the paper's whole grid costs on Split CIFAR-100: its tuning, and three seeds of every cell of its tables.

    python benchmarks/grid_cost.py           # on 1, 8 and 64 GPUs like the one that was measured

Counts come from the paper's tables and from the shipped sweep files; steps from what ``benchmarks/gpu.py`` measured, in
``benchmarks/measured``, compiled where that was measured. A run is taken as ``steps x milliseconds + a constant``; the
constant (start-up and evaluation) is what is left of a whole run that was measured.
"""

from __future__ import annotations

import argparse
import heapq
import json
from collections.abc import Iterable
from pathlib import Path

from ocssl.results.published import read_csv
from ocssl.sweeps.plan import read_sweep

MEASURED = Path(__file__).parent / "measured"
SEEDS = 3  # of every cell; the paper reports their mean
MINIBATCHES = 4500  # of ten images: the stream of CIFAR-100 less the tenth that is held out
STRATEGIES = {"er-reservoir": "er", "er-fifo": "er", "iid": "finetune"}  # rows of the tables that are called otherwise
WARM_RUN = 111.6  # seconds of a whole CLA-E run at the high budget, measured


def measured() -> dict[tuple[str, int], float]:
    """Milliseconds of a step by strategy and b."""
    steps: dict[tuple[str, int], float] = {}
    for name in ("gpu-graph.json", "gpu-compiled.json"):  # what was compiled replaces what was not
        for row in json.loads((MEASURED / name).read_text())["rows"]:
            steps[row["strategy"], row["batch"]] = row["step_ms"]
    return steps


STEPS = measured()
CONSTANT = WARM_RUN - 3 * MINIBATCHES * STEPS["cla-e", 138] / 1000


def seconds(row: dict[str, str]) -> float:
    """How long one run of a row of the paper's tables takes; SimCLR is taken to cost what SimSiam does."""
    step = STEPS[STRATEGIES.get(row["method"], row["method"]), int(row["b"])]
    return CONSTANT + MINIBATCHES * int(row["n_p"]) * step / 1000


def runs(budget: str) -> tuple[list[float], list[float]]:
    """The seconds of every run of a budget: those that tune, and those that fill the tables."""
    tuning, tables = [], []
    for row in read_csv("hyperparameters"):
        if (row["dataset"], row["budget"]) == ("cifar100", budget):
            grid = read_sweep("paper-tuning" if row["omega"] else "paper-tuning-lr").listed()
            tuning += [seconds(row)] * len(grid)
            tables += [seconds(row)] * SEEDS
    return tuning, tables


def makespan(durations: Iterable[float], gpus: int) -> float:
    """Seconds until all runs are over, the longest first, each on the GPU that is free first.

    >>> makespan([3.0, 3.0, 2.0, 2.0, 2.0], gpus=2)
    7.0
    """
    ends = [0.0] * gpus
    for duration in sorted(durations, reverse=True):
        heapq.heapreplace(ends, ends[0] + duration)
    return max(ends)


def lines(gpus: tuple[int, ...]) -> list[str]:
    """The table, as docs/scaling.md has it."""
    parts: dict[str, list[float]] = {}
    for budget in ("high", "low"):
        parts[f"tuning, {budget} CBP"], parts[f"tables, {budget} CBP"] = runs(budget)
    parts["everything"] = [duration for part in parts.values() for duration in part]
    titles = [f"{count} GPU{'s' if count > 1 else ''}" for count in gpus]
    head = ["| | runs | GPU hours | " + " | ".join(titles) + " |", "|---|---|---|" + "---|" * len(gpus)]
    return head + [
        f"| {name} | {len(part)} | {sum(part) / 3600:.1f} | "
        + " | ".join(_clock(makespan(part, count)) for count in gpus)
        + " |"
        for name, part in parts.items()
    ]


def _clock(duration: float) -> str:
    minutes = round(duration / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 8, 64])
    options = parser.parse_args()
    print(f"constant {CONSTANT:.0f} s\n")
    print("\n".join(lines(tuple(options.gpus))))


if __name__ == "__main__":
    main()
