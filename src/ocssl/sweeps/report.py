"""What a sweep found: a table, a plot and the best configuration."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TypeGuard

import yaml

from ocssl.common.console import percent, short_value
from ocssl.errors import DataError, missing_extra
from ocssl.sweeps.log import Trial, TrialLog, describe
from ocssl.sweeps.plan import Sweep
from ocssl.sweeps.space import Range, Scalar
from ocssl.sweeps.table import Table

DECADE = 10.0  # ratio of the largest to the smallest value from which on the axis is logarithmic


def trial_table(sweep: Sweep, log: TrialLog) -> Table:
    """All trials, best first, failed ones last. Scores are means over seeds, ± their standard deviation."""

    def row(trial: Trial) -> list[str]:
        found = [score for score in trial.scores if score is not None]
        spread = statistics.stdev(found) if trial.state == "done" and len(found) > 1 else None
        cbp = next(filter(None, trial.cbp), None)
        values = [short_value(trial.values.get(name, "–")) for name in sweep.space]
        scores = [percent(trial.score), percent(spread)] if len(sweep.seeds) > 1 else [percent(trial.score)]
        state = f"failed: {trial.reason}" if trial.state == "failed" else trial.state
        return [str(trial.number), *values, *scores, "–" if cbp is None else f"{cbp:,}", state]

    ranked = sorted(log.trials, key=lambda trial: (trial.score is None, -(trial.score or 0.0), trial.number))
    scores = [f"validation {sweep.score} %", "±"] if len(sweep.seeds) > 1 else [f"validation {sweep.score} %"]
    return Table("Trials", ["trial", *sweep.space, *scores, "CBP", "state"], [row(trial) for trial in ranked])


def at_edges(sweep: Sweep, best: Trial) -> list[str]:
    """A sentence for each number of the best trial that is the smallest or largest of those listed.

    >>> sweep = Sweep(space={"lr": [0.1, 0.3], "memory": ["fifo", "reservoir"]})
    >>> at_edges(sweep, Trial(1, {"lr": 0.3, "memory": "fifo"}, [0]))
    ['lr 0.3 is the largest value that was tried']
    """
    found = []
    for name, value in best.values.items():
        numbers = [option for option in sweep.options(name) if _is_number(option)]
        for extreme, word in ((min, "smallest"), (max, "largest")):
            if len(numbers) > 1 and value == extreme(numbers):
                found.append(f"{name} {short_value(value)} is the {word} value that was tried")
    return found


def best_yaml(sweep: Sweep, log: TrialLog, best: Trial) -> str:
    """The best configuration for ``ocssl run --config``: measured on test images, its seed not set."""
    settings = yaml.safe_dump(sweep.configuration(best.values), sort_keys=False, allow_unicode=True)
    seeds = "" if len(best.seeds) == 1 else f", mean of {len(best.seeds)} seeds"
    edges = "".join(f"# {sentence}.\n" for sentence in at_edges(sweep, best))
    return (
        f"# Best of {len(log.trials)} configurations: trial {best.number}, "
        f"{best.score:.2f} % {sweep.score} accuracy on validation images{seeds}.\n{edges}{settings}"
    )


def plot_scores(sweep: Sweep, log: TrialLog, path: Path) -> None:
    """Draw scores over the learning rate, or the first number that varies, into a PNG, SVG or PDF file.

    A grid has a line for each combination of the other settings, other searches have points. Trials that do not read
    the setting are horizontal lines. Failed trials are left out, and the best one is marked.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", "plots") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    across, best = _across(sweep), log.best()
    scores = {trial.number: trial.score for trial in log.trials if trial.score is not None}
    where = {trial.number: trial.values[across] for trial in log.trials if across in trial.values}
    trials = log.trials
    if all(map(_is_number, where.values())):
        trials = sorted(trials, key=lambda trial: where.get(trial.number, 0))
    else:
        where = {number: str(value) for number, value in where.items()}  # categories
    lines: dict[str, list[int]] = {}
    for trial in trials:
        others = describe({name: value for name, value in trial.values.items() if name != across})
        label = others or "score" if sweep.search == "grid" or trial.number not in where else "trials"
        if trial.number in scores:
            lines.setdefault(label, []).append(trial.number)
    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for index, (label, numbers) in enumerate(lines.items()):
        if numbers[0] in where:
            style = "-" if sweep.search == "grid" else "none"
            points = [where[number] for number in numbers], [scores[number] for number in numbers]
            axes.plot(*points, marker="o", linestyle=style, color=f"C{index}", label=label)
        else:
            axes.axhline(scores[numbers[0]], linestyle="--", color=f"C{index}", label=label)
    if best is not None and best.number in where:
        points, label = ([where[best.number]], [scores[best.number]]), f"best: trial {best.number}"
        axes.plot(*points, "*", color="black", markersize=14, zorder=3, label=label)
    if is_logarithmic(sweep, across):
        axes.set_xscale("log")
    ticks = sorted(option for option in set(sweep.options(across)) if _is_number(option))
    if ticks:
        axes.set_xticks(ticks, [short_value(tick) for tick in ticks])
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


def is_logarithmic(sweep: Sweep, across: str) -> bool:
    """Whether a range is logarithmic, or listed numbers spread over a decade."""
    entry, listed = sweep.space[across], sweep.options(across)
    if isinstance(entry, Range):
        return entry.scale == "log"
    numbers = [value for value in listed if _is_number(value)]
    return len(numbers) == len(listed) and min(numbers) > 0 and max(numbers) / min(numbers) >= DECADE


def _across(sweep: Sweep) -> str:
    """The setting of the horizontal axis."""
    numbers = (name for name, entry in sweep.space.items() if isinstance(entry, Range) or all(map(_is_number, entry)))
    return "lr" if "lr" in sweep.space else next(numbers, next(iter(sweep.space)))


def _is_number(value: Scalar) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
