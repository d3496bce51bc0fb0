"""Figures as files, drawn by matplotlib: those of a report, and lines for runs, sweeps and the demo."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import cycle
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from ocssl.common.files import MARK, atomic_write, writing
from ocssl.errors import DataError, missing_extra
from ocssl.results.charts import Values, is_curve
from ocssl.results.names import STYLES, Style, row_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

FIGURE_FORMATS = ("png", "svg", "pdf")
MARKERS = {"circle": "o", "square": "s", "diamond": "D", "up": "^", "down": "v", "plus": "P", "cross": "X"}
COLOURS = 10  # of matplotlib, for lines without a style; further lines have other markers
DASHES = {"": "-", "6 3": "--", "2 3": ":"}

LABEL = 40  # letters of a line of a label, which leave room for the plot
MARGINS = 0.1  # inches above and below a legend
INK, MUTED = "#1c1e22", "#62666d"
RC = Path(__file__).with_name("figures.mplstyle")
METADATA: dict[str, dict[str, str | None]] = {
    "png": {"Software": MARK},
    "svg": {"Date": None, "Creator": MARK},
    "pdf": {"CreationDate": None, "Creator": MARK},
}
"""By format: whose it is, without versions and dates, so that the same results give the same bytes."""


@dataclass(frozen=True)
class Line:
    """A line of a plot.

    Attributes:
        x: positions, numbers or categories; empty for a level line, whose ``y`` is one number.
        low, high: edges of a band around the line.
        style: colour, marker and dash; by default the next colour of matplotlib and, for the first lines, circles.
        dash: instead of the style's, as SVG has it.
        joined: whether the points are joined.
    """

    label: str
    x: Sequence[Any]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: Style | None = None
    dash: str | None = None
    joined: bool = True


def need_matplotlib() -> None:
    """Refuse with one sentence where figures cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", "figures") from error


def draw_lines(
    lines: Sequence[Line],
    path: Path,
    *,
    x_title: str = "stream images seen",
    y_title: str = "linear probe, all classes, %",
    best: tuple[Any, float, str] | None = None,
    log: bool = False,
    ticks: Mapping[float, str] | None = None,
) -> None:
    """Draw lines into a PNG, SVG or PDF file.

    Args:
        best: position, height and label of a point to mark with a star.
        ticks: labels of the x axis by position.
    """
    need_matplotlib()
    import matplotlib

    kind = plot_kind(path)
    with matplotlib.rc_context(fname=RC), writing(path, DataError):
        figure, (axes,) = _new_figure(7, 4.2)
        plot_lines(axes, lines)
        if best is not None:
            axes.plot([best[0]], [best[1]], "*", color=INK, ms=12, ls="none", zorder=3, label=best[2])
        if log:
            axes.set_xscale("log")
        axes.set(xlabel=x_title, ylabel=y_title)
        if ticks:
            axes.set_xticks(list(ticks), list(ticks.values()))
            axes.minorticks_off()
        axes.grid(axis="y")
        legend = axes.legend()
        if _height(figure, legend) > figure.get_figheight() / 2:
            legend.remove()
            _add_legend(figure)
        atomic_write(path, figure_bytes(figure, kind, dpi=150))


def plot_kind(path: Path) -> str:
    """The format of a plot, by the end of its name.

    >>> plot_kind(Path("curves.svg"))
    'svg'
    """
    kind = path.suffix.removeprefix(".")
    if kind not in FIGURE_FORMATS:
        raise DataError(f"cannot write the plot '{path}': its name must end in .png, .svg or .pdf")
    return kind


def plot_lines(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw lines, bands and level lines into axes."""
    levels: Counter[str] = Counter()
    marks = cycle(shape for shape in MARKERS.values() for _ in range(COLOURS))
    for line in lines:
        colour: dict[str, Any] = {"color": line.style.colour} if line.style else {}
        dash = line.dash if line.dash is not None else line.style.dash if line.style else ""
        if not len(line.x):
            dots = levels[colour.setdefault("color", MUTED)]  # level lines of one colour differ in their dots
            levels[colour["color"]] += 1
            drawn = (0, (6, 2, *(1, 2) * dots)) if dots else DASHES[dash or "6 3"]
            axes.axhline(line.y[0], ls=drawn, lw=1, label=fill(line.label, LABEL), **colour)
            continue
        every = max(1, round(len(line.x) / 5)) if line.style else 1
        axes.plot(
            line.x,
            line.y,
            ls=DASHES[dash] if line.joined else "none",
            lw=1.4,
            marker=MARKERS[line.style.marker] if line.style else next(marks),
            markevery=((len(line.x) - 1) % every, every),
            ms=4,
            mec="white",
            mew=0.5,
            label=fill(line.label, LABEL),
            **colour,
        )
        if line.low:
            axes.fill_between(line.x, line.low, line.high, alpha=0.13, lw=0, **colour)


def render(draw: Callable[[], Figure], formats: Sequence[str]) -> dict[str, bytes]:
    """What a function draws, in our style, as ``png``, ``svg`` or ``pdf``, by format."""
    import matplotlib
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with matplotlib.rc_context(fname=RC):
        drawn = draw()
        ConstrainedLayoutEngine().execute(drawn)
        drawn.set_layout_engine(None)  # with one, matplotlib draws twice for each format
        return {kind: figure_bytes(drawn, kind) for kind in formats}


def draw_figure(data: Values, figure: Values) -> Figure:
    """A figure of :func:`ocssl.results.charts.chart_data`."""
    series = [data["series"][number] for number in figure["series"]]
    return {"bars": _bars, "stream": _stream}.get(figure["kind"], _scatter)(figure, series)


def _add_legend(figure: Figure) -> None:
    """Add a legend beside the plots of a figure, which becomes as high as the legend needs."""
    legend = figure.legend(loc="outside right upper")
    figure.set_figheight(max(figure.get_figheight(), _height(figure, legend)))


def _height(figure: Figure, legend: Legend) -> float:
    """Inches that a legend takes, with its margins."""
    return float(legend.get_window_extent().height / figure.dpi) + MARGINS


def figure_bytes(figure: Figure, kind: str, dpi: int = 200) -> bytes:
    """The content of the figure's file."""
    buffer = BytesIO()
    figure.savefig(buffer, format=kind, dpi=dpi, metadata=METADATA[kind])
    return buffer.getvalue()


def _new_figure(width: float, height: float, plots: int = 1, title: str = "") -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=9, color=INK)
    return figure, [figure.add_subplot(1, plots, place + 1) for place in range(plots)]


def stacked_figure(width: float, rows: Sequence[int]) -> tuple[Figure, list[Axes]]:
    """A figure with plots below each other, each as high as its number of rows asks for."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 0.19 * sum(rows) + 0.55 * len(rows)), layout="constrained")
    return figure, [*figure.subplots(len(rows), 1, height_ratios=rows, squeeze=False)[:, 0]]


def _title(figure: Values) -> str:
    title = figure["title"].replace("ω", "$\\omega$").replace("τ", "$\\tau$")
    return f"{title} ({figure['protocolName']} protocol)"


def _bars(of: Values, series: list[Values]) -> Figure:
    from matplotlib.patches import Patch

    shown = [plot for plot in of["plots"] if any(one[plot["number"]]["mean"] is not None for one in series)]
    figure, plots = _new_figure(7, 1.1 + 0.27 * len(series), len(shown), _title(of))
    for axes, plot in zip(plots, shown, strict=True):
        for place, one in enumerate(series):
            score, colour = one[plot["number"]], STYLES[one["style"]].colour
            if score["mean"] is None:
                continue
            axes.barh(place - 0.14, score["mean"], 0.44, color=colour, xerr=score["std"], ecolor=INK, capsize=1.5)
            end = score["mean"] + (score["std"] or 0), place - 0.14
            beside: Any = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "fontsize": 7}
            axes.annotate(score["short"], end, **beside)
            if score["paper"] is not None:
                axes.barh(place + 0.24, score["paper"], 0.18, color="none", edgecolor=colour, linewidth=0.8)
        axes.set_yticks(range(len(series)), [fill(one["label"], LABEL) if axes is plots[0] else "" for one in series])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_ylim(len(series) - 0.4, -0.6)
        axes.set_title(plot["title"], color=MUTED, fontsize=8)
        axes.margins(x=0.12)
    if any(one[plot["number"]]["paper"] is not None for one in series for plot in shown):
        theirs = "the paper’s (authors’ protocol)" if of["caution"] else "the paper’s"
        kinds = [Patch(color=MUTED, label="ours"), Patch(fill=False, edgecolor=MUTED, label=theirs)]
        figure.legend(handles=kinds, loc="outside lower right", ncols=2)
    return figure


def _stream(of: Values, series: list[Values]) -> Figure:
    from matplotlib.ticker import EngFormatter

    figure, (axes,) = _new_figure(6.4, 3.6)
    lines = []
    for one in series:
        curve, style = one["curve"], STYLES[one["style"]]
        if is_curve(one):
            dash = "6 3" if one["tuned"] else None
            lines.append(Line(one["label"], curve["x"], curve["mean"], curve["low"], curve["high"], style, dash))
        else:
            lines.append(Line(one["label"], (), [one["final"]["mean"]], style=style))
    plot_lines(axes, lines)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_title(_title(of))
    axes.set(xlabel=of["plots"][0]["x"], ylabel=of["plots"][0]["title"], xlim=(0, None))
    axes.grid(axis="y")
    _add_legend(figure)
    return figure


def _scatter(of: Values, series: list[Values]) -> Figure:
    plots, title = of["plots"], _title(of)
    figure, axes = _new_figure(6.4, 3.6) if len(plots) == 1 else _new_figure(7.6, 3.2, len(plots), title)
    for place, plot in zip(axes, plots, strict=True):
        _points(place, series, plot, of["joined"], named=place is axes[0])
    if len(plots) == 1:
        axes[0].set_title(title)
    _add_legend(figure)
    return figure


def _points(axes: Axes, series: list[Values], plot: Values, join: bool, *, named: bool) -> None:
    """A mark for each series against its CBP, joined where CBP differs; each strategy is in the legend once.

    Tuned runs have open marks and an entry of their own in the legend.
    """
    from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

    for key in dict.fromkeys((one["style"], one["tuned"]) for one in series):
        points = [
            (one["cbp"], one[plot["number"]]["mean"], one[plot["number"]]["std"] or 0)
            for one in series
            if (one["style"], one["tuned"]) == key and one[plot["number"]]["mean"] is not None
        ]
        spent, heights, spreads = map(list, zip(*points, strict=True)) if points else ([], [], [])
        style, tuned = STYLES[key[0]], key[1]
        axes.errorbar(
            spent,
            heights,
            yerr=spreads,
            color=style.colour,
            marker=MARKERS[style.marker],
            ms=5,
            mfc="white" if tuned else style.colour,
            ls="none",
            lw=1,
            label=row_label(key[0]) + (", tuned" if tuned else "") if named else None,
        )
        if join and points:
            joined = list({f"{cbp:.2g}": (cbp, height) for cbp, height, _ in sorted(points)}.values())
            axes.plot(*zip(*joined, strict=True), color=style.colour, lw=0.8, alpha=0.55, zorder=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=plot["x"], ylabel=plot["title"])
    axes.grid(axis="y")
    if plot["zero"]:
        axes.set_ylim(0, 1.06 * axes.dataLim.ymax)  # room for the highest mark
