"""Renderers of :class:`ocssl.results.table.Table`, and whole reports as files."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ocssl.common.files import atomic_write, check_output, writing
from ocssl.errors import ConfigError, DataError
from ocssl.registry import unknown
from ocssl.results.build import report_table
from ocssl.results.charts import chart_data
from ocssl.results.claims import claims
from ocssl.results.render.claim_plots import draw_claims
from ocssl.results.render.figures import FIGURE_FORMATS, draw_figure, need_matplotlib, render
from ocssl.results.render.html import html_report, to_html
from ocssl.results.render.latex import latex_report, to_latex
from ocssl.results.render.markdown import markdown_report, to_markdown
from ocssl.results.render.terminal import print_table, sparkline, to_rich
from ocssl.results.report import Report
from ocssl.results.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "print_table", "sparkline", "to_csv", "to_html", "to_latex", "to_markdown", "to_rich"]
__all__ += ["write_csv", "write_report"]

FORMATS = ("html", "markdown", "latex", "csv", *FIGURE_FORMATS)


def write_report(
    report: Report, folder: str | Path, formats: Collection[str] = FORMATS, *, force: bool = False
) -> list[Path]:
    """Write ``report.html``, ``report.md``, ``tables.tex``, ``tables/*.csv`` and ``figures/*`` into a folder.

    The same results give the same bytes. Returns the files written.

    Args:
        formats: some of :data:`FORMATS`.
        force: replace files of these names that ocssl did not write, too.
    """
    for name in formats:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    if not formats:
        raise ConfigError(f"no format to write; choose from {', '.join(FORMATS)}")
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise ConfigError(f"'{place}' is not a folder; choose another --output")
    kinds = [kind for kind in FIGURE_FORMATS if kind in formats]
    figures: dict[str, Callable[[], Figure]] = {}
    if kinds:
        need_matplotlib()
        data, answered = chart_data(report), claims(report.store)
        for figure in data["figures"]:
            if figure["kind"] != "matrix":  # matrices are on the page only
                figures[figure["name"]] = partial(draw_figure, data, figure)
        if any(claim.has_differences for claim in answered):
            figures["claims"] = partial(draw_claims, answered)
    tables = {f"tables/{part.id}.csv": to_csv(report_table(part)) for part in report.sections if "csv" in formats}
    pages = {"report.html": "html", "report.md": "markdown", "tables.tex": "latex"}
    names = {name: kind for name, kind in pages.items() if kind in formats} | dict.fromkeys(tables, "csv")
    names |= {f"figures/{name}.{kind}": kind for name in figures for kind in kinds}
    inputs = [file.path for file in report.files]
    for name, kind in names.items():  # before anything is drawn
        check_output(place / name, kind, inputs=inputs, force=force, columns=tables.get(name, ""))
    files: dict[str, bytes | str] = {
        f"figures/{name}.{kind}": content
        for name, draw in figures.items()
        for kind, content in render(draw, kinds).items()
    }
    if "html" in formats:
        files["report.html"] = html_report(report)
    if "markdown" in formats:
        shown = [name for name in files if name.endswith(".png")] or [name for name in files if name.endswith(".svg")]
        files["report.md"] = markdown_report(report, shown)
    if "latex" in formats:
        files["tables.tex"] = latex_report(report)
    return [_write(place / name, content) for name, content in {**files, **tables}.items()]


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
    return "" if number is None else str(number) if isinstance(number, int) else f"{number:.10g}"


def write_csv(table: Table, path: Path, *, inputs: Iterable[Path] = (), force: bool = False) -> Path:
    """Write one table as a CSV file; one that is there must have the same columns, unless ``force``."""
    content = to_csv(table)
    check_output(path, "csv", inputs=inputs, force=force, columns=content)
    return _write(path, content)


def _write(path: Path, content: bytes | str) -> Path:
    """Write a file; a path in no encoding is written like ``\\udcff``."""
    with writing(path, DataError):
        path.parent.mkdir(parents=True, exist_ok=True)
        return atomic_write(path, content.encode(errors="backslashreplace") if isinstance(content, str) else content)
