"""``ocssl learn``: learn from images as they come."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from ocssl.cli.flags import given

WHEN = "When"


def learn(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(help="A folder, video, tar or parquet file, camera:0, or - for paths on standard input."),
    ],
    state: Annotated[Path, typer.Option(metavar="DIR", help="Keeps the learner and DIR/encoder.")],
    follow: Annotated[bool, typer.Option("--follow", help="Go on with files that come later.")] = False,
    images_per_second: Annotated[float, typer.Option(help="Rate to keep up with (20).", show_default=False)] = 20.0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of Learner; repeatable.")
    ] = None,
    save_every: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Between saves, each publishing (30).",
            show_default=False,
            rich_help_panel=WHEN,
        ),
    ] = 30.0,
    report_every: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Between lines of progress (10).", show_default=False, rich_help_panel=WHEN
        ),
    ] = 10.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings.", rich_help_panel=WHEN)] = False,
) -> None:
    """Learn from every image once, and keep an encoder ready for use at any moment.

    Settings that are not given are chosen for this machine. The same command goes on where an earlier one stopped,
    however it ended.

    Example: ocssl learn frames/ --state robot --follow
    """
    from ocssl.live import learn as learn_live

    def info(line: str) -> None:
        if not quiet:
            with contextlib.suppress(OSError):  # a full disk behind the log, or a closed pipe, does not stop learning
                typer.echo(line, err=True)

    learner = learn_live(
        source,
        state,
        info=info,
        follow=follow,
        images_per_second=images_per_second,
        save_every=save_every,
        report_every=report_every,
        **given(ctx, settings),
    )
    typer.echo(f"learned from {learner.seen:,} images, CBP {learner.budget.spent:,}; encoder: {state / 'encoder'}")
