"""``ocssl sweep``: find the best settings by many runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ocssl.cli.flags import EngineName, deadline, line_printer, plain_console
from ocssl.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from ocssl.sweeps.log import Trial, TrialLog
    from ocssl.sweeps.plan import Sweep


def sweep(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A sweep file, or a shipped one by name: paper-tuning …")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Folder of the sweep [default: sweeps/FILE].")
    ] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Resume the sweep in this folder.")] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Settings beneath the sweep's, e.g. an earlier best.yaml."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of every run; repeatable.")
    ] = None,
    engine: Annotated[EngineName, typer.Option(help="This machine, or a Ray cluster.")] = "local",
    workers: Annotated[int, typer.Option(help="Runs at once on this machine.")] = 1,
    address: Annotated[str | None, typer.Option(help="Address of a Ray cluster: auto, HOST:PORT …")] = None,
    gpus_per_run: Annotated[float | None, typer.Option(help="Fraction of a GPU that Ray gives each run.")] = None,
    retries: Annotated[int, typer.Option(help="Further attempts at a run whose worker died.")] = 2,
    max_seconds: Annotated[float | None, typer.Option(help="Start no run after this time; --resume goes on.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the table.")] = False,
) -> None:
    """Try many settings on validation images and write the best.

    Example: ocssl sweep paper-tuning --set strategy=cla-r --engine ray --workers 8
    """
    from ocssl.common.yaml import assignments
    from ocssl.engines import make_engine
    from ocssl.results.render.terminal import print_table
    from ocssl.runs.config import read_settings
    from ocssl.sweeps.driver import go_on, read_started, run_sweeps
    from ocssl.sweeps.plan import read_sweep
    from ocssl.sweeps.report import trial_table

    info, stop_at = line_printer(quiet=quiet), deadline(max_seconds)
    pool = make_engine(
        engine, workers=workers, address=address, retries=retries, gpus_per_run=gpus_per_run, quiet=quiet
    )
    if (file is None) == (resume is None):
        raise ConfigError("give either a sweep FILE or --resume DIR")
    if resume is not None:
        if output is not None or settings or config is not None:
            raise ConfigError("a resumed sweep keeps its folder and settings; leave --output, --config and --set out")
        place, plan = resume, read_started(resume)
    else:
        plan = read_sweep(str(file), assignments(settings or []), read_settings(config) if config else None)
        place = output or Path("sweeps") / Path(str(file)).stem
        if (place / "sweep.yaml").exists():
            raise ConfigError(f"'{place}' has a sweep; go on with it ({go_on(place)}) or choose another --output")
    log = run_sweeps({place: plan}, pool, info, stop_at=stop_at)[place]
    print_table(plain_console(), trial_table(plan, log))
    if log.out_of_time:
        total = max(plan.trials or 0, len(log.trials))
        left = total - sum(trial.state != "open" for trial in log.trials)
        many = f"{left} of {total} configurations are left"
        typer.echo(f"out of time, {many}; go on with: {go_on(place)}", err=True)
        return
    if (best := log.best()) is not None:
        _print_best(plan, log, best, place)
    if failed := log.failed:
        typer.echo(f"{failed} of {len(log.trials)} configurations failed; the table says why", err=True)
        raise typer.Exit(1)


def _print_best(plan: Sweep, log: TrialLog, best: Trial, place: Path) -> None:
    """Draw the scores, and say how the best configuration is run and whether a better one may lie beyond it."""
    from ocssl.plugins import command
    from ocssl.sweeps.report import at_edges, plot_scores

    try:
        plot_scores(plan, log, place / "plot.png")
    except MissingExtraError as missing:
        typer.echo(f"no plot: {missing}", err=True)
    typer.echo(command("best: ocssl run --config", place / "best.yaml"))
    more = f"; to look beyond, list more under space or extra in '{place / 'sweep.yaml'}' and --resume"
    for sentence in at_edges(plan, best):
        typer.echo(f"{sentence}{more if plan.search == 'grid' else ''}", err=True)
