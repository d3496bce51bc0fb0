"""``ocssl probe``: a finished run's encoder on any labelled data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ocssl.cli.flags import given, known_datasets
from ocssl.cli.show import refuse_encoder
from ocssl.common.console import number_of
from ocssl.errors import ConfigError

SETTINGS = ("data_root", "samples_per_class", "eval_crops", "device")


def probe(
    ctx: typer.Context,
    run: Annotated[Path, typer.Argument(metavar="RUN|STATE", help="Folder of a finished run or of a live learner.")],
    dataset: Annotated[
        str | None,
        typer.Option(help="What to measure on [default: the run's own set].", autocompletion=known_datasets),
    ] = None,
    cache: Annotated[bool, typer.Option(help="Keep features in the run's folder, and use them again.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the numbers.")] = False,
) -> None:
    """Linear probe and k-NN on a frozen encoder: of a run, or of a live learner before and after.

    Example: ocssl probe runs/mine --dataset svhn
    """
    from ocssl.live.life import is_state, probe_state
    from ocssl.runs.evaluate import evaluate_on
    from ocssl.runs.progress import make_progress

    changes = given(ctx)
    refuse_encoder(run)
    if is_state(run):
        if dataset is None:
            raise ConfigError("a live learner has no labelled images of its own; give some with --dataset folder:PATH")
        if changes.get("eval_crops", 1) != 1:
            raise ConfigError("a live learner is measured on whole images; leave --eval-crops out")
        options = {"root": changes.get("data_root"), "samples_per_class": changes.get("samples_per_class")}
        for number, one in enumerate(probe_state(run, dataset, **options)):
            if number == 0:
                typer.echo(f"{number_of(one.test, 'test image'):<20}{'k-NN':>9}{'linear':>10}")
            typer.echo(f"{one.features:<20}{one.knn:>7.1f} %{one.linear:>8.1f} %")
        return
    found = evaluate_on(run, dataset, changes=changes, cache=cache, progress=make_progress(quiet=quiet))
    crops = f", {found.crops} crops" if found.crops > 1 else ""
    numbers = f"linear {found.linear:.2f} %, k-NN {found.knn:.2f} %"
    typer.echo(f"{found.dataset}: {numbers} of {found.test} test images{crops}")
