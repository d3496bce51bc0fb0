"""What a sweep found: a table, and the best configuration."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, TypeGuard

import yaml

from ocssl.sweeps.plan import Sweep
from ocssl.sweeps.space import Scalar
from ocssl.sweeps.trials import Book, Trial, short

if TYPE_CHECKING:
    from rich.table import Table


def ranked(book: Book) -> list[Trial]:
    """All trials, best first, failed ones last."""
    return sorted(book.trials, key=lambda trial: (trial.score is None, -(trial.score or 0.0), trial.number))


def header(sweep: Sweep) -> list[str]:
    """The columns of the table."""
    spread = ["±"] if len(sweep.seeds) > 1 else []
    return ["trial", *sweep.space, f"validation {sweep.score} %", *spread, "CBP", "state"]


def row(sweep: Sweep, trial: Trial) -> list[str]:
    """A trial as the table has it; scores are means over seeds, ± their standard deviation."""
    scored = trial.score is not None
    spread = [f"{statistics.stdev(trial.scores):.2f}" if scored else "–"] if len(sweep.seeds) > 1 else []
    cbp = next((run.cbp for run in trial.runs.values() if run.cbp is not None), None)
    return [
        str(trial.number),
        *(short(trial.values[name]) for name in sweep.space),
        f"{trial.score:.2f}" if trial.score is not None else "–",
        *spread,
        "–" if cbp is None else f"{cbp:,}",
        f"failed: {trial.reason}" if trial.state == "failed" else trial.state,
    ]


def markdown(sweep: Sweep, book: Book) -> str:
    """The table as a file has it."""
    columns = header(sweep)
    lines = [columns, ["---"] * len(columns), *(row(sweep, trial) for trial in ranked(book))]
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines)


def table(sweep: Sweep, book: Book) -> Table:
    """The table as a terminal shows it."""
    from rich.table import Table

    shown = Table(*header(sweep), box=None, pad_edge=False)
    best = book.best()
    for trial in ranked(book):
        shown.add_row(*row(sweep, trial), style="bold" if trial is best else None)
    return shown


def at_edges(sweep: Sweep, best: Trial) -> list[str]:
    """Where the best may lie beyond what was tried: a sentence for each listed number with none on one of its sides.

    >>> sweep = Sweep.model_validate({"space": {"lr": [0.1, 0.3], "memory": ["fifo", "reservoir"]}})
    >>> at_edges(sweep, Trial(1, {"lr": 0.3, "memory": "fifo"}, [0]))
    ['lr 0.3 is the largest value that was tried']
    """
    found = []
    for name in sweep.space:
        numbers = [value for value in sweep.options(name) if _is_number(value)]
        for extreme, word in ((min, "smallest"), (max, "largest")):
            if len(numbers) > 1 and best.values[name] == extreme(numbers):
                found.append(f"{name} {short(best.values[name])} is the {word} value that was tried")
    return found


def _is_number(value: Scalar) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def best_yaml(sweep: Sweep, book: Book, best: Trial) -> str:
    """The best configuration as ``ocssl run --config`` takes it: measured on test images, with a seed of one's own."""
    settings = yaml.safe_dump(sweep.configuration(best.values), sort_keys=False, allow_unicode=True)
    seeds = "" if len(best.seeds) == 1 else f", mean of {len(best.seeds)} seeds"
    edges = "".join(f"# {sentence}.\n" for sentence in at_edges(sweep, best))
    return (
        f"# Best of {len(book.trials)} configurations: trial {best.number}, "
        f"{best.score:.2f} % {sweep.score} accuracy on validation images{seeds}.\n{edges}{settings}"
    )
