"""``ocssl run``: start a run, or go on with one."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ocssl.cli.names import complete_datasets, complete_memories, complete_methods, complete_strategies

if TYPE_CHECKING:
    from ocssl.runs.config import RunConfig


class Budget(StrEnum):
    """The paper's two."""

    high = "high"
    low = "low"


class Protocol(StrEnum):
    """How images are augmented, above all."""

    clean = "clean"
    authors = "authors"


WHAT, HOW, FOLDER = "What is run", "How it is run (the paper's values by default)", "Where and how it is kept"


def run(
    dataset: Annotated[
        str | None,
        typer.Option(
            help="A known set or folder:PATH …",
            autocompletion=complete_datasets,
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(help="How the past is kept.", autocompletion=complete_strategies, rich_help_panel=WHAT),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="The objective.", autocompletion=complete_methods, rich_help_panel=WHAT)
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="The replay memory.", autocompletion=complete_memories, rich_help_panel=WHAT)
    ] = None,
    budget: Annotated[
        Budget | None, typer.Option(help="The paper's table to fill in from.", rich_help_panel=WHAT)
    ] = None,
    protocol: Annotated[Protocol | None, typer.Option(help="Ours, or the authors'.", rich_help_panel=WHAT)] = None,
    iid: Annotated[bool, typer.Option("--iid", help="Shuffled data at equal CBP.", rich_help_panel=WHAT)] = False,
    init_from: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Start from its networks.", rich_help_panel=WHAT)
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Images per step, b.", rich_help_panel=HOW)] = None,
    passes: Annotated[int | None, typer.Option(help="Steps per minibatch, n_p.", rich_help_panel=HOW)] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.", rich_help_panel=HOW)] = None,
    omega: Annotated[float | None, typer.Option(help="Strength of alignment, ω.", rich_help_panel=HOW)] = None,
    samples_per_class: Annotated[int | None, typer.Option(help="Use a part of the data.", rich_help_panel=HOW)] = None,
    seed: Annotated[int | None, typer.Option(help="Of weights and draws.", rich_help_panel=HOW)] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1 …", rich_help_panel=HOW)] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings from YAML.", rich_help_panel=HOW)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any setting; repeatable.", rich_help_panel=HOW),
    ] = None,
    data_root: Annotated[Path | None, typer.Option(help="Folder with data sets.", rich_help_panel=FOLDER)] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder of the run.", rich_help_panel=FOLDER)
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with a run.", rich_help_panel=FOLDER)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings.", rich_help_panel=FOLDER)] = False,
) -> None:
    """Train on a stream, measure along it, and leave a folder with the numbers.

    Example: ocssl run --dataset cifar100 --strategy cla-e --method simsiam --budget high
    """
    from ocssl.runs.config import assignments, from_file, merged

    options = {
        "dataset": dataset,
        "strategy": strategy,
        "method": method,
        "memory": memory,
        "budget": budget and budget.value,
        "protocol": protocol and protocol.value,
        "iid": iid or None,
        "init_from": init_from and str(init_from),
        "batch": batch,
        "passes": passes,
        "lr": lr,
        "omega": omega,
        "samples_per_class": samples_per_class,
        "seed": seed,
        "device": device,
        "data_root": data_root and str(data_root),
    }
    given: dict[str, Any] = from_file(config) if config else {}
    given |= {name: value for name, value in options.items() if value is not None}
    _together(merged(given, assignments(settings or [])), output, resume, quiet)


def _together(given: dict[str, Any], output: Path | None, run: Path | None, quiet: bool) -> None:
    """Run in the group that this process was started for; the first process speaks, the others of their peers only."""
    from ocssl.common.signals import Interrupted
    from ocssl.distributed import membership
    from ocssl.errors import OcsslError, PeerError
    from ocssl.runs.progress import make_progress

    leads = True
    try:
        with membership() as group:
            leads = group.leads
            reporter = make_progress(quiet=quiet)
            said = _resume(run, output, given, reporter) if run is not None else _start(given, output, reporter)
            if leads:
                typer.echo(said)
    except Interrupted as stopped:
        if leads:
            typer.echo(f"ocssl: {stopped}", err=True)
        raise typer.Exit(stopped.exit_code) from stopped
    except PeerError:
        raise
    except OcsslError as error:
        if leads:
            raise
        raise typer.Exit(2) from error


def _start(given: dict[str, Any], output: Path | None, reporter: Any) -> str:
    from ocssl.runs.launch import start
    from ocssl.runs.presets import complete

    config = complete(given)
    place = output or Path("runs") / default_name(config)
    return _told(place, start(config, place, reporter))


def _resume(run: Path, output: Path | None, given: dict[str, Any], reporter: Any) -> str:
    from ocssl.errors import ConfigError
    from ocssl.results.result import read_result
    from ocssl.runs.folder import RunFolder
    from ocssl.runs.launch import resume, with_changes

    if output is not None:
        raise ConfigError("a resumed run stays in its folder; leave --output out")
    if RunFolder(run).result.exists():
        with_changes(RunFolder(run), given)
        reporter.say(f"'{run}' is finished already")
        return _told(run, read_result(run))
    return _told(run, resume(run, given, reporter))


def _told(place: Path, result: Any) -> str:
    if result.final is None:
        return f"finished, nothing measured; CBP {result.cbp_spent:,}; {place}"
    avg = "" if result.avg is None else f", Avg {result.avg:.2f} %"
    where = f"{result.protocol} protocol" + (", validation images" if result.measured_on == "validation" else "")
    return f"Final {result.final:.2f} %{avg} ({where}), CBP {result.cbp_spent:,}; {place}"


def default_name(config: RunConfig) -> str:
    """What a run's folder is called unless told otherwise."""
    what = "iid" if config.iid else config["strategy"]
    parts = [config.dataset, config["method"], what, config["memory"], config.budget, config.protocol]
    name = "-".join(str(part) for part in parts if part) + f"-seed{config['seed']}"
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
