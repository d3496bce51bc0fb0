"""Training time against CBP, as in the paper's figure, from the minibatches that ``benchmarks/gpu.py`` measured.

A run of Split CIFAR-100 is 4,500 stream minibatches; what one costs does not change along the stream
(``seconds_at`` in every result file). So time and CBP of a run follow from one minibatch at b and n_p.

    python benchmarks/times.py benchmarks/measured/gpu-graph.json --output docs/figures/times-against-cbp.svg
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from ocssl.report.figures import MARKERS, STYLE, TIMELESS
from ocssl.report.names import label
from ocssl.report.palette import LOOKS

MINIBATCHES = 4500
VIEWS = 2
DRAWN_AS = {"er": "er-fifo", "finetune": "iid"}  # plain training on a whole batch of new images is the i.i.d. row
PAPERS = {"n_p 1, 3, 6 at b 138": (138, ("1", "3", "6")), "low budget": (30, ("1",))}

Points = dict[str, list[tuple[float, float]]]


def read(path: Path) -> tuple[Points, str]:
    """CBP and seconds of every run that was measured, by strategy; and the device."""
    found = json.loads(path.read_text())
    points: Points = defaultdict(list)
    for row in found["rows"]:
        for batch, passes in PAPERS.values():
            if row["batch"] == batch:
                for n_p in passes:
                    cbp = VIEWS * batch * int(n_p) * MINIBATCHES
                    points[row["strategy"]].append((cbp, row["minibatch_ms"][n_p] * MINIBATCHES / 1000))
    return {name: sorted(measured) for name, measured in points.items()}, found["device"]


def fit(measured: list[tuple[float, float]]) -> tuple[float, float, float]:
    """The line through the points: seconds per million CBP, seconds at none, and the share of variance it explains."""
    cbp, seconds = np.array(measured).T
    slope, rest = np.polyfit(cbp / 1e6, seconds, 1)
    residual = seconds - (slope * cbp / 1e6 + rest)
    return float(slope), float(rest), float(1 - residual.var() / seconds.var())


def draw(points: Points, device: str) -> Figure:
    """Seconds against CBP, a line for each strategy."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for strategy, measured in points.items():
        name = DRAWN_AS.get(strategy, strategy)
        look = LOOKS[name]
        cbp, seconds = zip(*measured, strict=True)
        axes.plot(cbp, seconds, color=look.colour, marker=MARKERS[look.marker], ms=4, lw=1, label=label(name))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set(xlabel="CBP", ylabel="seconds of training", xlim=(0, None), ylim=(0, None))
    axes.set_title(f"One run of Split CIFAR-100, {device}")
    axes.grid(axis="y")
    figure.legend(loc="outside right upper")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path, help="what benchmarks/gpu.py wrote")
    parser.add_argument("--output", type=Path, help="a figure: .svg, .png or .pdf")
    arguments = parser.parse_args()
    points, device = read(arguments.measured)
    for strategy, measured in points.items():
        slope, rest, explained = fit(measured)
        print(f"{strategy:10} {slope:6.2f} s per million CBP, {rest:+5.1f} s, R² {explained:.4f}")
    if arguments.output:
        with matplotlib.rc_context(STYLE):
            kind = arguments.output.suffix[1:]
            draw(points, device).savefig(arguments.output, metadata=TIMELESS[kind], dpi=200)


if __name__ == "__main__":
    main()
