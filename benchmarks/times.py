"""Training time against CBP, as in the paper's figure, from the minibatches that ``benchmarks/gpu.py`` measured.

A run of Split CIFAR-100 is 4,500 stream minibatches of ten images; what one costs does not change along the stream
(``seconds_at`` in every result file). So time and CBP of a run follow from one minibatch at b and n_p. Only runs that
can be made are drawn: a strategy that trains on new images alone has b = 10, but for i.i.d. training, which goes over
its images as often as the budget allows.

    python benchmarks/times.py benchmarks/measured/gpu-graph.json --output docs/figures/times-against-cbp.svg
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ocssl.results.names import STYLES, row_label
from ocssl.results.render.figures import MARKERS, METADATA, RC

MINIBATCHES, STREAM_BATCH = 4500, 10
VIEWS = 2
PASSES = {138: (1, 3, 6), 30: (1,), 10: (1, 3, 6)}  # n_p by b


class Run(NamedTuple):
    """What a run spends, and how long it trains."""

    cbp: int
    batch: int
    seconds: float


Runs = dict[str, list[Run]]


def row_of(measured: dict[str, Any]) -> str | None:
    """The row of the paper's tables whose runs have such minibatches, if there is one."""
    strategy, batch = measured["strategy"], measured["batch"]
    if measured["stream_batch"] == STREAM_BATCH:
        return "er-fifo" if strategy == "er" else strategy
    return "iid" if strategy == "finetune" and batch in PASSES else None


def read(path: Path) -> tuple[Runs, str]:
    """The runs whose minibatches were measured, by row of the tables; and the device."""
    found = json.loads(path.read_text())
    rows: Runs = defaultdict(list)
    for measured in found["rows"]:
        if (row := row_of(measured)) is not None:
            for n_p in PASSES[batch := measured["batch"]]:
                seconds = measured["minibatch_ms"][str(n_p)] * MINIBATCHES / 1000
                rows[row].append(Run(VIEWS * batch * n_p * MINIBATCHES, batch, seconds))
    return {row: sorted(runs) for row, runs in rows.items()}, found["device"]


def fit(runs: list[Run]) -> tuple[float, float, float]:
    """The line through the runs: seconds per million CBP, seconds at none, and the share of variance it explains."""
    cbp, seconds = np.array([run.cbp / 1e6 for run in runs]), np.array([run.seconds for run in runs])
    slope, rest = np.polyfit(cbp, seconds, 1)
    return float(slope), float(rest), float(1 - (seconds - slope * cbp - rest).var() / seconds.var())


def draw(rows: Runs, device: str) -> Figure:
    """Seconds against CBP, a line for each row; below, how many times as long as the fastest with the same batches."""
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    absolute, relative = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    fastest: dict[tuple[int, int], float] = {}
    for run in sorted(run for runs in rows.values() for run in runs):
        fastest.setdefault((run.cbp, run.batch), run.seconds)
    for row, runs in rows.items():
        style, cbp = STYLES[row], [run.cbp for run in runs]
        drawn = {"color": style.colour, "marker": MARKERS[style.marker], "ms": 4, "lw": 1}
        absolute.plot(cbp, [run.seconds for run in runs], label=row_label(row), **drawn)
        relative.plot(cbp, [run.seconds / fastest[run.cbp, run.batch] for run in runs], **drawn)
    relative.xaxis.set_major_formatter(EngFormatter(sep=""))
    absolute.set(ylabel="seconds of training", ylim=(0, None))
    relative.set(xlabel="CBP", ylabel="times the fastest at that b", xlim=(0, None), ylim=(1, None))
    absolute.set_title(f"One run of Split CIFAR-100, {device}")
    for axes in (absolute, relative):
        axes.grid(axis="y")
    figure.legend(loc="outside right upper")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, help="what benchmarks/gpu.py wrote")
    parser.add_argument("--output", type=Path, help="a figure: .svg, .png or .pdf")
    arguments = parser.parse_args()
    rows, device = read(arguments.measured)
    for row, runs in rows.items():
        slope, rest, explained = fit(runs)
        print(f"{row:10} {slope:6.2f} s per million CBP, {rest:+5.1f} s, R² {explained:.4f}")
    if arguments.output:
        with matplotlib.rc_context(fname=RC):
            kind = arguments.output.suffix[1:]
            draw(rows, device).savefig(arguments.output, metadata=METADATA[kind], dpi=200)


if __name__ == "__main__":
    main()
