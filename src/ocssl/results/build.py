"""Tables of a section: for a report, and for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from ocssl.common.console import short_count
from ocssl.errors import ConfigError
from ocssl.registry import unknown
from ocssl.results.differences import LEAST_SEEDS, LEVEL, paired_difference, seed_mean
from ocssl.results.names import heading, row_name, setting_text, style_name
from ocssl.results.read import Group, ResultFile
from ocssl.results.report import Report
from ocssl.results.sections import Row, Section
from ocssl.results.table import Table, TableColumn, TableRow, Value

NUMBERS = {"final": "Final", "avg": "Avg"}
KNN = {"knn_final": "k-NN Final", "knn_avg": "k-NN Avg"}
LEGEND = (
    "Accuracies are in percent: Final and Avg by linear probe, k-NN beside them. Ours is the mean ± sample standard "
    "deviation (divided by n − 1) over seeds; the authors’ code divides by n. The paper’s numbers are of the authors’ "
    "protocol.",
    f"Bold: the highest mean, and every row whose difference to it, paired over at least {LEAST_SEEDS} common seeds, "
    f"has a {100 * LEVEL:.0f} % t-interval that contains 0. Rows with fewer seeds are not compared; nothing is bold "
    "where the highest mean is one of theirs, or where budgets differ.",
    "Rows in italics use more than the stream, or are floors, and are not compared.",
)
"""What numbers, bold and italics mean, in every format."""
NOTES = {
    "diff.": "ours less the paper’s",
    "tuned": "ours with lr and ω that we tuned",
    "b": "samples per step, b",
    "n_p": "steps per stream minibatch, n_p",
    "seeds": "seeds with a result that counts",
    "CBP": "cumulative backward passes, spent",
    "time, s": "training time of one run",
    "forgetting": "mean drop of each experience’s accuracy from its best, in points",
}
"""What the titles of columns mean."""

UNPAIRED = (
    "Empty rows have no seed in common with the other row, or differ from it in data set, protocol, images or crops."
)
"""Said below a table of differences that has such rows."""
ALONE = "There is no other row to compare with."

Best = Mapping[tuple[str, str], set[str]]
"""The rows that are bold, by number and by ``ours`` or ``tuned``."""


def report_table(section: Section, *, costs: bool = True) -> Table:
    """Ours, the paper's, the difference and the tuned, k-NN and forgetting, in the columns that are not empty.

    With ``costs`` also seeds, CBP and time.
    """
    best = _best(section)
    shown = (*section.rows, *section.floors)
    cells = [_report_cells(section, row, best, costs) for row in shown]
    used = [key for key in cells[0] if not all(found[key].empty for found in cells)]
    columns = tuple(
        TableColumn(title, group, NOTES.get(title, ""), align="left" if title == "seeds" else "right")
        for group, title in used
    )
    rows = tuple(
        TableRow(
            section.label(row),
            tuple(found[key] for key in used),
            ranked=row.ranked,
            style=row.style,
            problems=tuple(problem.sentence for group in row.groups for problem in group.problems),
        )
        for row, found in zip(shown, cells, strict=True)
    )
    return Table(section.title, columns, rows, tuple(_notes(section)))


def _report_cells(section: Section, row: Row, best: Best, costs: bool) -> dict[tuple[str, str], Value]:
    """The values of a row by group and title of their columns, in the order of the columns."""
    groups = {"ours": row.ours, "tuned": row.tuned or Group()}
    values = {
        (number, kind): Value.over(getattr(groups[kind], number), best=row.name in names, files=groups[kind].paths)
        for (number, kind), names in best.items()
    }
    marks = {"ours": "", "tuned": " tuned"}
    cells: dict[tuple[str, str], Value] = {}
    for number, name in NUMBERS.items():
        ours, paper = values[number, "ours"], row.published.get(number, Value())
        cells[f"{name}, %", "ours"] = ours
        cells[f"{name}, %", "paper"] = paper
        cells[f"{name}, %", "diff."] = difference(ours, paper)
        cells[f"{name}, %", "tuned"] = values[number, "tuned"]
    for kind, mark in marks.items():
        for number, name in KNN.items():
            cells["k-NN, %", name.removeprefix("k-NN ") + mark] = values[number, kind]
    for kind, mark in marks.items():
        cells["", "forgetting" + mark] = Value.over(groups[kind].forgetting)
    if section.block is None:
        cells["", "b"] = Value.count(row.block and row.block[1])
        cells["", "n_p"] = Value.count(row.block and row.block[2])
    for kind, group in groups.items() if costs else ():
        above = "" if kind == "ours" else kind
        cells[above, "seeds"] = named_seeds(group.runs)
        cells[above, "CBP"] = Value.count(group.cbp)
        cells[above, "time, s"] = _seconds(group.seconds)
    return cells


def _best(section: Section) -> Best:
    return {
        (number, kind): section.best(number, tuned=kind == "tuned")
        for number in (*NUMBERS, *KNN)
        for kind in ("ours", "tuned")
    }


def difference(ours: Value, paper: Value) -> Value:
    """Ours less the paper’s; empty where one of them is."""
    if ours.mean is None or paper.mean is None:
        return Value()
    return Value(ours.mean - paper.mean, digits=1, signed=True)


def named_seeds(seeds: Iterable[int]) -> Value:
    """Seeds by number, so that a reader sees which are missing."""
    return Value(text=" ".join(map(str, seeds)) or None)


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
    uncommitted = []
    for row in section.rows:
        for group in row.distinct:
            seeds = [seed for seed, run in group.runs.items() if run.result.code.endswith("-dirty")]
            if seeds and not group.floor:
                uncommitted.append(
                    f"{section.group_label(row, group)}, seed{'s' * (len(seeds) > 1)} {' '.join(map(str, seeds))}"
                )
    if uncommitted:
        yield f"Run from code with changes that were not committed: {'; '.join(uncommitted)}."


def seeds_note(section: Section) -> str:
    """Which seeds the rows have, for a table that has no column for them."""
    labels: dict[str, list[str]] = {}
    for row in section.rows:
        for group in row.distinct:
            if group.runs and not group.floor:
                labels.setdefault(named_seeds(group.runs).plain(), []).append(section.group_label(row, group))
    if len(labels) == 1:
        return f"Seeds: {', '.join(labels)}."
    return " ".join(f"Seeds {seeds}: {'; '.join(having).removesuffix('.')}." for seeds, having in labels.items())


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


class _TerminalRow(NamedTuple):
    """A row on a terminal: results of a row of a section, with the paper's lr and ω or with ours."""

    label: str
    row: Row
    group: Group
    kind: Literal["ours", "tuned"]


def terminal_table(section: Section) -> Table:
    """A section for a terminal, with tuned results in rows of their own."""
    rows = _terminal_rows(section)
    if section.table.shows == "seconds":
        columns, values = _times([one.group for one in rows])
    else:
        columns, values = _accuracies(rows, _best(section))
    shown = (
        TableRow(
            one.label,
            (*cells, named_seeds(one.group.runs)),
            ranked=one.row.ranked,
            problems=tuple(problem.sentence for problem in one.group.problems),
        )
        for one, cells in zip(rows, values, strict=True)
    )
    title = f"{section.table.title}: {section.dataset}, {section.protocol} protocol"
    return Table(title, (*columns, TableColumn("seeds", align="left")), tuple(shown), label="row")


def _terminal_rows(section: Section) -> list[_TerminalRow]:
    rows = [_TerminalRow(section.label(row), row, row.ours, "ours") for row in section.rows]
    rows += [
        _TerminalRow(f"{section.label(row)}, tuned by us: {_tuned_words(row)}", row, row.tuned, "tuned")
        for row in section.rows
        if row.tuned is not None
    ]
    return rows + [_TerminalRow(row.label, row, row.ours, "ours") for row in section.floors]


def section_differences(section: Section, to: str) -> Table:
    """:func:`differences_table` of a section's rows, to one of them by name or label, or to the ``best``."""
    named = {row.name: section.label(row) for row in (*section.rows, *section.floors)}
    return differences_table({one.label: one.group for one in _terminal_rows(section)}, named.get(to, to))


def differences_table(groups: Mapping[str, Group], to: str) -> Table:
    """Differences of all groups to one of them, paired over seeds: a row for each group and number that both have.

    The one is named by its label, or is the ``best``, with the highest Final. A row is empty where the two have no
    common seed, or were measured in different ways.
    """
    finals = {label: seed_mean(group.final) for label, group in groups.items() if group.final and not group.floor}
    if to == "best" and len({groups[label].files[0].result.measure for label in finals}) > 1:
        raise ConfigError(
            "no row is the best, since they differ in data set, protocol, images or crops; name one instead of 'best'"
        )
    if to == "best" and not finals:
        raise ConfigError("no row is the best, since none has a Final; leave the differences out")
    chosen = max(finals, key=lambda label: finals[label]) if to == "best" else to
    if chosen not in groups:
        raise unknown("row", to, ("best", *groups))
    rows = tuple(
        TableRow(f"{label}, {name}", _paired(group, groups[chosen], number))
        for label, group in groups.items()
        for number, name in {**NUMBERS, **KNN}.items()
        if label != chosen and getattr(group, number) and getattr(groups[chosen], number)
    )
    title = f"Differences to {chosen}, in points: mean over common seeds and its {100 * LEVEL:.0f} % t-interval"
    columns = (*map(TableColumn, ("difference", "from", "to")), TableColumn("seeds", align="left"))
    notes = (UNPAIRED,) if any(row.values[0].empty for row in rows) else () if rows else (ALONE,)
    return Table(title, columns, rows, notes, label="row")


def _paired(group: Group, other: Group, number: str) -> tuple[Value, ...]:
    """The difference of a number, the ends of its interval, and the seeds that it is paired over."""
    ours, theirs = getattr(group, number), getattr(other, number)
    compares = group.floor or other.floor or group.files[0].result.measure == other.files[0].result.measure
    found = paired_difference(ours, theirs) if compares else None
    if found is None:
        return (Value(),) * 4
    ends = (Value(end, signed=True) if found.n > 1 else Value() for end in (found.low, found.high))
    return Value(found.mean, signed=True), *ends, named_seeds(seed for seed in ours if seed in theirs)


def _accuracies(rows: list[_TerminalRow], best: Best) -> tuple[list[TableColumn], list[list[Value]]]:
    """Final and, where there is one, Avg: ours, the paper's and the difference; k-NN and forgetting."""
    with_avg = any(one.group.avg or "avg" in one.row.published for one in rows)
    numbers = NUMBERS if with_avg else {"final": NUMBERS["final"]}
    beside = KNN if with_avg else {"knn_final": KNN["knn_final"]}
    titles = ["b×n_p", *(title for name in numbers.values() for title in (f"{name} %", "paper", "diff"))]
    titles += [*beside.values(), *(["forgetting"] if with_avg else [])]
    values = []
    for one in rows:
        found = {
            number: Value.over(getattr(one.group, number), digits=1, best=one.row.name in best[number, one.kind])
            for number in (*numbers, *beside)
        }
        cells = [Value(text="{1}×{2}".format(*one.row.block)) if one.row.block else Value()]
        for number in numbers:
            paper = one.row.published.get(number, Value())
            cells += [found[number], paper, difference(found[number], paper)]
        cells += [found[number] for number in beside]
        cells += [Value.over(one.group.forgetting, digits=1)] if with_avg else []
        values.append(cells)
    return [TableColumn(title, align="left") for title in titles], values


def _times(groups: list[Group]) -> tuple[list[TableColumn], list[list[Value]]]:
    """Training times, also relative to the fastest row of equal planned CBP on the same device."""
    planned = [max((run.result.cbp_planned for run in group.runs.values()), default=None) for group in groups]
    times = [Value.over(group.seconds, digits=1) for group in groups]
    fastest: dict[object, float] = {}
    for group, cbp, time in zip(groups, planned, times, strict=True):
        if time.mean is not None:
            fastest[cbp, group.devices] = min(time.mean, fastest.get((cbp, group.devices), time.mean))
    values = [
        [
            Value() if cbp is None else Value(cbp, text=short_count(cbp)),
            time,
            Value() if time.mean is None else Value(time.mean / fastest[cbp, group.devices]),
            Value(text=", ".join(group.devices)),
        ]
        for group, cbp, time in zip(groups, planned, times, strict=True)
    ]
    return [*map(TableColumn, ("CBP", "seconds", "relative")), TableColumn("device", align="left")], values
