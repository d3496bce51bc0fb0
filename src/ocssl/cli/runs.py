"""``ocssl show`` and ``ocssl compare``: what runs, finished or not, have found."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from ocssl.results import Result, Table
    from ocssl.runs.folder import RunFolder


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, finished or not.")],
    matrix: Annotated[bool, typer.Option("--matrix", help="Accuracy per experience's classes, too.")] = False,
    settings: Annotated[bool, typer.Option("--settings", help="Every setting, too.")] = False,
) -> None:
    """A run's settings, progress and accuracies.

    Example: ocssl show runs/cifar100-simsiam-cla-e-fifo-high-clean-seed0
    """
    from rich.console import Console

    from ocssl.results import read_result
    from ocssl.results.render import to_rich
    from ocssl.runs.folder import RunFolder

    console, folder = Console(), RunFolder(run)
    config = folder.read_config()
    if folder.result.exists():
        result = read_result(run)
        console.print(_facts(_summary(result), result.warnings))
        if matrix:
            console.print(to_rich(_matrix(result)))
    else:
        console.print(_facts(_unfinished(folder)))
    if settings:
        console.print(config.to_yaml(), highlight=False, markup=False)


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of finished runs, or result files.")],
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw accuracy along the stream (PNG, SVG, PDF).")
    ] = None,
) -> None:
    """Finished runs side by side, as a table and a plot.

    Example: ocssl compare runs/* --plot curves.png
    """
    from rich.console import Console

    from ocssl.results import read_result
    from ocssl.results.render import to_rich

    results = {path.absolute(): read_result(path) for path in runs}
    labels = _labels(results)
    console = Console()
    console.print(to_rich(_comparison(results, labels)))
    for sentence in _warnings(list(results.values())):
        console.print(sentence, style="yellow")
    if plot is not None:
        _plot({labels[path]: result for path, result in results.items()}, plot)
        console.print(f"wrote {plot}", highlight=False)


def _comparison(results: dict[Path, Result], labels: dict[Path, str]) -> Table:
    from ocssl.common.console import short_count
    from ocssl.results import Table, TableColumn, TableRow, Value
    from ocssl.results.render import sparkline

    titles = ("Final %", "Avg %", "k-NN %", "CBP")
    columns = (*map(TableColumn, titles), TableColumn("along the stream", align="left"))
    rows = []
    for path, result in results.items():
        numbers = (result.final, result.avg, result.knn.final if result.knn else None)
        spent = Value(result.cbp_spent, text=short_count(result.cbp_spent))
        rows.append(TableRow(labels[path], (*map(Value, numbers), spent, Value(text=sparkline(result.curve)))))
    for (dataset, name), values in _references(results.values()).items():
        mean = Value(sum(values) / len(values))
        rows.append(TableRow(f"{dataset} {name}", (mean, *(Value(text="") for _ in columns[1:])), ranked=False))
    return Table("", columns, tuple(rows), label="run")


def _warnings(results: list[Result]) -> Iterable[str]:
    if len({result.protocol for result in results}) > 1:
        yield "These runs follow different protocols; their numbers do not compare."
    if len({result.measured_on for result in results}) > 1:
        yield "Some of these runs were measured on validation images, others on test images."
    if len({(result.dataset, result.fingerprint) for result in results if result.strategy != "iid"}) > 1:
        yield "These runs saw different streams."


def _plot(results: dict[str, Result], path: Path) -> None:
    """Linear probes along the stream, above the mean of the untrained encoders."""
    from ocssl.results.render.figures import Line, draw_lines

    lines = [Line(label, result.borders, result.curve) for label, result in results.items()]
    untrained = {result.references["untrained"] for result in results.values() if "untrained" in result.references}
    if untrained:
        lines.append(Line("untrained encoder", (), [sum(untrained) / len(untrained)], dash="2 3"))
    draw_lines(lines, path)


def _facts(facts: dict[str, str], warnings: Iterable[str] = ()) -> RichTable:
    from rich.table import Table as RichTable

    table = RichTable(box=None, show_header=False, pad_edge=False)
    for name, value in facts.items():
        table.add_row(name, value)
    for warning in warnings:
        table.add_row("warning", warning, style="yellow")
    return table


def _summary(result: Result) -> dict[str, str]:
    from ocssl.common.console import duration, percent

    facts = {"run": _describe(result), "Final": f"{percent(result.final)} %", "Avg": f"{percent(result.avg)} %"}
    facts["along"] = _along(result.curve)
    if result.knn:
        facts["k-NN"] = f"Final {percent(result.knn.final)} %, Avg {percent(result.knn.avg)} %"
    if result.forgetting is not None:
        facts["forgetting"] = f"{result.forgetting:.2f} points"
    facts |= {name: f"{percent(value)} %" for name, value in result.references.items()}
    facts["CBP"] = f"{result.cbp_spent:,} of {result.cbp_planned:,} planned"
    preparing = f"{duration(result.prepare_seconds)} preparing, " if result.prepare_seconds else ""
    facts["time"] = f"{preparing}{duration(result.train_seconds)} training, {duration(result.eval_seconds)} measuring"
    device = result.hardware.get("gpu") or result.hardware.get("cpu") or "an unknown device"
    facts["made"] = f"{result.finished} by {result.code} on {device}"
    return facts


def _unfinished(folder: RunFolder) -> dict[str, str]:
    from ocssl.runs.naming import label

    lines, checkpoints, config = folder.read_metrics(), folder.list_checkpoints(), folder.read_config()
    facts = {"run": f"{label(config)}, {config.dataset}, seed {config.to_dict()['seed']}: not finished"}
    last = next((line for line in reversed(lines) if line["kind"] == "train"), None)
    if last:
        facts["got to"] = f"image {last['samples']}, CBP {last['cbp']:,}, loss {last['losses']['total']:.4f}"
    points = [line for line in lines if line["kind"] == "probe"]  # version 0.1 wrote moment for point
    probes = [line["linear"] for line in points if line.get("point", line.get("moment", "")).isdigit()]
    if probes:
        facts["along"] = _along(probes)
    facts["checkpoint"] = str(checkpoints[-1]) if checkpoints else "none yet"
    facts["resume with"] = folder.go_on
    return facts


def _along(curve: list[float]) -> str:
    from ocssl.results.render import sparkline

    return sparkline(curve) + "  " + " ".join(f"{value:.1f}" for value in curve)


def _matrix(result: Result) -> Table:
    from ocssl.results import Table, TableColumn, TableRow, Value

    columns = tuple(TableColumn(f"e{number + 1}") for number in range(len(result.experiences)))
    rows = (
        TableRow(f"e{number + 1}", tuple(Value(value, digits=0) for value in row))
        for number, row in enumerate(result.matrix)
    )
    return Table("", columns, tuple(rows), label="after")


def _references(results: Iterable[Result]) -> dict[tuple[str, str], list[float]]:
    """Accuracies of untrained encoders and raw pixels, by data set."""
    found: dict[tuple[str, str], list[float]] = {}
    for result in results:
        for name, value in result.references.items():
            found.setdefault((result.dataset, name), []).append(value)
    return found


def _describe(result: Result) -> str:
    from ocssl.results.names import describe, heading

    images = [] if result.measured_on == "test" else [f"on {result.measured_on} images"]
    return describe(result, heading(result.budget), f"{heading(result.protocol)} protocol", *images)


def _labels(results: dict[Path, Result]) -> dict[Path, str]:
    """A label for each run; those that share one also have as much of their path as tells them apart."""
    alike: dict[str, list[Path]] = {}
    for path, result in results.items():
        alike.setdefault(_describe(result), []).append(path)
    return {
        path: words if len(paths) == 1 else f"{words} ({tail})"
        for words, paths in alike.items()
        for path, tail in zip(paths, _tails(paths), strict=True)
    }


def _tails(paths: list[Path]) -> list[str]:
    """The ends of different paths, as short as they differ."""
    longest = max(len(path.parts) for path in paths)
    for length in range(1, longest + 1):
        tails = ["/".join(path.parts[-length:]) for path in paths]
        if len(set(tails)) == len(paths):
            break
    return tails
