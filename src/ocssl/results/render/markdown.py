"""Tables and a whole report as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ocssl.common.console import number_of
from ocssl.common.files import MARK
from ocssl.results.build import LEGEND, report_table
from ocssl.results.claims import BASIS, Claim, claims
from ocssl.results.names import heading
from ocssl.results.report import Report
from ocssl.results.summary import TERMS, summary
from ocssl.results.table import Table, Value


def to_markdown(table: Table) -> str:
    """The table alone, without its title and notes.

    >>> from ocssl.results.table import TableColumn, TableRow
    >>> rows = (TableRow("CLA-E", (Value(50.761, best=True),)),)
    >>> print(to_markdown(Table("", (TableColumn("Final"),), rows)), end="")
    |  | Final |
    | --- | --: |
    | CLA-E | **50.76** |
    """
    lines = [[table.label, *(column.heading for column in table.columns)]]
    lines.append(["---", *("--:" if column.align == "right" else "---" for column in table.columns)])
    for row in table.rows:
        label = escape(row.label)
        lines.append([label if row.ranked else f"*{label}*", *map(_cell, row.values)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def markdown_report(report: Report, figures: Sequence[str] = ()) -> str:
    """Problems, what was found, tables and links to figures, whose files are given relative to the page."""
    return "\n".join([*_page(report, figures), ""])


def _page(report: Report, figures: Sequence[str]) -> Iterator[str]:
    yield f"# {escape(report.title)}"
    yield ""
    yield f"<!-- {MARK} -->"
    yield ""
    found = number_of(len(report.files), "result")
    yield f"{found}, the newest of {report.latest}." if report.files else "No results."
    if report.problems:
        yield from ("", "## Problems", "", "Files with a problem and results in conflict did not enter a number.", "")
        yield from (f"- {escape(report.sentence(problem))}" for problem in report.problems)
    yield from _found(report)
    for section in report.sections:
        table = report_table(section)
        yield from ("", f"## {escape(table.title)}, {heading(section.protocol)} protocol", "")
        if section.block:
            yield from ("b_s = {}, b = {}, n_p = {}.".format(*section.block), "")
        yield to_markdown(table).rstrip("\n")
        for note in table.notes:
            yield from ("", escape(note))
    if report.sections:
        yield from ("", " ".join(map(escape, LEGEND)))
    if figures:
        yield from ("", "## Figures")
        for figure in figures:
            yield from ("", f"![{escape(figure)}]({figure})")


def _found(report: Report) -> Iterator[str]:
    """The opening: what the tables say, and the paper's claims with their answers."""
    said, answered = summary(report.sections), claims(report.store)
    if said:
        yield from ("", "## What was found", "", TERMS, "", *(f"- {escape(sentence)}" for sentence in said))
    if any(claim.comparisons for claim in answered):
        yield from ("", "## The paper’s claims", "", escape(BASIS), "", *claim_lines(answered))


def claim_lines(answered: Iterable[Claim]) -> Iterator[str]:
    """A list of claims, each with its answer and a list of what was compared."""
    for claim in answered:
        yield f"- {escape(claim.text)} **{claim.said[:1].upper()}{claim.said[1:]}.**"
        yield from (f"    - {escape(sentence)}" for sentence in claim.evidence)


def _cell(value: Value) -> str:
    text = escape(value.plain())
    return (f"**{text}**" if value.best else text) + value.spread(" ± ")


def escape(text: str) -> str:
    """Text that Markdown leaves as it is.

    >>> escape("a|b_c <i>")
    'a\\\\|b\\\\_c &lt;i>'
    """
    for letter in "\\`*_|[]":
        text = text.replace(letter, f"\\{letter}")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")
