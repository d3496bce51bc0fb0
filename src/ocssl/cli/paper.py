"""``ocssl paper``: the paper's tables with our results, and running the missing ones."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ocssl.cli.flags import (
    DifferencesOption,
    EngineName,
    ForceOption,
    OutputOption,
    deadline,
    known_datasets,
    line_printer,
    plain_console,
)
from ocssl.common.console import short_value
from ocssl.common.signals import Interrupted
from ocssl.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from ocssl.paper import RunOutcome
    from ocssl.results import PaperRow, PaperTable, Problem, Section, Store
    from ocssl.results.tuned import TunedValues
    from ocssl.sweeps.plan import Sweep

app = typer.Typer(
    help="The paper's tables: ours beside the published, and running the rest.",
    epilog="Example: ocssl paper run high-simsiam --seeds 0,1,2",
    no_args_is_help=True,
)

_what = partial(typer.Option, rich_help_panel="What is run")
_how = partial(typer.Option, rich_help_panel="How, and where it is kept")


def _known_tables() -> list[str]:
    from ocssl.results import TABLES

    return [*TABLES]


_table = partial(typer.Argument, autocompletion=_known_tables)
TableName = Annotated[str, _table(metavar="ID", help="A table, as `ocssl paper list` names it.")]
TableNames = Annotated[list[str], _table(metavar="ID…", help="Tables, as `ocssl paper list` names them.")]
ResultsOption = Annotated[Path, _how(metavar="DIR", help="Folder of result files.")]
DataRoot = Annotated[Path | None, _how(help="Folder with data sets.")]
DataSet = Annotated[str | None, _what(help="Data set [default: the first].", autocompletion=known_datasets)]
RESULTS = Path("results")
FLAGS = {"dataset": "--dataset", "protocol": "--protocol"}
"""Settings of a table's rows that have a flag, and that `--set` therefore does not take."""
ProtocolOption = Literal["clean", "authors"]
ProtocolChoice = Annotated[ProtocolOption, _what(help="clean: corrected; authors: as in the public code.")]
MethodsOption = Annotated[list[str] | None, _what("--methods", "--rows", help="Rows, like er,cla-e [default: all].")]
SettingsOption = Annotated[list[str] | None, _how("--set", metavar="KEY=VALUE", help="Any setting.")]
EngineOption = Annotated[EngineName, _how(help="Here, or on a Ray cluster.")]
WorkersOption = Annotated[int, _how(help="Runs at once.")]
MaxSeconds = Annotated[float | None, _how(help="Start no run after this time.")]
QuietOption = Annotated[bool, _how("--quiet", "-q", help="Only the numbers.")]
AddressOption = Annotated[str | None, _how(help="Address of a Ray cluster.")]


@app.command("list")
def list_tables(
    results: ResultsOption = RESULTS,
    data_root: DataRoot = None,
    seeds: Annotated[list[str] | None, typer.Option("--seeds", help="Seeds of each row [default: 0,1,2].")] = None,
    protocol: Annotated[ProtocolOption | None, typer.Option(help="Suggest runs of this one only.")] = None,
) -> None:
    """Every table and figure, whether its data are there, how many of its cells are filled, and what to run next.

    Example: ocssl paper list --seeds 0
    """
    from rich.table import Table

    from ocssl.results import TABLES, sections_of
    from ocssl.results.result import PROTOCOLS

    console, store = plain_console(), _open(results)
    wanted = _seeds(seeds)
    lacking: list[str] = []
    table = Table("id", "what it shows", "data set", "there", *PROTOCOLS, box=None, pad_edge=False)
    for column in table.columns:
        column.no_wrap = column.header != "what it shows"  # ids are to be copied
    listed = set()
    for paper in TABLES.values():
        found = sections_of(store, paper)
        listed |= {group.experiment for section in found for group in section.groups}
        datasets = list(dict.fromkeys(section.dataset for section in found))
        there = {dataset: _is_there(dataset, data_root) for dataset in datasets}
        filled = {(section.dataset, section.protocol): _filled(section) for section in found}
        counts = [[filled.get((dataset, name), "") for dataset in datasets] for name in PROTOCOLS]
        ready = [dataset for dataset in datasets if there[dataset]] or datasets[:1]
        asked = [one for one in found if one.dataset in ready and protocol in (None, one.protocol)]
        lacking += [line for section in asked for line in _lacking(section, wanted)]
        answers = ["yes" if there[dataset] else "no" for dataset in datasets]
        table.add_row(paper.id, paper.title, *("\n".join(lines) for lines in (datasets, answers, *counts)))
    console.print(table)
    if lacking:
        console.print(f"\nTo run next, for seeds {' '.join(map(str, wanted))}, where data are there:")
        for line in lacking:
            console.print(line, soft_wrap=True)
        console.print("Each lists its runs with --dry-run; several tables may be named at once.", style="dim")
    if unlisted := sum(file.experiment not in listed and not file.result.only_floors for file in store.files):
        console.print(f"Results that belong in none of these: {unlisted}", style="dim")
    _print_problems(console, store)


@app.command()
def show(
    table: TableName,
    dataset: DataSet = None,
    protocol: Annotated[ProtocolOption | None, _what(help="Show this protocol only.")] = None,
    differences: DifferencesOption = None,
    output: OutputOption = None,
    force: ForceOption = False,
    results: ResultsOption = RESULTS,
) -> None:
    """A table with our mean ± std over seeds, the paper's, the difference, k-NN and floors.

    Example: ocssl paper show high-simsiam --differences cla-e
    """
    from ocssl.plugins import command
    from ocssl.results import find_table, sections_of
    from ocssl.results.build import LEGEND, section_differences, terminal_table
    from ocssl.results.render import print_table, write_csv

    console, paper, store = plain_console(), find_table(table), _open(results)
    sections = sections_of(store, paper)
    wanted = None if dataset is None else _known_dataset(sections, dataset)
    found = [one for one in sections if wanted in (None, one.dataset) and protocol in (None, one.protocol)]
    filled = [section for section in found if section.content]
    tables = [terminal_table(section) for section in filled or found[:1]]
    compared = [] if differences is None else [section_differences(section, differences) for section in filled]
    if output is not None:
        wanted_tables = tables if differences is None else compared
        if not wanted_tables:
            raise ConfigError("there is no result to write yet; leave --output out to see the command that makes some")
        if len(wanted_tables) > 1:
            raise ConfigError("this is more than one table; choose one with --protocol and --dataset to write it")
        write_csv(wanted_tables[0], output, inputs=[file.path for file in store.files], force=force)
    for shown in (*tables, *compared):
        print_table(console, shown)
    if paper.shows == "accuracy":
        console.print(*LEGEND, style="dim")
    if output is not None:
        console.print(f"wrote {output}")
    if not filled:
        options = ["--dataset", wanted] if wanted else []
        options += ["--protocol", protocol] if protocol else []
        line = command("ocssl paper run", paper.id, *options)
        console.print(f"Nothing of this was run yet: {line}", style="dim", soft_wrap=True)
    _print_problems(
        console, store, [problem for section in filled for group in section.groups for problem in group.problems]
    )


@app.command()
def run(
    tables: TableNames,
    dataset: DataSet = None,
    seeds: Annotated[list[str] | None, _what("--seeds", "--seed", help="Seeds [default: 0,1,2].")] = None,
    methods: MethodsOption = None,
    protocol: ProtocolChoice = "clean",
    tuned: Annotated[list[Path] | None, _what(metavar="FILE", help="Your lr and omega, or a best.yaml.")] = None,
    settings: SettingsOption = None,
    engine: EngineOption = "local",
    workers: WorkersOption = 1,
    address: AddressOption = None,
    max_seconds: MaxSeconds = None,
    dry_run: Annotated[bool, _how("--dry-run", help="Only list what is missing.")] = False,
    results: ResultsOption = RESULTS,
    runs: Annotated[Path, _how(metavar="DIR", help="Folder of runs.")] = Path("runs"),
    data_root: DataRoot = None,
    quiet: QuietOption = False,
) -> None:
    """Run what tables miss. Each result is kept when its run ends; call again to go on.

    Example: ocssl paper run high-simsiam buffers --seeds 0,1,2 --methods er,cla-e
    """
    from ocssl.engines import make_engine
    from ocssl.paper import join_plans, make_plan, run_missing, select_rows
    from ocssl.paper.plan import choose_dataset
    from ocssl.paper.tuned import keep_values, merge_values
    from ocssl.results import find_table

    stop_at = deadline(max_seconds)
    console = plain_console(soft_wrap=True)
    papers, store = [find_table(name) for name in dict.fromkeys(tables)], _open(results, new=True)
    for paper in papers:
        _check_protocol(paper, protocol)
        if paper.shows == "seconds" and (workers > 1 or engine != "local"):
            raise ConfigError(
                f"table '{paper.id}' needs runs that have their device to themselves; leave --workers out"
            )
    chosen = [
        (paper, choose_dataset(paper, dataset), rows)
        for paper, rows in select_rows(papers, _words(methods, "--methods"))
    ]
    values = None
    for paper in papers:
        if paper not in [other for other, _, _ in chosen]:
            console.print(f"{paper.id}: none of its rows is named", style="yellow")
    if tuned:
        if len(papers) > 1:
            raise ConfigError("tuned values are for the rows of one table; name one table")
        ((paper, where, rows),) = chosen
        which = paper.id, where, protocol
        values = merge_values(tuned, which)
        chosen = [(paper, where, _with_values(rows, values))]
    plans, changes = [], _changes(data_root, settings, FLAGS | {"seed": "--seeds"})
    for paper, where, rows in chosen:
        part = make_plan(store, rows, where, protocol, _seeds(seeds), tuned=values, changes=changes, runs=runs)
        done = len(part.wanted) - len(part.missing)
        console.print(f"{paper.id}, {where}, {protocol} protocol: {done} of {len(part.wanted)} runs are done")
        plans.append(part)
    plan = join_plans(plans)
    if plan.departs:
        console.print("With these settings runs are not the table's, and it will not show them.", style="yellow")
    if dry_run:
        for run in plan.to_run:
            console.print(f"{'to resume' if run.started else 'to run'}: {run.name}")
        _print_problems(console, store)
        return
    needed = min(workers, max(1, len(plan.to_run)))  # as many as results say shared a device
    runner = make_engine(engine, workers=needed, address=address, quiet=quiet)
    if values:
        keep_values(values, results, which)
    failed = _print_outcomes(console, run_missing(plan, runner, store, results, stop_at=stop_at))
    after = _open(results, new=True)
    left = sum(not run.is_in(after) for run in plan.wanted)
    console.print(f"{len(plan.wanted) - left} of {len(plan.wanted)} runs are done, {failed} failed just now")
    _print_problems(console, after)
    if failed:
        raise typer.Exit(1)


def _with_values(rows: Sequence[PaperRow], values: TunedValues) -> tuple[PaperRow, ...]:
    """The rows that have tuned values; it is refused if none has."""
    found = tuple(row for row in rows if row.name in values)
    if not found:
        raise ConfigError(f"none of these rows has tuned values; they are for {', '.join(values) or 'no row'}")
    return found


def _print_outcomes(console: Console, outcomes: Iterable[RunOutcome]) -> int:
    """A line for each run when it ends; how many failed."""
    failed = 0
    try:
        for outcome in outcomes:
            console.print(_line(outcome), style=None if outcome.result else "red")
            failed += outcome.result is None
    except Interrupted as stopped:
        raise Interrupted(f"{stopped}; the same command goes on", stopped.number) from stopped
    return failed


@app.command()
def tune(
    table: TableName,
    dataset: DataSet = None,
    methods: MethodsOption = None,
    protocol: ProtocolChoice = "clean",
    settings: SettingsOption = None,
    engine: EngineOption = "local",
    workers: WorkersOption = 1,
    address: AddressOption = None,
    max_seconds: MaxSeconds = None,
    dry_run: Annotated[bool, _how("--dry-run", help="Only list the grids.")] = False,
    output: Annotated[Path, _how("--output", "-o", metavar="DIR", help="Folder of the sweeps.")] = RESULTS / "tuning",
    data_root: DataRoot = None,
    quiet: QuietOption = False,
) -> None:
    """Tune lr, and omega where there is one, of a table's rows on validation images; call again to go on.

    Example: ocssl paper tune views --methods cla-b,cassle --workers 8
    """
    from ocssl.engines import make_engine
    from ocssl.paper.plan import choose_dataset, configure
    from ocssl.paper.tuned import differences, tuning_settings
    from ocssl.plugins import command
    from ocssl.results import find_table
    from ocssl.runs.presets import resolve
    from ocssl.sweeps.driver import read_started, run_sweeps
    from ocssl.sweeps.plan import parse_sweep
    from ocssl.sweeps.report import at_edges

    stop_at = deadline(max_seconds)
    paper = find_table(table)
    _check_protocol(paper, protocol)
    where, runner = choose_dataset(paper, dataset), make_engine(engine, workers=workers, address=address, quiet=quiet)
    rows = [row for row in paper.select(_words(methods, "--methods")) if row.tuning]
    if not rows:
        tuned = ", ".join(row.name for row in paper.rows if row.tuning)
        raise ConfigError(f"none of these rows has a grid; those with one: {tuned or 'none of this table'}")
    changes = _changes(data_root, settings, FLAGS)
    plans = {}
    for row in rows:
        configure(row, where, protocol, changes=changes)  # refuse what cannot be run before the first sweep
        place = output / f"{paper.id}-{protocol}" / row.name
        asked = parse_sweep({"settings": tuning_settings(row, where, protocol, changes), "space": row.tuning})
        plans[place] = begun = read_started(place) if (place / "sweep.yaml").exists() else asked
        if found := differences(resolve(begun.settings), resolve(asked.settings)):
            name, (before, now) = next(iter(found.items()))
            raise ConfigError(f"the sweep in '{place}' has {name} {before}, not {now}; choose another --output")
    left = {place: _print_grid(plan, place) for place, plan in plans.items()}
    if dry_run:
        return
    in_time = {place: plan for place, plan in plans.items() if left[place] == 0 or time.monotonic() < stop_at}
    best: list[Path] = []
    failed = 0
    for place, log in run_sweeps(in_time, runner, line_printer(quiet=quiet), stop_at=stop_at).items():
        chosen = log.best()
        if failures := log.failed:
            failed += failures
            many, why = f"{failures} of {len(log.trials)} configurations failed", f"'{place / 'table.md'}' says why"
            typer.echo(f"{place.name}: {many}; {why}", err=True)
        if chosen is not None and not any(trial.state == "open" for trial in log.trials):
            best.append(place / "best.yaml")
            for sentence in at_edges(plans[place], chosen):
                more = f"add values under space or extra in '{place / 'sweep.yaml'}'"
                typer.echo(f"{place.name}: {sentence}; {more}", err=True)
    if len(best) < len(rows):
        typer.echo("not all rows are tuned yet; the same command goes on")
    if best:
        options = [*_data_set_option(paper, where), "--protocol", protocol]
        tuned_by = [word for file in best for word in ("--tuned", str(file))]
        typer.echo(f"run with these: {command('ocssl paper run', paper.id, *options, *tuned_by)}")
    if failed:
        raise typer.Exit(1)


def _print_grid(plan: Sweep, place: Path) -> int:
    """A line on the grid of a row, whose name its folder has; how many of its configurations are left."""
    from ocssl.sweeps.log import TrialLog

    space = {setting: dict.fromkeys(plan.options(setting)) for setting in plan.space}
    grid = " × ".join(f"{setting} {' '.join(map(short_value, values))}" for setting, values in space.items())
    total = len(plan.listed())
    done = sum(trial.state == "done" for trial in TrialLog(place / "trials.jsonl").trials)
    typer.echo(f"{place.name}: {grid}, {total} runs in {place}, {done} done")
    return total - done


def _open(results: Path, *, new: bool = False) -> Store:
    """The results; the usual folder need not exist yet, nor one that is about to be filled."""
    from ocssl.results import Store, read_results

    return Store() if (new or results == RESULTS) and not results.exists() else read_results(results)


def _check_protocol(table: PaperTable, protocol: ProtocolOption) -> None:
    if protocol not in table.protocols:
        raise ConfigError(f"table '{table.id}' is of the protocol {' or '.join(table.protocols)}, not {protocol}")


def _known_dataset(sections: list[Section], name: str) -> str:
    """The data set of a table that is meant: one that has results, or one that is known."""
    if name in {section.dataset for section in sections}:  # torch need not be imported
        return name
    from ocssl.paper.plan import choose_dataset, configure

    table = sections[0].table
    dataset = choose_dataset(table, name)
    configure(table.rows[0], dataset, "clean")
    return dataset


def _filled(section: Section) -> str:
    return f"{sum(bool(group.runs) for group in section.groups)}/{len(section.groups)}"


def _lacking(section: Section, seeds: list[int]) -> Iterator[str]:
    """The command that runs what a section lacks of these seeds, and how many runs that is."""
    from ocssl.plugins import command

    timed = section.table.shows == "seconds"
    there = [row.ours.timed if timed else row.ours.runs for row in section.rows if not row.ours.floor]
    if lacks := sum(seed not in done for done in there for seed in seeds):
        options = _data_set_option(section.table, section.dataset)
        options += [] if section.protocol == "clean" else ["--protocol", section.protocol]
        options += ["--seeds", ",".join(map(str, seeds))]
        yield f"  {lacks:3} runs: {command('ocssl paper run', section.table.id, *options)}"


def _data_set_option(table: PaperTable, dataset: str) -> list[str]:
    """The words that name a data set in a command, where it is not the table's first."""
    return [] if dataset == table.datasets[0] else ["--dataset", dataset]


def _line(outcome: RunOutcome) -> str:
    if outcome.result is None:
        return f"{outcome.run.label}: failed: {outcome.error}"
    numbers = {"Final": outcome.result.final, "Avg": outcome.result.avg}
    printed = (f"{name} {number:.2f} %, " for name, number in numbers.items() if number is not None)
    return f"{outcome.run.label}: {''.join(printed)}{outcome.run.name}.json"


def _is_there(dataset: str, root: Path | None) -> bool:
    from ocssl.data.loading import status
    from ocssl.results.result import probed_on, trained_on

    names = [trained_on(dataset), *filter(None, [probed_on(dataset)])]
    try:
        return all(status(name, "train", root=root).state in ("ready", "found") for name in names)
    except ConfigError:  # a plugin's, which was not named
        return False


def _print_problems(console: Console, store: Store, more: Iterable[Problem] = ()) -> None:
    for problem in dict.fromkeys((*store.problems, *more)):
        console.print(f"problem: {problem.sentence}", style="yellow", soft_wrap=True)


def _words(texts: list[str] | None, option: str) -> list[str]:
    """The words of an option that was given once with commas, several times, or both."""
    words = [word for text in texts or [] for word in text.replace(",", " ").split()]
    if texts and not words:  # as from an unset variable of a shell
        raise ConfigError(f"{option} is empty; leave it out, or name some")
    return words


def _seeds(texts: list[str] | None) -> list[int]:
    words = list(dict.fromkeys(_words(texts, "--seeds")))
    for word in words:
        if not word.isdecimal():
            raise ConfigError(f"seeds are whole numbers like 0,1,2, not '{word}'")
    return [int(word) for word in words] or [0, 1, 2]


def _changes(data_root: Path | None, settings: list[str] | None, flags: Mapping[str, str]) -> dict[str, Any]:
    """The settings of ``--data-root`` and ``--set``; those that other flags give are refused there."""
    from ocssl.common.yaml import assignments
    from ocssl.runs.config import merged

    changes = assignments(settings or [])
    for name in changes:
        if name in flags:
            raise ConfigError(f"{name} is given by {flags[name]}; leave it out of --set")
    return merged({"data_root": str(data_root)} if data_root else {}, changes)
