"""The scores of a sweep, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ocssl.errors import DataError, missing_extra
from ocssl.sweeps.plan import Sweep
from ocssl.sweeps.space import Range
from ocssl.sweeps.trials import Book, Trial, short, words

DECADE = 10.0  # a spread of values from which a logarithmic axis shows more


def plot_scores(sweep: Sweep, book: Book, path: Path) -> None:
    """Draw scores over the learning rate, or the first setting that varies, into a PNG, SVG or PDF file.

    A grid has a line for each combination of the other settings; other searches have points. Trials that failed are not
    there, and the best one is marked.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", "plots") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    across = "lr" if "lr" in sweep.space else next(iter(sweep.space))
    done = [trial for trial in book.trials if trial.score is not None]
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for label, trials in _lines(sweep, done, across).items():
        axes.plot(
            *_points(trials, across), marker="o", linestyle="-" if sweep.search == "grid" else "none", label=label
        )
    best = book.best()
    if best is not None:
        axes.plot(
            *_points([best], across), "*", color="black", markersize=14, zorder=3, label=f"best: trial {best.number}"
        )
    if logarithmic(sweep, [trial.values[across] for trial in done], across):
        axes.set_xscale("log")
    listed = sweep.options(across)
    if listed and all(isinstance(option, int | float) for option in listed):
        ticks = sorted(set(listed))
        axes.set_xticks(ticks, [short(option) for option in ticks])
        axes.minorticks_off()
    axes.set(xlabel=across, ylabel=f"validation {sweep.score} accuracy (%)")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize="small")
    try:
        figure.savefig(path, dpi=150, metadata={"Software": None} if path.suffix == ".png" else None)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot write the plot '{path}': {error}") from error
    finally:
        pyplot.close(figure)


def logarithmic(sweep: Sweep, values: Sequence[Any], across: str) -> bool:
    """Whether values were meant, or are spread, over decades."""
    entry = sweep.space[across]
    if isinstance(entry, Range):
        return entry.scale == "log"
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return len(numbers) == len(values) > 0 and min(numbers) > 0 and max(numbers) / min(numbers) >= DECADE


def _lines(sweep: Sweep, trials: list[Trial], across: str) -> dict[str, list[Trial]]:
    if sweep.search != "grid":
        return {"trials": trials}
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        others = words({name: value for name, value in trial.values.items() if name != across})
        found.setdefault(others or "score", []).append(trial)
    return found


def _points(trials: list[Trial], across: str) -> tuple[list[Any], list[float]]:
    """Where they lie, from left to right; what is no number is a category."""
    numeric = all(isinstance(trial.values[across], int | float) for trial in trials)
    trials = sorted(trials, key=lambda trial: trial.values[across]) if numeric else trials
    where = [trial.values[across] if numeric else str(trial.values[across]) for trial in trials]
    return where, [trial.score for trial in trials if trial.score is not None]
