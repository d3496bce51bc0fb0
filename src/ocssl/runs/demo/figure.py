"""The demo as a picture: accuracy along the stream, above the figures that arrive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ocssl.errors import DataError, missing_extra
from ocssl.runs.demo.report import DemoReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, PALE, PAPER = "#3d4451", "#a8a29a", "#fbfaf7"
UNTRAINED = "untrained encoder"
COLOURS = {"finetune": "#b5846a", "ER": "#7d93a8", "CLA-E": "#2f6d6a"}


def draw_figure(report: DemoReport, path: Path) -> None:
    """Write the report's curves as a PNG; with several seeds their mean, and each seed as a thin line.

    Needs matplotlib, the extra ``plot``.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", "Figures") from error

    margins = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.12)
    figure = Figure(figsize=(9.6, 5.2), dpi=160, facecolor=PAPER, layout=margins)
    curves, strip = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [9, 0.95], "hspace": 0.02})
    _draw_curves(curves, report)
    _draw_arrivals(strip, report)
    seeds = ", ".join(str(result.seed) for result in report.results)
    figure.suptitle(
        f"What the encoder knows while the stream goes by  (seed {seeds})", x=0.02, ha="left", color=INK, fontsize=12.5
    )
    try:
        figure.savefig(path)
    except OSError as error:
        raise DataError(f"the demo's figure could not be written to '{path}': {error.strerror}") from error


def _draw_curves(axes: Axes, report: DemoReport) -> None:
    references, curves = report.mean_references(), report.mean_curves()
    x, end = (0, *report.points), report.points[-1]
    for height in references.values():
        axes.plot((0, end), (height, height), color=PALE, linewidth=1.1, linestyle=(0, (2, 3)), zorder=1)
    for name, curve in curves.items():
        colour, width = COLOURS[name], 2.6 if name == "CLA-E" else 1.9
        if len(report.results) > 1:
            for result in report.results:
                (own,) = (entry.curve for entry in result.entries if entry.name == name)
                axes.plot(x, (result.references[UNTRAINED], *own), color=colour, linewidth=0.7, alpha=0.35)
        axes.plot(
            x, (references[UNTRAINED], *curve), color=colour, linewidth=width, marker="o", markersize=4.5, zorder=3
        )

    ends = {**references, **{name: curve[-1] for name, curve in curves.items()}}
    top = 1.12 * max(max(curve) for curve in (*curves.values(), references.values()))
    for name, height in _spread(ends, gap=0.055 * top).items():
        colour, size = COLOURS.get(name, PALE), 10.5 if name in curves else 9
        axes.text(end * 1.015, height, f"{name}  {ends[name]:.0f} %", color=colour, fontsize=size, va="center")
    axes.set(xlim=(0, end * 1.2), ylim=(0, top), ylabel="linear probe over all 18 classes, %")
    axes.grid(axis="y", color=INK, alpha=0.08)
    _quieten(axes)


def _draw_arrivals(axes: Axes, report: DemoReport) -> None:
    """One example of each class, under the stretch of the stream in which it arrives."""
    from ocssl.data import shapes

    images, labels = shapes.draw(len(shapes.CLASSES), seed=0)
    order, end = report.results[0].class_order, report.points[-1]
    stretch = end / len(order)
    for place, name in enumerate(order):
        picture = images[labels == shapes.CLASSES.index(name)][0].permute(1, 2, 0).numpy()
        axes.imshow(picture, extent=(place * stretch, (place + 1) * stretch, 0, 1), aspect="auto")
    axes.set(ylim=(0, 1), yticks=[], xlabel="images seen, each once, one class after another", facecolor=PAPER)
    axes.set_xticks((0, *report.points))
    _quieten(axes)
    axes.spines[:].set_visible(False)


def _quieten(axes: Any) -> None:
    axes.set_facecolor(PAPER)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(PALE)
    axes.tick_params(colors=INK, labelsize=9, length=0)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)


def _spread(heights: dict[str, float], gap: float) -> dict[str, float]:
    """Heights of labels, pushed up where they would overlap.

    >>> _spread({"a": 10.0, "b": 11.0, "c": 30.0}, gap=4.0)
    {'a': 10.0, 'b': 14.0, 'c': 30.0}
    """
    placed: dict[str, float] = {}
    lowest = float("-inf")
    for name, height in sorted(heights.items(), key=lambda item: item[1]):
        placed[name] = lowest = max(height, lowest + gap)
    return placed
