"""Tables of a section: for a report, and for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from ocssl.common.console import short_count
from ocssl.results.names import heading, row_name, setting_text, style_name
from ocssl.results.read import Group, ResultFile
from ocssl.results.sections import Report, Row, Section
from ocssl.results.table import Table, TableColumn, TableRow, Value

NUMBERS = {"final": "Final", "avg": "Avg"}
NOTES = {
    "diff.": "ours less the paper’s",
    "tuned": "ours with lr and ω that we tuned",
    "b": "samples per step, b",
    "n_p": "steps per stream minibatch, n_p",
    "seeds": "seeds with a result that counts",
    "CBP": "cumulative backward passes, spent",
    "time, s": "training time of one run",
}
"""What the titles of columns mean."""


def report_table(section: Section, *, costs: bool = True) -> Table:
    """Ours, the paper's, the difference and the tuned, in the columns that are not empty.

    Args:
        costs: whether seeds, CBP and time have columns.
    """
    ranks = {
        (number, tuned): section.ranks(number, tuned=tuned == "tuned")
        for number in NUMBERS
        for tuned in ("ours", "tuned")
    }
    cells: list[dict[tuple[str, str], Value]] = []  # by group and title of the column
    for row in section.rows:
        groups = {"ours": row.ours, "tuned": row.tuned or Group()}
        found: dict[tuple[str, str], Value] = {}
        for number, name in NUMBERS.items():
            ours, tuned = (
                Value.over(getattr(group, number), rank=ranks[number, kind].get(row.name), files=group.paths)
                for kind, group in groups.items()
            )
            paper = row.published.get(number, Value())
            difference = Value(_difference(ours, paper), digits=1, signed=True)
            numbers = {"ours": ours, "paper": paper, "diff.": difference, "tuned": tuned}
            found |= {(f"{name}, %", title): value for title, value in numbers.items()}
        if section.block is None:
            found |= {
                ("", title): Value.count(row.block and row.block[place]) for title, place in (("b", 1), ("n_p", 2))
            }
        for kind, group in groups.items() if costs else ():
            spent = {"seeds": _seeds(group), "CBP": Value.count(group.cbp), "time, s": _seconds(group.seconds)}
            found |= {("" if kind == "ours" else kind, title): value for title, value in spent.items()}
        cells.append(found)
    used = [key for key in cells[0] if not all(found[key].empty for found in cells)] if cells else []
    columns = tuple(TableColumn(title, group, NOTES.get(title, "")) for group, title in used)
    rows = tuple(
        TableRow(
            section.label(row),
            tuple(found[key] for key in used),
            ranked=row.ranked,
            style=row.style,
            problems=tuple(problem.sentence for group in row.groups for problem in group.problems),
        )
        for row, found in zip(section.rows, cells, strict=True)
    )
    return Table(section.title, columns, rows, tuple(_notes(section)))


def _difference(ours: Value, paper: Value) -> float | None:
    return None if ours.mean is None or paper.mean is None else ours.mean - paper.mean


def _seeds(group: Group) -> Value:
    return Value(len(group.runs), text=" ".join(map(str, group.runs))) if group.runs else Value()


def _seconds(values: dict[int, float]) -> Value:
    """A training time, with a decimal where it is short."""
    mean = Value.over(values).mean
    return Value.over(values, digits=1 if mean is not None and mean < 10 else 0)


def _notes(section: Section) -> Iterator[str]:
    if section.shared:
        yield f"All rows: {', '.join(section.shared)}."
    same = " (as in the paper: the same runs)"
    tuned = [
        f"{section.label(row)}: {_tuned_words(row)}{same if row.tuned is row.ours else ''}"
        for row in section.rows
        if row.tuned and row.tuned.runs
    ]
    if tuned:
        yield f"Tuned: ours with lr and ω that we tuned. {'; '.join(tuned)}."
    uncommitted = [
        f"{section.label(row)}{', tuned' if group is not row.ours else ''}, seed {seed}"
        for row in section.rows
        for group in row.distinct
        for seed, run in group.runs.items()
        if not group.untrained and run.result.code.endswith("-dirty")
    ]
    if uncommitted:
        yield f"Run from code with changes that were not committed: {'; '.join(uncommitted)}."


def _tuned_words(row: Row) -> str:
    return ", ".join(setting_text(name, value) for name, value in row.tuned_values.items())


def runs_table(report: Report) -> Table:
    """Every result of a report, a row each."""
    words = [TableColumn(title, align="left") for title in ("data set", "objective", "budget", "protocol")]
    numbers = [TableColumn(title) for title in ("seed", "Final, %", "Avg, %", "CBP", "time, s")]
    rows = (_run_row(file, file.path in report.conflicting) for file in report.files)
    return Table("Every run", (*words, *numbers), tuple(rows), label="strategy")


def _run_row(file: ResultFile, conflicting: bool) -> TableRow:
    result = file.result
    name = row_name(result.strategy, result.memory)
    facets = {part: getattr(result, part) or "" for part in ("dataset", "method", "budget", "protocol")}
    time = _seconds({0: result.train_seconds})
    shared = None if file.runs_at_once == 1 else f"{time.plain()}, {file.runs_at_once} at once"
    values = (
        *(Value(text=heading(value) or "own") for value in facets.values()),
        Value(result.seed, digits=0),
        Value(result.final),
        Value(result.avg),
        Value.count(result.cbp_spent),
        Value(time.mean, digits=time.digits, text=shared),
    )
    flags = [f"on {result.measured_on} images"] if result.measured_on != "test" else []
    flags += ["disagrees with another file"] if conflicting else []
    return TableRow(result.title, values, style=style_name(name), flags=tuple(flags), facets=facets, files=(file.path,))


def terminal_table(section: Section) -> Table:
    """A section for a terminal, with tuned results in rows of their own."""
    rows = [(row.label, row, row.ours) for row in section.rows]
    rows += [
        (f"{row.label}, tuned by us: {_tuned_words(row)}", row, row.tuned)
        for row in section.rows
        if row.tuned is not None
    ]
    columns, values = (_times if section.table.shows == "seconds" else _accuracies)([found[1:] for found in rows])
    shown = (
        TableRow(label, (*cells, _seeds(group)), problems=tuple(problem.sentence for problem in group.problems))
        for (label, _, group), cells in zip(rows, values, strict=True)
    )
    title = f"{section.table.title}: {section.dataset}, {section.protocol} protocol"
    return Table(title, (*columns, TableColumn("seeds", align="left")), tuple(shown), label="row")


def _accuracies(rows: list[tuple[Row, Group]]) -> tuple[list[TableColumn], list[list[Value]]]:
    """Final and, where there is one, Avg: ours, the paper's and the difference."""
    with_avg = any(group.avg or "avg" in row.published for row, group in rows)
    numbers = {number: name for number, name in NUMBERS.items() if number == "final" or with_avg}
    titles = ["b×n_p", *(title for name in numbers.values() for title in (f"{name} %", "paper", "diff"))]
    values = []
    for row, group in rows:
        values.append([Value(text="{1}×{2}".format(*row.block)) if row.block else Value()])
        for number in numbers:
            ours, paper = Value.over(getattr(group, number), digits=1), row.published.get(number, Value())
            difference = _difference(ours, paper)
            values[-1] += [ours, paper, Value() if difference is None else Value(text=f"{difference:+.1f}")]
    return [TableColumn(title, align="left") for title in titles], values


def _times(rows: list[tuple[Row, Group]]) -> tuple[list[TableColumn], list[list[Value]]]:
    """Training times, also relative to the fastest row of equal planned CBP on the same device."""
    planned = [max((run.result.cbp_planned for run in group.runs.values()), default=None) for _, group in rows]
    times = [Value.over(group.seconds, digits=1) for _, group in rows]
    fastest: dict[object, float] = {}
    for (_, group), cbp, time in zip(rows, planned, times, strict=True):
        if time.mean is not None:
            fastest[cbp, group.devices] = min(time.mean, fastest.get((cbp, group.devices), time.mean))
    values = [
        [
            Value() if cbp is None else Value(cbp, text=short_count(cbp)),
            time,
            Value() if time.mean is None else Value(time.mean / fastest[cbp, group.devices]),
            Value(text=", ".join(group.devices)),
        ]
        for (_, group), cbp, time in zip(rows, planned, times, strict=True)
    ]
    return [*map(TableColumn, ("CBP", "seconds", "relative")), TableColumn("device", align="left")], values
