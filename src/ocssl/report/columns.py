"""The columns of a sheet, once for every format: each row gives an entry, and a format only has to spell it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from ocssl.paper import Cell, Score
from ocssl.report.model import Line, Sheet
from ocssl.runs.config import RunConfig

Place = Literal["best", "second"]


@dataclass(frozen=True)
class Entry:
    """One entry of a table.

    Attributes:
        number: what it is about and what it is sorted by; None where there is nothing.
        spread: standard deviation over seeds.
        digits: after the point; None for text and for counts, which `text` spells.
        signed: whether a plus is written.
        place: in the contest for the best number of its column.
        cell: whose runs stand behind it.
    """

    number: float | None = None
    spread: float | None = None
    digits: int = 2
    signed: bool = False
    text: str | None = None
    place: str | None = None
    cell: Cell | None = None

    def plain(self) -> str:
        """Without spread and without emphasis.

        >>> Entry(7.541, digits=1, signed=True).plain(), Entry(-0.04, digits=1, signed=True).plain()
        ('+7.5', '0.0')
        """
        if self.text is not None:
            return self.text
        if self.number is None:
            return "–"
        rounded = round(self.number, self.digits) + 0.0  # no minus before a zero
        sign = "+" if self.signed and rounded > 0 else ""
        return f"{sign}{rounded:.{self.digits}f}".replace("-", "−")

    def spread_text(self) -> str:
        """The standard deviation; empty where there is none."""
        return "" if self.spread is None else f"{self.spread:.{self.digits}f}"


@dataclass(frozen=True)
class Column:
    """A column of a sheet; `group` heads it together with its neighbours."""

    group: str
    title: str
    entry: Callable[[Line], Entry]
    note: str = ""


def columns(sheet: Sheet, *, costs: bool = True) -> list[Column]:
    """The columns that this sheet has something to put into, after the row's name.

    Args:
        costs: seeds, CBP and time as well, those of tuned runs apart.
    """
    found = [
        *_numbers(sheet, "Final", "final"),
        *_numbers(sheet, "Avg", "avg"),
        *(() if sheet.block else BLOCK),
        *((*COSTS, *TUNED_COSTS) if costs else ()),
    ]
    return [column for column in found if any(column.entry(line).number is not None for line in sheet.lines)]


def notes(sheet: Sheet) -> list[str]:
    """What has to be said under a sheet."""
    return [note for note in (tuned_note(sheet), _uncommitted(sheet)) if note]


def _uncommitted(sheet: Sheet) -> str:
    """Which runs came from code that nobody can get back; empty without such runs."""
    found = [
        f"{sheet.label(line)}{', tuned' if cell is line.tuned else ''}, seed {seed}"
        for line in sheet.lines
        for cell in line.drawn
        for seed, run in cell.runs.items()
        if cell.config and run.result.code.endswith("-dirty")
    ]
    return f"Run from code with changes that were not committed: {'; '.join(found)}." if found else ""


SAME_RUNS = " (as in the paper: the same runs)"


def tuned_note(sheet: Sheet) -> str:
    """What stands in the columns of tuned runs: each row's lr and ω; empty without such runs."""
    rows = [
        f"{sheet.label(line)}: {_tuned_values(line.tuned.config)}{SAME_RUNS if line.tuned_as_paper else ''}"
        for line in sheet.lines
        if line.tuned and line.tuned.config and line.tuned.runs
    ]
    return f"Tuned: ours with lr and ω that we tuned. {'; '.join(rows)}." if rows else ""


def _tuned_values(config: RunConfig) -> str:
    omega = "" if config["omega"] is None else f", ω {config['omega']:g}"
    return f"lr {config['lr']:g}{omega}"


def _numbers(sheet: Sheet, group: str, name: str) -> Iterator[Column]:
    title = f"{group}, %"
    yield Column(title, "ours", _score(sheet, name))
    yield Column(title, "paper", lambda line: _published(getattr(line.cell, name)))
    yield Column(
        title,
        "diff.",
        lambda line: Entry(getattr(line.cell, name).difference, digits=1, signed=True),
        "ours less the paper’s",
    )
    yield Column(title, "tuned", _score(sheet, name, tuned=True), "ours with lr and ω that we tuned")


def _score(sheet: Sheet, name: str, *, tuned: bool = False) -> Callable[[Line], Entry]:
    podium = sheet.podium(name, tuned=tuned)

    def entry(line: Line) -> Entry:
        cell = line.tuned if tuned else line.cell
        if cell is None:
            return Entry()
        score: Score = getattr(cell, name)
        return Entry(score.mean, score.std, place=podium.get(cell.row.name), cell=cell)

    return entry


def _published(score: Score) -> Entry:
    return Entry(score.published.mean, score.published.std, digits=1) if score.published else Entry()


def _batch(line: Line) -> Entry:
    return _count(line.cell.block[1]) if line.cell.block else Entry()


def _passes(line: Line) -> Entry:
    return _count(line.cell.block[2]) if line.cell.block else Entry()


def _seeds(cell: Cell) -> Entry:
    return Entry(len(cell.seeds), text=" ".join(map(str, cell.seeds))) if cell.seeds else Entry()


def _cbp(cell: Cell) -> Entry:
    spent = spent_by(cell)
    return Entry() if spent is None else _count(round(spent))


def _seconds(cell: Cell) -> Entry:
    return seconds_entry(cell.seconds.mean, cell.seconds.std)


def seconds_entry(seconds: float | None, spread: float | None = None) -> Entry:
    """A time, with a digit more where it is short."""
    return Entry(seconds, spread, digits=1 if seconds is not None and seconds < 10 else 0)


def _count(value: int) -> Entry:
    return Entry(value, text=f"{value:,}")


BLOCK = (
    Column("", "b", _batch, "samples per step, b"),
    Column("", "n_p", _passes, "steps per stream minibatch, n_p"),
)
"""Columns of sheets whose rows differ in these."""


def _costs(group: str, cell_of: Callable[[Line], Cell | None]) -> tuple[Column, ...]:
    def of(entry: Callable[[Cell], Entry]) -> Callable[[Line], Entry]:
        return lambda line: entry(cell) if (cell := cell_of(line)) else Entry()

    return (
        Column(group, "seeds", of(_seeds), "seeds with a result that counts"),
        Column(group, "CBP", of(_cbp), "cumulative backward passes, spent"),
        Column(group, "time, s", of(_seconds), "training time of one run"),
    )


COSTS = _costs("", lambda line: line.cell)
TUNED_COSTS = _costs("tuned", lambda line: line.tuned)


def spent_by(cell: Cell) -> float | None:
    """CBP of one run of a cell; None without runs, and for the untrained encoder, which spent none."""
    if cell.config is None or not cell.runs:
        return None
    return sum(run.result.cbp_spent for run in cell.runs.values()) / len(cell.runs)
