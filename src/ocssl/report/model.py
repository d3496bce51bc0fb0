"""What a report shows: the paper's tables as far as there are results, every other result, and every problem.

A sheet is one table for one data set and one protocol, so that numbers of two protocols never stand in one column, one
line or one mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from ocssl.errors import DataError
from ocssl.paper import TABLES, Cell, Problem, Score, Store, Stored, Table, cells, read_store
from ocssl.report.names import file_name, spell
from ocssl.report.others import OTHER, other_cells
from ocssl.report.palette import look_name
from ocssl.runs.presets import row_name

BOUNDS = {"iid", "cassle", "cassle-r"}
"""What the paper prints in italics: told more than a stream tells, so out of the contest for the best number."""

SAME_BUDGET = 1.05


@dataclass(frozen=True)
class Line:
    """A row of a sheet: what the paper's lr and ω gave and, where we tuned them, what ours gave."""

    cell: Cell
    tuned: Cell | None = None

    @property
    def look(self) -> str:
        """The name under which the palette knows it."""
        return look_name(row_name(self.cell.config)) if self.cell.config else "random"

    @property
    def contends(self) -> bool:
        """Whether it takes part in the contest for the best number."""
        return self.cell.row.after is not None or self.cell.strategy not in {*BOUNDS, None}

    @property
    def cells(self) -> tuple[Cell, ...]:
        """One or two."""
        return (self.cell, self.tuned) if self.tuned else (self.cell,)

    @property
    def tuned_as_paper(self) -> bool:
        """Whether what we tuned came out as the paper's lr and ω, so that both cells are of the same runs."""
        return self.tuned is not None and self.tuned.experiment == self.cell.experiment

    @property
    def drawn(self) -> tuple[Cell, ...]:
        """Those that figures show: the same runs are not drawn twice."""
        return (self.cell,) if self.tuned_as_paper else self.cells


@dataclass(frozen=True)
class Sheet:
    """One table for one data set and one protocol."""

    table: Table
    dataset: str
    protocol: str
    lines: tuple[Line, ...]

    @property
    def id(self) -> str:
        """Unique in a report, and fit for a file's name."""
        return f"{file_name(self.table.id)}-{file_name(self.dataset)}-{self.protocol}"

    @property
    def method(self) -> str:
        """The objective of those rows that do not bring their own; empty where all do."""
        return next((line.cell.method for line in self.lines if line.cell.method), "")

    @property
    def budget(self) -> str:
        """``high`` or ``low``; empty where rows have their own."""
        return str(self.table.settings.get("budget", ""))

    @property
    def title(self) -> str:
        """Data set and table."""
        return f"{spell(self.dataset)}, {self.table.title}"

    @property
    def family(self) -> str:
        """What it has in common with sheets of other budgets; runs outside the paper's tables keep to themselves."""
        return self.title if self.is_other else ", ".join(spell(name) for name in (self.dataset, self.method) if name)

    @property
    def block(self) -> tuple[int, int, int] | None:
        """b_s, b and n_p where all rows share them."""
        found = {line.cell.block for line in self.lines if line.cell.block}
        return found.pop() if len(found) == 1 else None

    def label(self, line: Line) -> str:
        """The row's name; where two share it (i.i.d. at both blocks of the low budget), with b."""
        twins = [other for other in self.lines if other.cell.label == line.cell.label]
        if len(twins) == 1 or not line.cell.block:
            return line.cell.label
        return f"{line.cell.label}, b = {line.cell.block[1]}"

    @property
    def is_other(self) -> bool:
        """Whether the paper has no such table."""
        return self.table.id.startswith(OTHER)

    @property
    def is_ablation(self) -> bool:
        """Whether rows are variants of a few strategies, which colours cannot tell apart."""
        looks = [line.look for line in self.lines]
        return not self.is_other and len(set(looks)) < len(looks) - 1

    @property
    def compares_budgets(self) -> bool:
        """Whether its rows may stand in one figure against CBP: strategies as they are, at whatever budget."""
        return not self.is_ablation or self.table.id.startswith("passes")

    def runs(self) -> set[Path]:
        """Files of the results in it."""
        return {run.path for line in self.lines for cell in line.cells for run in cell.runs.values()}

    def problems(self) -> set[Problem]:
        """DatasetInfo results that would be in it."""
        return {problem for line in self.lines for cell in line.cells for problem in cell.problems}

    def podium(self, number: str, tuned: bool = False) -> dict[str, str]:
        """Which row is ``best`` and which ``second`` in ``final`` or ``avg``; rows of equal print share a place.

        There is a contest only where all that take part had the same budget and saw the same stream.

        Args:
            tuned: among what our own lr and ω gave.
        """
        cells = [line.tuned if tuned else line.cell for line in self.lines if line.contends]
        ran = [(cell, mean) for cell in cells if cell and (mean := _score(cell, number)) is not None]
        runs = [run.result for cell, _ in ran for run in cell.runs.values()]
        budgets = {run.cbp_planned for run in runs}
        if len(ran) < 2 or max(budgets) > SAME_BUDGET * min(budgets) or len({run.fingerprint for run in runs}) > 1:
            return {}
        scores = {cell.row.name: round(mean, 2) for cell, mean in ran}
        places = sorted(set(scores.values()), reverse=True)[:2]
        return {row: ("best", "second")[places.index(mean)] for row, mean in scores.items() if mean in places}


@dataclass(frozen=True)
class Report:
    """Everything that a report shows.

    Attributes:
        sheets: tables in the paper's order, then what belongs in none of them.
        results: every whole result, also those that contradict each other.
        problems: what a person has to look at; what is wrong or in dispute entered no number.
        disputed: files of results that contradict each other.
    """

    title: str
    sheets: tuple[Sheet, ...]
    results: tuple[Stored, ...]
    problems: tuple[Problem, ...]
    disputed: frozenset[Path] = frozenset()

    @property
    def latest(self) -> str:
        """The day on which the newest result was finished."""
        return max((stored.result.finished for stored in self.results), default="")[:10]


def read_report(folder: str | Path, title: str = "Online continual self-supervised learning") -> Report:
    """Read a folder of results.

    >>> read_report("no such folder")
    Traceback (most recent call last):
    ...
    ocssl.errors.DataError: 'no such folder' is not a folder of results
    """
    store = read_store(folder)
    if not store.results and not store.problems:
        raise DataError(f"'{folder}' holds no results; 'ocssl paper run' or 'ocssl run' makes some")
    sheets = tuple(_sheets(store))
    known = set(store.problems)
    more = sorted(
        {problem for sheet in sheets for problem in sheet.problems()} - known, key=lambda found: found.sentence
    )
    disputed = frozenset(path for problem in store.disputes.values() for path in problem.paths)
    return Report(title, sheets, store.results, (*store.problems, *more), disputed)


def _sheets(store: Store) -> Iterable[Sheet]:
    """Those with a run or a problem that no table before showed: a few runs belong in many of the paper's tables.

    Training times are a column and a figure of their own, so tables of times are left to those.
    """
    shown: set[Path | Problem] = set()
    filled = [cell for table in TABLES.values() if table.shows == "accuracy" for cell in cells(store, table)]
    claimed = {cell.experiment for cell in filled if cell.runs or cell.problems}
    for sheet in _grouped([*filled, *other_cells(store, claimed)]):
        content = sheet.runs() | sheet.problems()
        if content - shown:
            shown |= content
            yield sheet


def _grouped(found: list[Cell]) -> Iterable[Sheet]:
    for (_, dataset, protocol), together in groupby(
        found, key=lambda cell: (cell.table.id, cell.dataset, cell.protocol)
    ):
        group = list(together)
        tuned = {cell.row.name: cell for cell in group if cell.tuning == "own"}
        lines = tuple(Line(cell, tuned.get(cell.row.name)) for cell in group if cell.tuning == "paper")
        yield Sheet(group[0].table, dataset, protocol, lines)


def _score(cell: Cell, number: str) -> float | None:
    score: Score = getattr(cell, number)
    return score.mean
