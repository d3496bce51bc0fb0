"""``ocssl learn``: learn from images as they come."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ocssl.cli.flags import given, line_printer
from ocssl.common.console import number_of


def learn(
    ctx: typer.Context,
    source: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE", help="Folder, images, video, tar, parquet, camera:0; -: paths on stdin."),
    ],
    state: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the learner and its encoder.")],
    weights: Annotated[
        str | None, typer.Option("--from", metavar="SOURCE", help="Weights, or none to start from zero.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings from YAML.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings.")] = False,
    assigned: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any. Names: ocssl list strategies|methods|memories|backbones"),
    ] = None,
) -> None:
    """Learn from every image once, and keep an encoder ready for use at any moment.

    Settings not given are chosen for this machine. The same command resumes.

    Example: ocssl learn frames/ --state robot --follow
    """
    from ocssl import live
    from ocssl.data.layout import as_path
    from ocssl.pretrained import import_factories, read_encoder
    from ocssl.runs.config import read_settings

    settings = given(ctx, assigned) | ({} if weights is None else {"weights": weights})
    live.check_names(settings)
    settings = (read_settings(config, live.settings) if config else {}) | settings
    import_factories(settings)
    learner = live.learn(source, state, info=line_printer(quiet=quiet), **settings)
    place = as_path(str(state)) / "encoder"
    as_given = learner.seen and not read_encoder(place)[0]["seen"]
    typer.echo(
        f"learned from {number_of(learner.seen, 'image')}, CBP {learner.budget.spent:,}; encoder"
        f"{', still that of the start' if as_given else ''}: {place}"
    )
