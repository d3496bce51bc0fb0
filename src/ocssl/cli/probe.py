"""``ocssl probe``: a finished run's encoder on any labelled data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ocssl.cli.flags import complete_datasets, given

SETTINGS = ("data_root", "samples_per_class", "device")


def probe(
    ctx: typer.Context,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    dataset: Annotated[
        str | None,
        typer.Option(help="What to measure on [default: the run's own set].", autocompletion=complete_datasets),
    ] = None,
    cache: Annotated[bool, typer.Option(help="Keep features in the run's folder, and use them again.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the numbers.")] = False,
) -> None:
    """Linear probe and k-NN on a run's frozen encoder, for example downstream.

    Example: ocssl probe runs/mine --dataset svhn
    """
    from ocssl.runs.evaluate import evaluate_on
    from ocssl.runs.progress import make_progress

    found = evaluate_on(run, dataset, changes=given(ctx), cache=cache, progress=make_progress(quiet=quiet))
    typer.echo(f"{found.dataset}: linear {found.linear:.2f} %, k-NN {found.knn:.2f} % of {found.test} test images")
