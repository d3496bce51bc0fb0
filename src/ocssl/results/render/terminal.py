"""A table on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ocssl.results.table import Table, Value

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text

RANKS = {1: "bold", 2: "underline"}
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
        shown.add_row(Text(row.label), *map(_cell, row.values), style=style)
    return shown


def _cell(value: Value) -> Text:
    from rich.text import Text

    return Text(value.with_std("±"), RANKS.get(value.rank or 0, ""))


def sparkline(values: list[float]) -> str:
    """A curve in one line of text, from its lowest to its highest value.

    >>> sparkline([10.0, 20.0, 40.0])
    '▁▃█'
    """
    if not values:
        return ""
    low, span = min(values), max(values) - min(values) or 1.0
    return "".join(BLOCKS[round((value - low) / span * (len(BLOCKS) - 1))] for value in values)
