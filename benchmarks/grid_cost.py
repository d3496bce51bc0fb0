"""What the paper's whole grid costs on Split CIFAR-100: its tuning, and three seeds of every cell of its tables.

    python benchmarks/grid_cost.py           # on 1, 8 and 64 GPUs like the one that was measured

Counts come from the paper's tables and from the shipped sweep files; times from what docs/performance.md and README.md
say was measured on one H200. A run is taken as ``steps x milliseconds + a constant``; the constant (start-up and
evaluation) is what is left of a measured run. What was not measured is an estimate and marked as such below.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Iterable

from ocssl.experiments.paper import table
from ocssl.sweeps.plan import read_sweep

SEEDS = 3  # of every cell; the paper reports their mean
MINIBATCHES = 4500  # of ten images: the stream of CIFAR-100 less the tenth that is held out

MEASURED = {"er-reservoir": 4.48, "er-fifo": 4.48, "cla-e": 5.99, "cla-r": 6.19, "scale": 8.23, "minred": 6.48}
"""Milliseconds of a step at b = 138, with SimSiam where there is a choice; SimCLR is taken to cost the same."""
ESTIMATED = {"iid": 4.48, "cassle-r": 5.99, "osiris-r": 8.23}
"""Not measured: ER's step without its memory, CLA-E's with another teacher, and the slowest that was measured."""
WARM_HIGH_RUN = 124.0  # seconds of a whole CLA-E run at the high budget, measured
WARM_LOW_RUN = 49.0  # and at the low budget, b = 30, measured
CONSTANT = WARM_HIGH_RUN - 3 * MINIBATCHES * MEASURED["cla-e"] / 1000
LOW_STEP = (WARM_LOW_RUN - CONSTANT) / MINIBATCHES * 1000  # estimate for every strategy at b = 30 and b = 10


def seconds(row: dict[str, str]) -> float:
    """How long one run of a row of the paper's tables takes."""
    steps = MINIBATCHES * int(row["n_p"])
    step = LOW_STEP if row["budget"] == "low" else (MEASURED | ESTIMATED)[row["method"]]
    return CONSTANT + steps * step / 1000


def runs(budget: str) -> tuple[list[float], list[float]]:
    """The seconds of every run of a budget: those that tune, and those that fill the tables."""
    tuning, tables = [], []
    for row in table("hyperparameters"):
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
    print(f"constant {CONSTANT:.0f} s, low-budget step {LOW_STEP:.1f} ms (estimate)\n")
    print("\n".join(lines(tuple(options.gpus))))


if __name__ == "__main__":
    main()
