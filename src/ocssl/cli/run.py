"""``ocssl run``: start a run, or go on with one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ocssl.cli.flags import given
from ocssl.errors import ConfigError, OcsslError, PeerError

if TYPE_CHECKING:
    from ocssl.results.result import Result
    from ocssl.runs.progress import Progress

_option = partial(typer.Option, rich_help_panel="Files")


def run(
    ctx: typer.Context,
    config: Annotated[Path | None, _option("--config", metavar="FILE", help="Settings from YAML.")] = None,
    assignments: Annotated[
        list[str] | None, _option("--set", metavar="KEY=VALUE", help="A setting; repeatable.")
    ] = None,
    output: Annotated[Path | None, _option("--output", "-o", metavar="DIR", help="Folder of the run.")] = None,
    resume: Annotated[Path | None, _option(metavar="RUN", help="Go on with a run.")] = None,
    force: Annotated[bool, _option("--force", help="Resume on other images or code, too.")] = False,
    quiet: Annotated[bool, _option("--quiet", "-q", help="Only warnings.")] = False,
) -> None:
    """Train on a stream, measure along it, and leave a folder with the numbers.

    Example: ocssl run --dataset cifar100 --strategy cla-e --budget high
    """
    from ocssl.distributed import process_group
    from ocssl.runs.config import merged, read_settings
    from ocssl.runs.progress import make_progress

    if force and resume is None:
        raise ConfigError("--force is for --resume; leave it out")
    settings = merged(read_settings(config) if config else {}, given(ctx, assignments))
    leads = True
    try:
        with process_group() as group:
            leads = group.is_main
            progress = make_progress(quiet=quiet)
            if resume is not None:
                said = _resume(resume, output, settings, progress, force)
            else:
                said = _start(settings, output, progress)
            if leads:
                typer.echo(said)
    except PeerError:
        raise
    except OcsslError as error:
        if leads:
            raise
        raise typer.Exit(getattr(error, "exit_code", 2)) from error


def _start(settings: dict[str, Any], output: Path | None, progress: Progress) -> str:
    from ocssl.runs.naming import run_name
    from ocssl.runs.presets import resolve
    from ocssl.runs.run import start

    config = resolve(settings)
    place = output or Path("runs") / run_name(config)
    return _summary(place, start(config, place, progress))


def _resume(run: Path, output: Path | None, settings: dict[str, Any], progress: Progress, force: bool) -> str:
    from ocssl.runs.run import read_finished, resume

    if output is not None:
        raise ConfigError("a resumed run stays in its folder; leave --output out")
    if (result := read_finished(run, settings)) is not None:
        progress.info(f"'{run}' is finished already")
        return _summary(run, result)
    return _summary(run, resume(run, settings, progress, force=force))


def _summary(place: Path, result: Result) -> str:
    if result.final is None and result.references:
        floors = ", ".join(
            f"{name} {value:.2f} %" + (f" (k-NN {near:.2f} %)" if (near := result.knn_references.get(name)) else "")
            for name, value in result.references.items()
        )
        return f"floors: {floors}; {place}"
    if result.final is None:
        return f"finished, nothing measured; CBP {result.cbp_spent:,}; {place}"
    avg = "" if result.avg is None else f", Avg {result.avg:.2f} %"
    where = f"{result.protocol} protocol" + (", validation images" if result.measured_on == "validation" else "")
    where += f", {result.crops} crops" if result.crops > 1 else ""
    return f"Final {result.final:.2f} %{avg} ({where}), CBP {result.cbp_spent:,}; {place}"
