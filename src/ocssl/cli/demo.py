"""``ocssl demo``: the product's first impression."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.table import Table

    from ocssl.runs.demo import DemoPlan, DemoReport, Moment
    from ocssl.runs.demo.report import SeedResult


def demo(
    seed: Annotated[list[int] | None, typer.Option(min=0, help="Seed of a race; repeatable [default: 0].")] = None,
    output: Annotated[Path, typer.Option(help="Folder for the plot and the numbers.")] = Path("demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A rehearsal of seconds that learns nothing.")] = False,
) -> None:
    """Watch three strategies learn from a stream of drawn images, on CPU, in two minutes.

    Example: `ocssl demo --seed 0 --seed 1`
    """
    from rich.console import Console

    from ocssl.errors import DataError
    from ocssl.runs.demo import DemoPlan, draw_figure

    console = Console(highlight=False)
    plan = DemoPlan.quick() if quick else DemoPlan()
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"the folder '{output}' cannot be made: {error.strerror}") from error
    console.print(_introduction(plan))
    report = _report(plan, [_race(plan, each, console) for each in seed or [0]])
    console.print(_table(report))
    console.print(_verdict(report))
    report.save(output / "demo.json")
    draw_figure(report, output / "demo.png")
    console.print(
        f"[dim]The curve:[/] {output / 'demo.png'}   [dim]all numbers and settings:[/] {output / 'demo.json'}"
    )


def _introduction(plan: DemoPlan) -> str:
    return (
        f"\n[bold]{plan.stream:,} unlabelled images, one class after another, each seen once.[/]\n"
        f"Three ways to learn from them with SimCLR, at the same cost ({plan.batch} training images for every "
        f"{plan.stream_batch} that arrive).\nA linear probe over all 18 classes, seen or not, tells how good the "
        "encoder is along the way.\n"
    )


def _race(plan: DemoPlan, seed: int, console: Console) -> SeedResult:
    """Run one seed behind a live bar for each strategy."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ocssl.runs.demo import race

    with Progress(
        TextColumn("  {task.description:<9}", style="bold"),
        BarColumn(bar_width=36, complete_style="#7d93a8", finished_style="#2f6d6a"),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[probe]}"),
        console=console,
    ) as bars:
        console.print(f"[dim]seed {seed}[/]")
        tasks = {name: bars.add_task(name, total=plan.stream, probe="") for name in plan.contenders()}
        return race(plan, seed, _mover(bars, tasks, console))


def _mover(bars: Progress, tasks: dict[str, TaskID], console: Console) -> Callable[[Moment], None]:
    def move(moment: Moment) -> None:
        task = tasks[moment.name]
        bars.update(task, completed=moment.seen)
        if moment.accuracy is not None:
            bars.update(task, probe=f"probe {moment.accuracy:4.1f} %")
            if not console.is_terminal:  # a log has no bars: say it in a line
                console.print(f"  {moment.name:<9} {moment.seen:>5} images   probe {moment.accuracy:4.1f} %")

    return move


def _report(plan: DemoPlan, results: list[SeedResult]) -> DemoReport:
    from dataclasses import asdict

    import torch

    from ocssl.runs import environment
    from ocssl.runs.demo import DemoReport
    from ocssl.runs.demo.racing import measuring_points

    return DemoReport(
        results=tuple(results),
        points=measuring_points(plan),
        plan=asdict(plan),
        versions=environment.versions(),
        hardware=environment.hardware(torch.device("cpu")),
    )


def _table(report: DemoReport) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = "Probe accuracy in percent, by images seen"
    if len(report.results) > 1:
        title += f" (mean of {len(report.results)} seeds)"
    table = Table(box=SIMPLE_HEAD, title=title, title_style="", title_justify="left", min_width=60, header_style="dim")
    table.add_column("", no_wrap=True)
    for point in report.points:
        table.add_column(str(point), justify="right")
    table.add_column("avg", justify="right")
    table.add_column("s", justify="right", style="dim")
    for name, accuracy in report.mean_references().items():
        table.add_row(name, *[f"{accuracy:.1f}"] * (len(report.points) + 1), "", style="dim")
    for name, curve in report.mean_curves().items():
        seconds = [entry.seconds for result in report.results for entry in result.entries if entry.name == name]
        cells = [f"{accuracy:.1f}" for accuracy in (*curve, sum(curve) / len(curve))]
        table.add_row(name, *cells, f"{sum(seconds) / len(seconds):.0f}", style="bold" if name == "CLA-E" else "")
    return table


def _verdict(report: DemoReport) -> str:
    lines = []
    for index, result in enumerate(report.results):
        untrained = report.lead("CLA-E", "untrained encoder")[index]
        finetune = report.lead("CLA-E", "finetune")[index]
        lines.append(
            f"Seed {result.seed}: CLA-E against the untrained encoder {untrained:+.1f} points, "
            f"against finetuning {finetune:+.1f}."
        )
    return "\n".join([*lines, ""])
