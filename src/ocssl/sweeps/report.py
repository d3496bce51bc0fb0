"""What a sweep found: a table, a plot and the best configuration."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TypeGuard

import yaml

from ocssl.common.console import short_value
from ocssl.errors import ConfigError
from ocssl.options import is_bound
from ocssl.results.render.figures import Line, draw_lines
from ocssl.results.table import Table, TableColumn, TableRow, Value
from ocssl.runs.naming import label
from ocssl.runs.presets import resolve
from ocssl.sweeps.log import Trial, TrialLog, describe
from ocssl.sweeps.plan import Sweep
from ocssl.sweeps.space import Range, Scalar

DECADE = 10.0  # ratio of the largest to the smallest value from which on the axis is logarithmic


def trial_table(sweep: Sweep, log: TrialLog) -> Table:
    """All trials, best first, failed ones last.

    Scores are means over seeds ± their sample standard deviation; with several seeds a column says how many.
    """
    several = any(len(trial.seeds) > 1 for trial in log.trials)

    def row(trial: Trial) -> TableRow:
        values = [Value(text=short_value(trial.values.get(name, "–"))) for name in sweep.space]
        scores = dict(zip(trial.seeds, trial.scores, strict=True)) if trial.state == "done" else {}
        measured = {seed: score for seed, score in scores.items() if score is not None}
        state = Value(text=f"failed: {trial.reason}" if trial.state == "failed" else trial.state)
        ran = Value(text=_strategy(sweep, trial))
        seeds = (Value.count(len(measured) or None),) if several else ()
        cells = (ran, *values, Value.over(measured), *seeds, Value.count(next(filter(None, trial.cbp), None)), state)
        return TableRow(str(trial.number), cells, bold=trial is log.best())

    ranked = sorted(log.trials, key=lambda trial: (trial.score is None, -(trial.score or 0.0), trial.number))
    titles = (*sweep.space, f"validation {sweep.score} %", *(["seeds"] if several else []), "CBP")
    columns = (TableColumn("run", align="left"), *map(TableColumn, titles), TableColumn("state", align="left"))
    return Table("Trials", columns, tuple(row(trial) for trial in ranked), label="trial")


def _strategy(sweep: Sweep, trial: Trial) -> str | None:
    """What a trial runs, as tables name it; None for a configuration that is refused, which TPE may propose."""
    try:
        return label(resolve(sweep.configuration(trial.values)))
    except ConfigError:
        return None


def at_edges(sweep: Sweep, best: Trial) -> list[str]:
    """A sentence for each number of the best trial that is the smallest or largest of those listed.

    There is none for a number that is a bound of its setting: nothing lies beyond.

    >>> sweep = Sweep(space={"lr": [0.1, 0.3], "memory": ["fifo", "reservoir"]})
    >>> at_edges(sweep, Trial.new(1, {"lr": 0.3, "memory": "fifo"}, [0]))
    ['lr 0.3 is the largest value that was tried']
    """
    found, config = [], resolve(sweep.configuration(best.values))
    for name, value in best.values.items():
        numbers = {option for option in sweep.options(name) if _is_number(option)}
        if len(numbers) < 2 or is_bound(config.field(name), value):
            continue
        for extreme, word in ((min, "smallest"), (max, "largest")):
            if value == extreme(numbers):
                found.append(f"{name} {short_value(value)} is the {word} value that was tried")
    return found


def best_yaml(sweep: Sweep, log: TrialLog, best: Trial) -> str:
    """The best configuration for ``ocssl run --config``: measured on test images, its seed not set."""
    plugins = {"plugins": sweep.plugins} if sweep.plugins else {}
    settings = yaml.safe_dump(plugins | sweep.configuration(best.values), sort_keys=False, allow_unicode=True)
    seeds = "" if len(best.seeds) == 1 else f", mean of {len(best.seeds)} seeds"
    scores = {trial.number: trial.score for trial in log.trials if trial.score is not None and trial is not best}
    equal = [str(number) for number, score in scores.items() if math.isclose(score, best.score or 0.0)]
    ties = f"# The same score: trial{'s' * (len(equal) > 1)} {', '.join(equal)}.\n" if equal else ""
    edges = "".join(f"# {sentence}.\n" for sentence in at_edges(sweep, best))
    return (
        f"# Best of {len(log.trials)} configurations: trial {best.number}, "
        f"{best.score:.2f} % {sweep.score} accuracy on validation images{seeds}.\n{ties}{edges}{settings}"
    )


def plot_scores(sweep: Sweep, log: TrialLog, path: Path) -> None:
    """Draw scores over the learning rate, or the first number that varies, into a PNG, SVG or PDF file.

    A grid has a line for each combination of the other settings, other searches have points. Trials that do not read
    the setting are level lines. Failed trials are left out, and the best one is marked.
    """
    across, best = _across(sweep), log.best()
    trials = [trial for trial in log.trials if trial.score is not None]
    x = {trial.number: trial.values[across] for trial in trials if across in trial.values}
    if all(map(_is_number, x.values())):
        trials.sort(key=lambda trial: x.get(trial.number, 0))
    else:
        x = {number: short_value(value) for number, value in x.items()}  # categories
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        others = describe({name: value for name, value in trial.values.items() if name != across})
        separate = sweep.search == "grid" or trial.number not in x
        found.setdefault((others or "score") if separate else "trials", []).append(trial)
    lines = [
        Line(
            label,
            [x[trial.number] for trial in members if trial.number in x],
            [trial.score for trial in members if trial.score is not None],
            joined=sweep.search == "grid",
        )
        for label, members in found.items()
    ]
    ticks = {option: short_value(option) for option in sorted(filter(_is_number, sweep.options(across)))}
    star = (x[best.number], best.score or 0.0, f"best: trial {best.number}") if best and best.number in x else None
    title, is_log = f"validation {sweep.score} accuracy, %", is_logarithmic(sweep, across)
    draw_lines(lines, path, x_title=across, y_title=title, best=star, log=is_log, ticks=ticks)


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
