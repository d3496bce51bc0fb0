"""``ocssl report``: results as tables, figures and one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ocssl.cli.flags import ForceOption
from ocssl.errors import MissingExtraError


def _known_formats() -> list[str]:
    from ocssl.results.render import FORMATS

    return [*FORMATS]


def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder of result files.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Where to write.")] = Path("report"),
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Only this one: html, markdown, latex, csv, png, svg, pdf; repeatable.  [default: all]",
            autocompletion=_known_formats,
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.", show_default=False)] = None,
    force: ForceOption = False,
) -> None:
    """Results as tables beside the paper's, figures and one offline page.

    Example: ocssl report results -o report
    """
    from ocssl.common.console import number_of
    from ocssl.results import read_report
    from ocssl.results.render import FORMATS, write_report
    from ocssl.results.render.figures import FIGURE_FORMATS, need_matplotlib

    found = read_report(results, title) if title else read_report(results)
    chosen = list(formats or FORMATS)
    if not formats:
        try:
            need_matplotlib()
        except MissingExtraError as error:
            typer.echo(f"ocssl: left out: {error}", err=True)
            chosen = [name for name in FORMATS if name not in FIGURE_FORMATS]
    written = write_report(found, output, chosen, force=force)
    for problem in found.problems:
        typer.echo(f"problem: {problem.sentence}", err=True)
    pages = [str(path) for path in written if path.parent == output]
    for folder in ("tables", "figures"):
        if count := sum(path.parent.name == folder for path in written):
            pages.append(f"{number_of(count, folder[:-1])} in {output / folder}")
    typer.echo(", ".join(pages))
