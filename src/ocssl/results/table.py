"""A table as plain values. Each format of :mod:`ocssl.results.render` renders any table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal


@dataclass(frozen=True)
class Value:
    """A cell of a table.

    Attributes:
        mean: the number; None where there is none.
        std: standard deviation over seeds.
        digits: decimals of mean and std.
        signed: whether a positive number has a plus, and one that is rounded to 0 its sign.
        text: printed instead of the number.
        best: whether it is the best of its column, or cannot be told from it.
        files: the results behind the number.
    """

    mean: float | None = None
    std: float | None = None
    digits: int = 2
    signed: bool = False
    text: str | None = None
    best: bool = False
    files: tuple[Path, ...] = ()

    @classmethod
    def over(cls, values: Mapping[int, float], **format: Any) -> Value:
        """Mean and sample standard deviation over seeds.

        >>> Value.over({0: 50.0, 1: 52.0}, digits=1).with_std()
        '51.0 ± 1.4'
        """
        mean = fmean(values.values()) if values else None
        return cls(mean, stdev(values.values()) if len(values) > 1 else None, **format)

    @classmethod
    def count(cls, value: float | None) -> Value:
        """A whole number with separators, such as 3,726,000."""
        return cls() if value is None else cls(round(value), text=f"{round(value):,}")

    @property
    def empty(self) -> bool:
        """Whether there is nothing to print."""
        return self.mean is None and self.text is None

    def plain(self) -> str:
        """The number without its standard deviation; a signed one keeps the sign that it has before rounding.

        >>> Value(7.541, digits=1, signed=True).plain(), Value(-0.04, digits=1, signed=True).plain(), Value().plain()
        ('+7.5', '−0.0', '–')
        """
        if self.text is not None:
            return self.text
        if self.mean is None:
            return "–"
        sign = "+" if self.signed and self.mean else "z"  # z: no minus before a zero
        return f"{self.mean:{sign}.{self.digits}f}".replace("-", "−")

    def spread(self, sign: str = "") -> str:
        """The standard deviation behind a sign; empty where there is none."""
        return "" if self.std is None else f"{sign}{self.std:.{self.digits}f}"

    def with_std(self, sign: str = " ± ") -> str:
        """The number, and its standard deviation where there is one."""
        return self.plain() + self.spread(sign)


@dataclass(frozen=True)
class TableColumn:
    """A column of a table.

    Attributes:
        group: heading above it and its neighbours of the same group.
        note: explains the title.
    """

    title: str
    group: str = ""
    note: str = ""
    align: Literal["left", "right"] = "right"

    @property
    def heading(self) -> str:
        """Group and title in one line.

        >>> TableColumn("ours", group="Final, %").heading
        'Final ours'
        """
        return f"{self.group.partition(',')[0]} {self.title}".strip()


@dataclass(frozen=True)
class TableRow:
    """A row of a table.

    Attributes:
        ranked: whether it is compared with others; rows that are not are in italics.
        bold: whether a terminal prints it in bold.
        style: its key in :data:`ocssl.results.names.STYLES`.
        flags: words beside its label.
        problems: why some of its results do not count.
        facets: what the filters of the page select by.
        files: results that its label opens on the page.
    """

    label: str
    values: tuple[Value, ...]
    ranked: bool = True
    bold: bool = False
    style: str = ""
    flags: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    facets: Mapping[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table: columns after the labels, rows, sentences below it, and the heading of the labels.

    >>> Table("Scores", (TableColumn("Final"),), (TableRow("CLA-E", (Value(50.761),)),)).rows[0].values[0].plain()
    '50.76'
    """

    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    label: str = ""
