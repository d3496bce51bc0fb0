"""Stand-in until ``ocssl.results`` has Table and its renderers; then this module goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table as RichTable


@dataclass(frozen=True)
class Table:
    """Cells as text under columns."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)


def to_markdown(table: Table) -> str:
    """The table as a file has it."""
    lines = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |\n" for line in lines)


def to_terminal(table: Table) -> RichTable:
    """The table as a terminal shows it."""
    from rich.table import Table as RichTable

    shown = RichTable(*table.columns, box=None, pad_edge=False)
    for row in table.rows:
        shown.add_row(*row)
    return shown
