"""A report as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ocssl.report.columns import Entry, columns, notes
from ocssl.report.model import Report, Sheet
from ocssl.report.names import spell

EMPHASIS = {"best": "**{}**", "second": "<u>{}</u>"}
LEGEND = (
    "Accuracies are in percent, mean ± standard deviation over seeds. **Best**, <u>second best</u>; *italic* rows are "
    "told more than a stream tells and take no part."
)


def to_markdown(report: Report, figures: Sequence[str] = ()) -> str:
    """Tables, problems and links to figures.

    Args:
        figures: files to show, relative to the page.
    """
    return "\n".join([*_page(report, figures), ""])


def _page(report: Report, figures: Sequence[str]) -> Iterator[str]:
    yield f"# {escape(report.title)}"
    yield ""
    yield f"{len(report.results)} results, the newest of {report.latest}." if report.results else "No results."
    if report.problems:
        yield from ("", "## Problems", "", "What is wrong or in dispute did not enter a number.", "")
        yield from (f"- {escape(problem.sentence)}" for problem in report.problems)
    for sheet in report.sheets:
        yield from ("", f"## {escape(sheet.title)}", "", f"Protocol **{spell(sheet.protocol)}**{_block(sheet)}.", "")
        yield from sheet_lines(sheet)
        for note in notes(sheet):
            yield from ("", escape(note))
    if report.sheets:
        yield from ("", LEGEND)
    if figures:
        yield from ("", "## Figures")
        for figure in figures:
            yield from ("", f"![{escape(figure)}]({figure})")


def sheet_lines(sheet: Sheet) -> Iterator[str]:
    """One sheet as a Markdown table, a string for each line."""
    shown = columns(sheet)
    heads = [f"{column.group.partition(',')[0]} {column.title}".strip() for column in shown]
    yield _row(["", *heads])
    yield _row(["---", *("--:" for _ in shown)])
    for line in sheet.lines:
        label = escape(sheet.label(line))
        yield _row([label if line.contends else f"*{label}*", *(_entry(column.entry(line)) for column in shown)])


def _block(sheet: Sheet) -> str:
    return "; b_s = {}, b = {}, n_p = {}".format(*sheet.block) if sheet.block else ""


def _entry(entry: Entry) -> str:
    text = EMPHASIS.get(entry.place or "", "{}").format(escape(entry.plain()))
    return f"{text} ± {entry.spread_text()}" if entry.spread is not None else text


def _row(entries: list[str]) -> str:
    return f"| {' | '.join(entries)} |"


def escape(text: str) -> str:
    """Text that Markdown leaves as it is.

    >>> escape("a|b_c <i>")
    'a\\\\|b\\\\_c &lt;i>'
    """
    for letter in "\\`*_|[]":
        text = text.replace(letter, f"\\{letter}")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")
