"""A table as CSV."""

from __future__ import annotations

import csv
import io

from ocssl.results.table import Table


def to_csv(table: Table) -> str:
    """A line for each row; numbers are not rounded, and a standard deviation has a column of its own.

    >>> from ocssl.results.table import TableColumn, TableRow, Value
    >>> print(to_csv(Table("", (TableColumn("Final"),), (TableRow("CLA-E", (Value(50.25, 0.5),)),))), end="")
    ,Final,Final std
    CLA-E,50.25,0.5
    """
    columns = [[table.label, *(row.label for row in table.rows)]]
    for place, column in enumerate(table.columns):
        values = [row.values[place] for row in table.rows]
        columns.append([column.heading, *(_exact(value.mean) or value.text or "" for value in values)])
        if any(value.std is not None for value in values):
            columns.append([f"{column.heading} std", *(_exact(value.std) for value in values)])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(zip(*columns, strict=True))
    return text.getvalue()


def _exact(number: float | None) -> str:
    return "" if number is None else f"{number:.10g}"
