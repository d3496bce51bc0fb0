"""``ocssl paper``: the paper's tables, what is known of them, and running the rest."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from ocssl.cli.names import complete_datasets
from ocssl.cli.run import Protocol
from ocssl.cli.sweep import EngineChoice

if TYPE_CHECKING:
    from rich.console import Console

    from ocssl.paper import Cell, Store
    from ocssl.paper.filling import Filled
    from ocssl.paper.store import Experiment

app = typer.Typer(
    help="The paper's tables: ours beside the published, and running the rest.",
    epilog="Example: ocssl paper run high-simsiam --seeds 0,1,2",
    no_args_is_help=True,
)

WHAT, HOW = "What is run", "How, and where it is kept"


def _complete_tables(incomplete: str) -> list[str]:
    from ocssl.paper import TABLES

    return [name for name in TABLES if name.startswith(incomplete)]


TableName = Annotated[
    str, typer.Argument(metavar="ID", help="As `ocssl paper list` has it.", autocompletion=_complete_tables)
]
Results = Annotated[Path, typer.Option(metavar="DIR", help="Folder of result files.", rich_help_panel=HOW)]
DataRoot = Annotated[Path | None, typer.Option(help="Folder with data sets.", rich_help_panel=HOW)]
DataSet = Annotated[
    str | None,
    typer.Option(help="Instead of the table's first.", autocompletion=complete_datasets, rich_help_panel=WHAT),
]
RESULTS = Path("results")


@app.command("list")
def list_tables(results: Results = RESULTS, data_root: DataRoot = None) -> None:
    """Every table and figure, whether its data are there, and how many of its cells are filled.

    Example: ocssl paper list
    """
    from rich.console import Console
    from rich.table import Table

    from ocssl.paper import TABLES, cells

    console, store = Console(highlight=False, markup=False), _open(results)
    table = Table("id", "what it shows", "data set", "there", "clean", "authors", box=None, pad_edge=False)
    for column in table.columns[2:]:
        column.no_wrap = True
    placed: set[Experiment | None] = set()
    for paper in TABLES.values():
        found = cells(store, paper)
        placed |= {cell.experiment for cell in found}
        datasets = list(dict.fromkeys(cell.dataset for cell in found))
        there = ["yes" if _is_there(dataset, data_root) else "no" for dataset in datasets]
        counts = [[_filled(found, dataset, protocol) for dataset in datasets] for protocol in Protocol]
        table.add_row(paper.id, paper.title, *("\n".join(lines) for lines in (datasets, there, *counts)))
    console.print(table)
    if strangers := sum(stored.experiment not in placed for stored in store.results):
        console.print(f"Results that belong in none of these: {strangers}", style="dim")
    _print_problems(console, store)


@app.command()
def show(
    table: TableName,
    dataset: DataSet = None,
    protocol: Annotated[Protocol | None, typer.Option(help="Only this one.", rich_help_panel=WHAT)] = None,
    results: Results = RESULTS,
) -> None:
    """A table with our mean ± std over seeds, the paper's, and the difference.

    Example: ocssl paper show high-simsiam
    """
    from rich.console import Console
    from rich.text import Text

    from ocssl.cli.tables import accuracies, seconds
    from ocssl.paper import cells, find_table
    from ocssl.paper.plan import data_set
    from ocssl.paper.tables import configure

    console, paper, store = Console(highlight=False, markup=False), find_table(table), _open(results)
    wanted = dataset and data_set(paper, dataset)
    if wanted:
        configure(paper, paper.rows[0], wanted, "clean")  # a set that nobody knows is refused
    blocks: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells(store, paper):
        if wanted in (None, cell.dataset) and protocol in (None, cell.protocol):
            blocks.setdefault((cell.dataset, cell.protocol), []).append(cell)
    told = {where: block for where, block in blocks.items() if any(cell.runs or cell.problems for cell in block)}
    shown = told or dict(list(blocks.items())[:1])
    for (where, how), block in shown.items():
        console.print(Text.assemble((paper.title, "bold"), f": {where}, {how} protocol"))
        console.print(seconds(block) if paper.shows == "seconds" else accuracies(block))
    if not told:
        options = ["--dataset", quote(wanted)] if wanted else []
        options += ["--protocol", protocol.value] if protocol else []
        command = " ".join(["ocssl paper run", paper.id, *options])
        console.print(f"Nothing of this was run yet: {command}", style="dim", soft_wrap=True)
    _print_problems(
        console, store, [problem.sentence for block in shown.values() for c in block for problem in c.problems]
    )


@app.command()
def run(
    table: TableName,
    dataset: DataSet = None,
    seeds: Annotated[
        list[str] | None,
        typer.Option("--seeds", "--seed", help="[default: 0,1,2]", rich_help_panel=WHAT),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option("--methods", "--rows", help="Like er,cla-e [default: all].", rich_help_panel=WHAT),
    ] = None,
    protocol: Annotated[Protocol, typer.Option(help="Ours, or the authors'.", rich_help_panel=WHAT)] = Protocol.clean,
    tuned: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Own lr and omega; or best.yaml.", rich_help_panel=WHAT),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting.", rich_help_panel=HOW)
    ] = None,
    engine: Annotated[EngineChoice, typer.Option(help="Here or a cluster.", rich_help_panel=HOW)] = EngineChoice.local,
    workers: Annotated[int, typer.Option(help="Runs at once.", rich_help_panel=HOW)] = 1,
    address: Annotated[str | None, typer.Option(help="Of a running Ray cluster.", rich_help_panel=HOW)] = None,
    max_seconds: Annotated[
        float | None, typer.Option(help="Begin nothing more after so long.", rich_help_panel=HOW)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is missing.", rich_help_panel=HOW)] = False,
    results: Results = RESULTS,
    runs: Annotated[Path, typer.Option(metavar="DIR", help="Folder of runs.", rich_help_panel=HOW)] = Path("runs"),
    data_root: DataRoot = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only numbers.", rich_help_panel=HOW)] = False,
) -> None:
    """Run what a table misses. Each result is kept when its run ends; call again to go on.

    Example: ocssl paper run high-simsiam --seeds 0,1,2 --methods er,cla-e
    """
    from rich.console import Console

    from ocssl.common.signals import Interrupted
    from ocssl.engines import make_engine
    from ocssl.errors import ConfigError
    from ocssl.paper import find_table
    from ocssl.paper.filling import fill
    from ocssl.paper.plan import data_set, make_plan
    from ocssl.paper.tuned import Tuned, declare, merge
    from ocssl.runs.config import assignments, merged

    stop_at = float("inf") if max_seconds is None else time.monotonic() + max_seconds
    console = Console(highlight=False, markup=False, soft_wrap=True)
    paper, store = find_table(table), _open(results, new=True)
    doer = make_engine(engine.value, workers=workers, address=address, quiet=quiet)
    where = data_set(paper, dataset)
    which: Tuned = paper.id, where, protocol.value
    values = merge(tuned, which) if tuned else None
    rows = [row for row in paper.chosen(_words(methods)) if values is None or row.name in values]
    if not rows:
        raise ConfigError(f"none of these rows has tuned values; they are for {', '.join(values or ()) or 'no row'}")
    changes = merged({"data_root": str(data_root)} if data_root else {}, assignments(settings or []))
    chosen = [_seed(word) for word in dict.fromkeys(_words(seeds))] or [0, 1, 2]
    plan = make_plan(store, paper, rows, where, protocol.value, chosen, tuned=values, changes=changes, runs=runs)
    done = len(plan.wanted) - len(plan.missing)
    console.print(f"{paper.id}, {where}, {protocol.value} protocol: {done} of {len(plan.wanted)} runs are done")
    if plan.foreign:
        console.print("With these settings runs are not the table's, and it will not show them.", style="yellow")
    if dry_run:
        for task in {task.name: task for task in (*plan.first, *plan.missing)}.values():
            console.print(f"{'to go on with' if task.begun else 'to run'}: {task.name}")
        _print_problems(console, store)
        return
    if values:
        declare(values, results, which)
    failed: list[Filled] = []
    try:
        for filled in fill(plan, doer, store, results, stop_at=stop_at):
            console.print(_line(filled), style=None if filled.result else "red")
            failed += [] if filled.result else [filled]
    except Interrupted as stopped:
        typer.echo(f"ocssl: {stopped}; the same command goes on", err=True)
        raise typer.Exit(stopped.exit_code) from stopped
    after = _open(results, new=True)
    left = sum(not task.is_in(after) for task in plan.wanted)
    console.print(f"{len(plan.wanted) - left} of {len(plan.wanted)} runs are done, {len(failed)} failed just now")
    _print_problems(console, after)
    if failed:
        raise typer.Exit(1)


def _open(results: Path, *, new: bool = False) -> Store:
    """The store; the usual place need not exist yet, nor one that is about to be filled."""
    from ocssl.paper import Store, read_store

    return Store() if (new or results == RESULTS) and not results.exists() else read_store(results)


def _filled(cells: Iterable[Cell], dataset: str, protocol: Protocol) -> str:
    block = [cell for cell in cells if (cell.dataset, cell.protocol) == (dataset, protocol)]
    return f"{sum(bool(cell.runs) for cell in block)}/{len(block)}"


def _line(filled: Filled) -> str:
    if filled.result is None:
        return f"{filled.task.label}: failed: {filled.error}"
    numbers = {"Final": filled.result.final, "Avg": filled.result.avg}
    told = (f"{name} {number:.2f} %, " for name, number in numbers.items() if number is not None)
    return f"{filled.task.label}: {''.join(told)}{filled.task.name}.json"


def _is_there(dataset: str, root: Path | None) -> bool:
    from ocssl.data.loading import status
    from ocssl.paper.tables import probed_on, trained_on

    names = [trained_on(dataset), *filter(None, [probed_on(dataset)])]
    return all(status(name, "train", root=root).state in ("ready", "found") for name in names)


def _print_problems(console: Console, store: Store, more: Iterable[str] = ()) -> None:
    for sentence in dict.fromkeys([*(problem.sentence for problem in store.problems), *more]):
        console.print(f"problem: {sentence}", style="yellow", soft_wrap=True)


def _words(texts: list[str] | None) -> list[str]:
    """What was given once with commas, or several times, or both."""
    return [word for text in texts or [] for word in text.replace(",", " ").split()]


def _seed(word: str) -> int:
    from ocssl.errors import ConfigError

    if not word.isdecimal():
        raise ConfigError(f"seeds are whole numbers like 0,1,2, not '{word}'")
    return int(word)
