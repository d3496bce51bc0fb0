"""The page's figures as files, drawn by matplotlib from the same values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from ocssl.errors import missing_extra
from ocssl.report.names import cut, label
from ocssl.report.palette import LOOKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS = {"circle": "o", "square": "s", "diamond": "D", "up": "^", "down": "v", "plus": "P", "cross": "X"}
DASHES = {"": "-", "6 3": "--", "2 3": ":"}
ROOM = 1.06
"""How far an axis from zero goes beyond the highest mark."""

INK, MUTED, LINE = "#1c1e22", "#62666d", "#e3e3de"
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "grid.color": LINE,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "svg.hashsalt": "ocssl",
}
TIMELESS: dict[str, dict[str, None]] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""Metadata, by format, so that the same results give the same bytes."""

Values = dict[str, Any]


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn: its name, and how."""

    name: str
    draw: Callable[[], Figure]

    def to_bytes(self, kinds: Sequence[str]) -> dict[str, bytes]:
        """As ``png``, ``svg`` or ``pdf``, by kind."""
        import matplotlib

        with matplotlib.rc_context(STYLE):
            figure, found = self.draw(), {}
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # the layout stays as it is; finding it is half of the work
            for kind in kinds:
                buffer = BytesIO()
                figure.savefig(buffer, format=kind, dpi=200, metadata=TIMELESS[kind])
                found[kind] = buffer.getvalue()
            return found


def need_matplotlib() -> None:
    """Refuse with one sentence where figures cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", "figures") from error


def drawings(values: Values) -> Iterator[Drawing]:
    """Every figure that there is something to draw for.

    Args:
        values: from :func:`ocssl.report.payload.payload`.
    """
    for sheet in values["sheets"]:
        series = [values["series"][number] for number in sheet["series"]]
        ran = [one for one in series if one["final"]["mean"] is not None]
        if sheet["bars"] and ran:
            yield Drawing(f"bars-{sheet['id']}", partial(_bars, sheet, ran))
        if sheet["stream"] and any(_is_curve(one) for one in ran):
            yield Drawing(f"stream-{sheet['id']}", partial(_stream, sheet, ran))
    taken: Counter[str] = Counter()
    for family in values["families"]:
        series = [values["series"][number] for number in family["series"]]
        spent = [one for one in series if one["cbp"] and one["final"]["mean"] is not None]
        name = f"{slug(family['title'])}-{family['protocol']}"
        taken[name] += 1
        name += f"-{taken[name]}" if taken[name] > 1 else ""  # data sets in different letters may be spelled alike
        if spent:
            yield Drawing(f"budget-{name}", partial(_budget, family, spent))
        for device in sorted({one["device"] for one in spent if one["device"]}):
            timed = [one for one in spent if one["device"] == device]
            yield Drawing(
                f"times-{name}-{slug(device)}",
                partial(_times, family, device, timed),
            )


def slug(text: str) -> str:
    """A name that any file system takes.

    >>> slug("CIFAR-100, NVIDIA H200")
    'cifar-100-nvidia-h200'
    """
    return cut("-".join("".join(letter if letter.isalnum() else " " for letter in text.lower()).split()))


def _figure(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, [figure.add_subplot(1, columns, place + 1) for place in range(columns)]


def _title(of: Values) -> str:
    title = of["title"].replace("ω", "$\\omega$").replace("τ", "$\\tau$")
    return f"{title} ({of['protocolName']} protocol)"


def _bars(sheet: Values, series: list[Values]) -> Figure:
    from matplotlib.patches import Patch

    figure, plots = _figure(7, 0.9 + 0.27 * len(series), 2)
    figure.suptitle(_title(sheet), x=0.01, ha="left", fontsize=9, color=INK)
    for axes, number, title in zip(plots, ("final", "avg"), ("Final accuracy, %", "Average accuracy, %"), strict=True):
        for place, one in enumerate(series):
            score, colour = one[number], LOOKS[one["look"]].colour
            if score["mean"] is not None:
                axes.barh(place - 0.14, score["mean"], 0.44, color=colour, xerr=score["std"], ecolor=INK, capsize=1.5)
                axes.annotate(
                    f"{score['mean']:.1f}",
                    (score["mean"] + (score["std"] or 0), place - 0.14),
                    xytext=(3, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=7,
                )
            if score["mean"] is not None and score["paper"] is not None:
                axes.barh(place + 0.24, score["paper"], 0.18, color="none", edgecolor=colour, linewidth=0.8)
        axes.set_yticks(
            range(len(series)), [one["label"] for one in series] if number == "final" else [""] * len(series)
        )
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.set_ylim(len(series) - 0.4, -0.6)
        axes.set_title(title, color=MUTED, fontsize=8)
        axes.margins(x=0.12)
    if any(one[number]["paper"] is not None for one in series for number in ("final", "avg")):
        kinds = [Patch(color=MUTED, label="ours"), Patch(fill=False, edgecolor=MUTED, label="the paper’s")]
        plots[1].legend(handles=kinds, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0, ncols=2)
    return figure


def _stream(sheet: Values, series: list[Values]) -> Figure:
    from matplotlib.ticker import EngFormatter

    figure, (axes,) = _figure(6.4, 3.6)
    levels: Counter[str] = Counter()
    for one in series:
        style = LOOKS[one["look"]]
        if not _is_curve(one):
            dots = levels[one["look"]]  # level lines of one look differ in their dots
            dash = (0, (6, 2, *(1, 2) * dots)) if dots else DASHES[style.dash or "6 3"]
            axes.axhline(one["final"]["mean"], color=style.colour, ls=dash, lw=1, label=one["label"])
            levels[one["look"]] += 1
            continue
        curve = one["curve"]
        every = max(1, round(len(curve["x"]) / 5))
        axes.plot(
            curve["x"],
            curve["mean"],
            color=style.colour,
            ls="--" if one["tuned"] else DASHES[style.dash],
            lw=1.4,
            marker=MARKERS[style.marker],
            markevery=((len(curve["x"]) - 1) % every, every),
            ms=4,
            mec="white",
            mew=0.5,
            label=one["label"],
        )
        axes.fill_between(curve["x"], curve["low"], curve["high"], color=style.colour, alpha=0.13, lw=0)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_title(_title(sheet))
    axes.set(xlabel="stream images seen", ylabel="linear probe, all classes, %", xlim=(0, None))
    axes.grid(axis="y")
    figure.legend(loc="outside right upper")
    return figure


def _budget(family: Values, series: list[Values]) -> Figure:
    figure, (axes,) = _figure(6.4, 3.6)
    _points(axes, series, family["joined"], lambda one: one["final"]["mean"], lambda one: one["final"]["std"])
    axes.set_title(_title(family))
    axes.set(ylabel="Final accuracy, %")
    figure.legend(loc="outside right upper")
    return figure


def _times(family: Values, device: str, series: list[Values]) -> Figure:
    figure, (run, step) = _figure(7.6, 3.2, 2)
    figure.suptitle(f"{_title(family)}, {device}", x=0.01, ha="left", fontsize=9, color=INK)
    _points(run, series, family["joined"], lambda one: one["seconds"]["mean"], lambda one: one["seconds"]["std"])
    _points(step, series, family["joined"], lambda one: one["step"], lambda one: None, named=False)
    run.set(ylabel="seconds per run", ylim=(0, ROOM * run.dataLim.ymax))
    step.set(ylabel="milliseconds per step", ylim=(0, ROOM * step.dataLim.ymax))
    figure.legend(loc="outside right upper")
    return figure


def _points(
    axes: Axes,
    series: list[Values],
    join: bool,
    mean: Callable[[Values], float | None],
    std: Callable[[Values], float | None],
    *,
    named: bool = True,
) -> None:
    """A mark for each cell against its CBP, joined where CBP differs; each strategy stands in the legend once.

    Tuned runs have open marks and a place of their own in the legend.
    """
    from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

    for key in dict.fromkeys((one["look"], one["tuned"]) for one in series):
        cells: list[tuple[float, float, float]] = [
            (one["cbp"], height, std(one) or 0)
            for one in series
            if (one["look"], one["tuned"]) == key and (height := mean(one)) is not None
        ]
        style, tuned = LOOKS[key[0]], key[1]
        axes.errorbar(
            [spent for spent, _, _ in cells],
            [height for _, height, _ in cells],
            yerr=[spread for _, _, spread in cells],
            color=style.colour,
            marker=MARKERS[style.marker],
            ms=5,
            mfc="white" if tuned else style.colour,
            ls="none",
            lw=1,
            label=label(key[0]) + (", tuned" if tuned else "") if named else None,
        )
        if not join:
            continue
        joined = list({f"{spent:.2g}": (spent, height) for spent, height, _ in sorted(cells)}.values())
        axes.plot(*zip(*joined, strict=True), color=style.colour, lw=0.8, alpha=0.55, zorder=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="CBP")
    axes.grid(axis="y")


def _is_curve(series: Values) -> bool:
    return bool(series["curve"]) and len(series["curve"]["x"]) > 1
