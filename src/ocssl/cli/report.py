"""``ocssl report``: results as tables, figures and one page."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """What to write."""

    html = "html"
    markdown = "markdown"
    latex = "latex"
    png = "png"
    svg = "svg"
    pdf = "pdf"


def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder of result files.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where to write.")] = Path("report"),
    formats: Annotated[
        list[Format] | None, typer.Option("--format", help="Only this one; repeatable.  [default: all]")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Of the page.", show_default=False)] = None,
) -> None:
    """Results as tables beside the paper's, figures and one offline page.

    Example: ocssl report results -o report
    """
    from ocssl.errors import MissingExtraError
    from ocssl.report import FORMATS, read_report, write_report
    from ocssl.report.figures import need_matplotlib
    from ocssl.report.writing import FIGURES

    found = read_report(results, title) if title else read_report(results)
    chosen = [name.value for name in formats or []]
    if not chosen:
        chosen = list(FORMATS)
        try:
            need_matplotlib()
        except MissingExtraError as error:
            typer.echo(f"ocssl: left out: {error}", err=True)
            chosen = [name for name in FORMATS if name not in FIGURES]
    written = write_report(found, output, chosen)
    for problem in found.problems:
        typer.echo(f"problem: {problem.sentence}", err=True)
    drawn = sum(path.parent.name == "figures" for path in written)
    pages = [str(path) for path in written if path.parent.name != "figures"]
    typer.echo(", ".join([*pages, *([f"{drawn} figures in {output / 'figures'}"] if drawn else [])]))
