"""``ocssl show`` and ``ocssl compare``: read runs, finished or not, and print what they say."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from ocssl.runs.folder import RunFolder
    from ocssl.runs.result import Result

BLOCKS = "▁▂▃▄▅▆▇█"


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, finished or not.")],
    matrix: Annotated[bool, typer.Option("--matrix", help="Accuracy per experience's classes, too.")] = False,
    settings: Annotated[bool, typer.Option("--settings", help="Every setting, too.")] = False,
) -> None:
    """What a run is, how far it got, and what it found.

    Example: ocssl show runs/cifar100-simsiam-cla-e-fifo-high-clean-seed0
    """
    from rich.console import Console

    from ocssl.runs.folder import RunFolder
    from ocssl.runs.result import read_result

    console, folder = Console(), RunFolder(run)
    config = folder.read_config()
    if folder.result.exists():
        result = read_result(run)
        console.print(_summary(result))
        if matrix:
            console.print(_matrix(result))
    else:
        console.print(_unfinished(folder))
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
    from rich.table import Table

    from ocssl.common.console import short_count as short
    from ocssl.runs.result import read_result

    results = {path.absolute(): read_result(path) for path in runs}
    labels = _labels(results)
    table = Table("run", "Final %", "Avg %", "k-NN %", "CBP", "along the stream", box=None, pad_edge=False)
    for path, result in results.items():
        neighbours = result.knn.final if result.knn else None
        numbers = (_number(value) for value in (result.final, result.avg, neighbours))
        table.add_row(labels[path], *numbers, short(result.cbp_spent), sparkline(result.curve))
    for (dataset, name), values in _references(results.values()).items():
        table.add_row(f"{dataset} {name}", _number(sum(values) / len(values)))
    console = Console()
    console.print(table)
    if len({result.protocol for result in results.values()}) > 1:
        console.print("These runs follow different protocols; their numbers do not compare.", style="yellow")
    if len({result.measured_on for result in results.values()}) > 1:
        console.print("Some of these runs were measured on validation images, others on test images.", style="yellow")
    if len({(result.dataset, result.fingerprint) for result in results.values() if result.strategy != "iid"}) > 1:
        console.print("These runs saw different streams.", style="yellow")
    if plot is not None:
        from ocssl.runs.plots import plot_curves

        plot_curves({labels[path]: result for path, result in results.items()}, plot)
        console.print(f"wrote {plot}", highlight=False)


def sparkline(values: list[float]) -> str:
    """A curve in one line of text, from its lowest to its highest value.

    >>> sparkline([10.0, 20.0, 40.0])
    '▁▃█'
    """
    if not values:
        return ""
    low, span = min(values), max(values) - min(values) or 1.0
    return "".join(BLOCKS[round((value - low) / span * (len(BLOCKS) - 1))] for value in values)


def _summary(result: Result) -> Table:
    from rich.table import Table

    from ocssl.common.console import duration as clock

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("run", describe(result))
    table.add_row("Final", f"{_number(result.final)} %")
    table.add_row("Avg", f"{_number(result.avg)} %")
    table.add_row("along", sparkline(result.curve) + "  " + " ".join(f"{value:.1f}" for value in result.curve))
    if result.knn:
        table.add_row("k-NN", f"Final {_number(result.knn.final)} %, Avg {_number(result.knn.avg)} %")
    if result.forgetting is not None:
        table.add_row("forgetting", f"{result.forgetting:.2f} points")
    for name, value in result.references.items():
        table.add_row(name, f"{_number(value)} %")
    table.add_row("CBP", f"{result.cbp_spent:,} of {result.cbp_planned:,} planned")
    preparing = f"{clock(result.prepare_seconds)} preparing, " if result.prepare_seconds else ""
    table.add_row("time", f"{preparing}{clock(result.train_seconds)} training, {clock(result.eval_seconds)} measuring")
    table.add_row("made", f"{result.finished} by {result.code} on {result.hardware.get('gpu', result.hardware['cpu'])}")
    for warning in result.warnings:
        table.add_row("warning", warning, style="yellow")
    return table


def _unfinished(folder: RunFolder) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    lines, checkpoints = folder.read_metrics(), folder.list_checkpoints()
    config = folder.read_config()
    table.add_row("run", f"{config.dataset}, {config['strategy']}, seed {config['seed']}: not finished")
    last = next((line for line in reversed(lines) if line["kind"] == "train"), None)
    if last:
        table.add_row("got to", f"image {last['samples']}, CBP {last['cbp']:,}, loss {last['losses']['total']:.4f}")
    probes = [line["linear"] for line in lines if line["kind"] == "probe" and line["moment"].isdigit()]
    if probes:
        table.add_row("along", sparkline(probes) + "  " + " ".join(f"{value:.1f}" for value in probes))
    table.add_row("checkpoint", str(checkpoints[-1]) if checkpoints else "none yet")
    table.add_row("go on with", folder.go_on)
    return table


def _matrix(result: Result) -> Table:
    from rich.table import Table

    table = Table("after", *(f"e{j + 1}" for j in range(len(result.experiences))), box=None, pad_edge=False)
    for number, row in enumerate(result.matrix):
        table.add_row(f"e{number + 1}", *(f"{value:.0f}" for value in row))
    return table


def _references(results: Iterable[Result]) -> dict[tuple[str, str], list[float]]:
    """Untrained encoders and raw pixels, by data set."""
    found: dict[tuple[str, str], list[float]] = {}
    for result in results:
        for name, value in result.references.items():
            found.setdefault((result.dataset, name), []).append(value)
    return found


def describe(result: Result) -> str:
    """A run in a few words."""
    replay = result.memory if result.memory and result.memory != result.strategy else None
    measured = result.measured_on if result.measured_on != "test" else None
    parts = [result.dataset, result.strategy, replay, result.method, result.budget, result.protocol, measured]
    return " ".join(part for part in parts if part) + f" s{result.seed}"


def _labels(results: dict[Path, Result]) -> dict[Path, str]:
    """A name for each run that no other has: in a few words, with as much of its path as is needed."""
    twins: dict[str, list[Path]] = {}
    for path, result in results.items():
        twins.setdefault(describe(result), []).append(path)
    return {
        path: words if len(paths) == 1 else f"{words} ({tail})"
        for words, paths in twins.items()
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


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
