"""The paper's tables as text: ours, the paper's, and the difference."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from ocssl.common.console import short_count as short
from ocssl.paper import Cell, Score, Spread


def accuracies(cells: Iterable[Cell]) -> Table:
    """Final, and Avg where anybody has it."""
    cells = list(cells)
    with_avg = any(cell.avg.by_seed or cell.avg.published for cell in cells)
    table = Table("row", "b×n_p", "Final %", "paper", "diff", box=None, pad_edge=False)
    for head in (["Avg %", "paper", "diff"] if with_avg else []) + ["seeds"]:
        table.add_column(head)
    for column in table.columns[1:]:
        column.no_wrap = True
    for cell in cells:
        scores = (cell.final, cell.avg) if with_avg else (cell.final,)
        numbers = (text for score in scores for text in _score(score))
        table.add_row(name(cell), _block(cell), *numbers, _seeds(cell), style="yellow" if cell.problems else None)
    return table


def seconds(cells: Iterable[Cell]) -> Table:
    """Training time, also relative to the fastest row of equal CBP on the same device."""
    table = Table("row", "CBP", "seconds", "relative", "device", "seeds", box=None, pad_edge=False)
    for column in table.columns[1:4]:
        column.justify = "right"
    cells = list(cells)
    best: dict[object, float] = {}
    for cell in cells:
        if cell.seconds.mean is not None:
            best[_race(cell)] = min(cell.seconds.mean, best.get(_race(cell), cell.seconds.mean))
    for cell in cells:
        cbp, devices = _race(cell)
        relative = "–" if cell.seconds.mean is None else f"{cell.seconds.mean / best[cbp, devices]:.2f}"
        spent = "–" if cbp is None else short(cbp)
        table.add_row(name(cell), spent, spread(cell.seconds), relative, ", ".join(devices), _seeds(cell))
    return table


def name(cell: Cell) -> str:
    """A cell's row, and what we tuned of it."""
    if cell.tuning == "paper" or cell.config is None:
        return cell.label
    omega = "" if cell.config["omega"] is None else f", ω {cell.config['omega']:g}"
    return f"{cell.label}, tuned by us: lr {cell.config['lr']:g}{omega}"


def spread(score: Score | Spread | None) -> str:
    """Mean ± standard deviation.

    >>> spread(Spread(43.1, 0.3)), spread(Score({0: 50.68})), spread(None)
    ('43.1±0.3', '50.7', '–')
    """
    if score is None or score.mean is None:
        return "–"
    return f"{score.mean:.1f}" + ("" if score.std is None else f"±{score.std:.1f}")


def _score(score: Score) -> tuple[str, str, str]:
    difference = "–" if score.difference is None else f"{score.difference:+.1f}"
    return spread(score), spread(score.published), difference


def _block(cell: Cell) -> str:
    return "–" if cell.block is None else "{1}×{2}".format(*cell.block)


def _seeds(cell: Cell) -> str:
    return " ".join(map(str, cell.seeds)) or "–"


def _race(cell: Cell) -> tuple[int | None, tuple[str, ...]]:
    """What times may be compared by: CBP as planned, of which strategies spend a little less, and the device."""
    return max((run.result.cbp_planned for run in cell.runs.values()), default=None), tuple(sorted(cell.devices))
