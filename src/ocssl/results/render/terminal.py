"""A table on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocssl.results.table import Table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

LABEL = 24  # columns that labels get at least, where they need them
BLOCKS = "▁▂▃▄▅▆▇█"


def to_rich(table: Table) -> RichTable:
    """A table for :meth:`rich.console.Console.print`; rows with problems are yellow."""
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(table.label, box=None, pad_edge=False)
    for column in table.columns:
        shown.add_column(column.heading, justify=column.align, no_wrap=True)
    for row in table.rows:
        style = "yellow" if row.problems else "bold" if row.bold else "" if row.ranked else "italic"
        cells = (Text(value.with_std("±"), "bold" if value.best else "") for value in row.values)
        shown.add_row(Text(row.label), *cells, style=style)
    return shown


def print_table(console: Console, table: Table) -> None:
    """Print title, table and notes. Labels are wrapped to fit; where numbers do not, lines run over the edge."""
    shown, width = to_rich(table), console.width
    full = console.measure(shown, options=console.options.update(width=10_000)).maximum
    label = max((len(row.label) for row in table.rows), default=0)
    if full > width:
        shown.columns[0].width = max(min(LABEL, label), label - (full - width))
        console.width = max(width, full - label + shown.columns[0].width)
    if table.title:
        console.print(table.title, style="bold", soft_wrap=True)
    console.print(shown)
    console.width = width
    for note in table.notes:
        console.print(note, style="dim")


def sparkline(values: list[float]) -> str:
    """A curve in one line of text, from its lowest to its highest value.

    >>> sparkline([10.0, 20.0, 40.0])
    '▁▃█'
    """
    if not values:
        return ""
    low, span = min(values), max(values) - min(values) or 1.0
    return "".join(BLOCKS[round((value - low) / span * (len(BLOCKS) - 1))] for value in values)
