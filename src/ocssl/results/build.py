"""Tables of a section: for a report, and for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ocssl.common.console import short_count
from ocssl.results.names import heading, row_label, row_name
from ocssl.results.read import Group, ResultFile
from ocssl.results.sections import Report, Row, Section
from ocssl.results.styles import style_name
from ocssl.results.table import MISSING, Table, TableColumn, TableRow, Value

Cells = tuple[TableColumn, Callable[[Row], Value]]


def report_table(section: Section, *, costs: bool = True) -> Table:
    """Ours, the paper's, the difference and the tuned, with the columns that have something in them.

    Args:
        costs: whether seeds, CBP and time have columns.
    """
    cells = [*_numbers(section, "Final", "final"), *_numbers(section, "Avg", "avg")]
    if section.block is None:
        cells += [
            (TableColumn("b", note="samples per step, b"), lambda row: Value.count(row.block and row.block[1])),
            (
                TableColumn("n_p", note="steps per stream minibatch, n_p"),
                lambda row: Value.count(row.block and row.block[2]),
            ),
        ]
    if costs:
        cells += [*_costs("", lambda row: row.ours), *_costs("tuned", lambda row: row.tuned)]
    used = [(column, value) for column, value in cells if not all(value(row).empty for row in section.rows)]
    rows = [
        TableRow(
            section.label(row),
            tuple(value(row) for _, value in used),
            ranked=row.ranked,
            style=row.style,
            problems=tuple(problem.sentence for group in row.groups for problem in group.problems),
        )
        for row in section.rows
    ]
    notes = tuple(filter(None, (_tuned_note(section), _uncommitted_note(section))))
    return Table(section.title, tuple(column for column, _ in used), tuple(rows), notes)


def _numbers(section: Section, group: str, number: str) -> Iterator[Cells]:
    title = f"{group}, %"
    yield TableColumn("ours", title), _ours(section, number, lambda row: row.ours)
    yield TableColumn("paper", title), lambda row: row.published.get(number, Value())
    yield (
        TableColumn("diff.", title, "ours less the paper’s"),
        lambda row: Value(row.difference(number), digits=1, signed=True),
    )
    note = "ours with lr and ω that we tuned"
    yield TableColumn("tuned", title, note), _ours(section, number, lambda row: row.tuned, tuned=True)


def _ours(
    section: Section, number: str, group_of: Callable[[Row], Group | None], *, tuned: bool = False
) -> Callable[[Row], Value]:
    ranks = section.ranks(number, tuned=tuned)

    def value(row: Row) -> Value:
        group = group_of(row)
        if group is None:
            return Value()
        files = tuple(run.path for run in group.runs.values())
        return Value.over(getattr(group, number), rank=ranks.get(row.name), files=files)

    return value


def _costs(title: str, group_of: Callable[[Row], Group | None]) -> Iterator[Cells]:
    def of(value: Callable[[Group], Value]) -> Callable[[Row], Value]:
        return lambda row: value(group) if (group := group_of(row)) else Value()

    yield TableColumn("seeds", title, "seeds with a result that counts"), of(seeds)
    yield TableColumn("CBP", title, "cumulative backward passes, spent"), of(lambda group: Value.count(group.cbp))
    yield TableColumn("time, s", title, "training time of one run"), of(lambda group: seconds(group.seconds))


def seeds(group: Group) -> Value:
    """The seeds that count."""
    return Value(len(group.runs), text=" ".join(map(str, group.runs))) if group.runs else Value()


def seconds(values: dict[int, float]) -> Value:
    """A training time, with a decimal where it is short."""
    mean = Value.over(values).mean
    return Value.over(values, digits=1 if mean is not None and mean < 10 else 0)


def _uncommitted_note(section: Section) -> str:
    """The runs of code that no commit has; empty without such runs."""
    found = [
        f"{section.label(row)}{', tuned' if group is row.tuned and group is not row.ours else ''}, seed {seed}"
        for row in section.rows
        for group in row.distinct
        for seed, run in group.runs.items()
        if not group.untrained and run.result.code.endswith("-dirty")
    ]
    return f"Run from code with changes that were not committed: {'; '.join(found)}." if found else ""


def _tuned_note(section: Section) -> str:
    """lr and ω of the tuned columns; empty without tuned runs."""
    same = " (as in the paper: the same runs)"
    rows = [
        f"{section.label(row)}: {_tuned_words(row)}{same if row.tuned_as_paper else ''}"
        for row in section.rows
        if row.tuned and row.tuned.runs
    ]
    return f"Tuned: ours with lr and ω that we tuned. {'; '.join(rows)}." if rows else ""


def _tuned_words(row: Row) -> str:
    symbols = {"lr": "lr", "omega": "ω"}
    return ", ".join(f"{symbols[name]} {value:g}" for name, value in row.tuned_values.items())


def runs_table(report: Report) -> Table:
    """Every result of a report, a row each."""
    words = [TableColumn(title, align="left") for title in ("data set", "objective", "budget", "protocol")]
    numbers = [TableColumn(title) for title in ("seed", "Final, %", "Avg, %", "CBP", "time, s")]
    rows = (_run_row(file, file.path in report.conflicting) for file in report.files)
    return Table("Every run", (*words, *numbers), tuple(rows), label="strategy")


def _run_row(file: ResultFile, conflicting: bool) -> TableRow:
    result = file.result
    name = row_name(result.strategy, result.memory)
    facets = {
        "dataset": result.dataset,
        "method": result.method or "",
        "budget": result.budget,
        "protocol": result.protocol,
    }
    time = seconds({0: result.train_seconds})
    shared = None if file.runs_at_once == 1 else f"{time.plain()}, {file.runs_at_once} at once"
    values = (
        *(Value(text=heading(value) or "own") for value in facets.values()),
        Value(result.seed, text=str(result.seed)),
        Value(result.final),
        Value(result.avg),
        Value.count(result.cbp_spent),
        Value(time.mean, digits=time.digits, text=shared),
    )
    flags = [f"on {result.measured_on} images"] if result.measured_on != "test" else []
    flags += ["disagrees with another file"] if conflicting else []
    return TableRow(
        row_label(name), values, style=style_name(name), flags=tuple(flags), facets=facets, files=(file.path,)
    )


def accuracy_table(section: Section) -> Table:
    """A section for a terminal: Final and, where there is one, Avg; tuned results in rows of their own."""
    numbers = {"final": "Final %"}
    if any(row.ours.avg or "avg" in row.published or (row.tuned and row.tuned.avg) for row in section.rows):
        numbers["avg"] = "Avg %"
    titles = ["b×n_p", *(title for number in numbers.values() for title in (number, "paper", "diff")), "seeds"]
    rows = []
    for label, row, group in _terminal_rows(section):
        values = [Value(text="{1}×{2}".format(*row.block) if row.block else MISSING)]
        for number in numbers:
            ours, paper = Value.over(getattr(group, number), digits=1), row.published.get(number, Value())
            known = ours.mean is not None and paper.mean is not None
            difference = Value(text=f"{ours.mean - paper.mean:+.1f}") if known else Value()  # type: ignore[operator]
            values += [ours, paper, difference]
        problems = tuple(problem.sentence for problem in group.problems)
        rows.append(TableRow(label, (*values, seeds(group)), problems=problems))
    columns = tuple(TableColumn(title, align="left") for title in titles)
    return Table(_terminal_title(section), columns, tuple(rows), label="row")


def seconds_table(section: Section) -> Table:
    """Training times for a terminal, also relative to the fastest row of equal CBP on the same device."""
    found = [(label, group, _race(group)) for label, _, group in _terminal_rows(section)]
    fastest: dict[object, float] = {}
    for _, group, race in found:
        if group.seconds:
            mean = Value.over(group.seconds).mean or 0
            fastest[race] = min(mean, fastest.get(race, mean))
    rows = []
    for label, group, race in found:
        spent, devices = race
        time = Value.over(group.seconds, digits=1)
        values = (
            Value() if spent is None else Value(spent, text=short_count(spent)),
            time,
            Value() if time.mean is None else Value(time.mean / fastest[race]),
            Value(text=", ".join(devices)),
            seeds(group),
        )
        rows.append(TableRow(label, values))
    columns = (
        *(TableColumn(title) for title in ("CBP", "seconds", "relative")),
        *(TableColumn(title, align="left") for title in ("device", "seeds")),
    )
    return Table(_terminal_title(section), columns, tuple(rows), label="row")


def _race(group: Group) -> tuple[int | None, tuple[str, ...]]:
    """Times compare at equal CBP as planned, of which strategies spend a little less, and on one device."""
    return max((run.result.cbp_planned for run in group.runs.values()), default=None), group.devices


def _terminal_rows(section: Section) -> Iterable[tuple[str, Row, Group]]:
    yield from ((row.label, row, row.ours) for row in section.rows)
    for row in section.rows:
        if row.tuned is not None:
            yield f"{row.label}, tuned by us: {_tuned_words(row)}", row, row.tuned


def _terminal_title(section: Section) -> str:
    return f"{section.table.title}: {section.dataset}, {section.protocol} protocol"
