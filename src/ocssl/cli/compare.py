"""``ocssl compare``: the numbers of several finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ocssl.cli.flags import DifferencesOption, ForceOption, OutputOption, plain_console
from ocssl.cli.show import is_live
from ocssl.common.files import check_output
from ocssl.errors import ConfigError


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of finished runs, or result files.")],
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw accuracy along the stream (PNG, SVG, PDF).")
    ] = None,
    differences: DifferencesOption = None,
    output: OutputOption = None,
    force: ForceOption = False,
) -> None:
    """Finished runs side by side, seeds averaged, as a table and a plot.

    Example: ocssl compare runs/* --plot curves.png --differences best
    """
    from ocssl.results import read_result
    from ocssl.results.build import LEGEND, differences_table
    from ocssl.results.comparison import comparison_lines, comparison_table, group_runs, incomparable
    from ocssl.results.render import print_table, write_csv
    from ocssl.results.render.figures import draw_lines, plot_kind

    if (path := next(filter(is_live, runs), None)) is not None:
        raise ConfigError(f"'{path}' is the state of a live learner, not a run; ocssl show '{path}' prints its numbers")
    files = [run / "result.json" if run.is_dir() else run for run in runs]
    if plot is not None:
        check_output(plot, plot_kind(plot), inputs=files, force=force)
    found = {path.absolute(): read_result(path) for path in runs}
    title, groups = group_runs(found)
    lines = comparison_lines(groups)
    if plot is not None and not lines:
        raise ConfigError("none of these runs was measured, so there is nothing to draw; leave --plot out")
    console = plain_console()
    tables = [comparison_table(title, groups)]
    if differences is not None:
        tables.append(differences_table(groups, differences))
    if output is not None:
        write_csv(tables[-1], output, inputs=files, force=force)
    for table in tables:
        print_table(console, table)
    console.print(*LEGEND, style="dim")
    for sentence in (*(problem for row in tables[0].rows for problem in row.problems), *incomparable(found.values())):
        console.print(sentence, style="yellow")
    if output is not None:
        console.print(f"wrote {output}")
    if plot is not None:
        draw_lines(lines, plot)
        console.print(f"wrote {plot}")
