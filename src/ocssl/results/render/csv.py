"""A table as CSV."""

from __future__ import annotations

import csv
import io

from ocssl.results.table import Table, Value


def to_csv(table: Table) -> str:
    """A line for each row; numbers are not rounded, and a standard deviation has a column of its own.

    >>> from ocssl.results.table import TableColumn, TableRow
    >>> print(to_csv(Table("", (TableColumn("Final"),), (TableRow("CLA-E", (Value(50.25, 0.5),)),))), end="")
    ,Final,Final std
    CLA-E,50.25,0.5
    """
    places = range(len(table.columns))
    with_std = [any(row.values[place].std is not None for row in table.rows) for place in places]
    heads = [
        name
        for column, std in zip(table.columns, with_std, strict=True)
        for name in ((column.heading, f"{column.heading} std") if std else (column.heading,))
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([table.label, *heads])
    for row in table.rows:
        cells = (_cells(value)[: 2 if std else 1] for value, std in zip(row.values, with_std, strict=True))
        writer.writerow([row.label, *(cell for pair in cells for cell in pair)])
    return text.getvalue()


def _cells(value: Value) -> tuple[str, str]:
    number = value.text or "" if value.mean is None else f"{value.mean:.10g}"
    return number, "" if value.std is None else f"{value.std:.10g}"
