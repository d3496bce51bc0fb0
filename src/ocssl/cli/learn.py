"""``ocssl learn``: learn from images as they come."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any

import typer

from ocssl.cli.names import complete_memories, complete_methods, complete_strategies

HOW, WHEN = "How it learns (chosen for this machine by default)", "When"


def learn(
    source: Annotated[
        str,
        typer.Argument(help="A folder, video, tar or parquet file, camera:0, or - for paths on standard input."),
    ],
    state: Annotated[Path, typer.Option(metavar="DIR", help="Keeps the learner and DIR/encoder.")],
    follow: Annotated[bool, typer.Option("--follow", help="Go on with files that come later.")] = False,
    images_per_second: Annotated[float | None, typer.Option(help="Rate to keep up with (20).")] = None,
    image_size: Annotated[int | None, typer.Option(help="Side to learn at.", rich_help_panel=HOW)] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="resnet18, resnet18-w16, convnet, timm:NAME …", rich_help_panel=HOW),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="How the past is kept: ocssl list strategies.", autocompletion=complete_strategies, rich_help_panel=HOW
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="The objective: ocssl list methods.", autocompletion=complete_methods, rich_help_panel=HOW),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="The replay memory: ocssl list memories.", autocompletion=complete_memories, rich_help_panel=HOW
        ),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Images per step, b.", rich_help_panel=HOW)] = None,
    passes: Annotated[int | None, typer.Option(help="Steps per minibatch, n_p.", rich_help_panel=HOW)] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any setting of Learner; repeatable.", rich_help_panel=HOW),
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1 …", rich_help_panel=HOW)] = None,
    seed: Annotated[int | None, typer.Option(help="Of weights and draws.", rich_help_panel=HOW)] = None,
    save_every: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Between saves, each publishing (30).", rich_help_panel=WHEN),
    ] = None,
    report_every: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Between lines of progress (10).", rich_help_panel=WHEN),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings.", rich_help_panel=WHEN)] = False,
) -> None:
    """Learn from every image once, and keep an encoder ready for use at any moment.

    The same command goes on where an earlier one stopped, however it ended.

    Example: ocssl learn frames/ --state robot --follow
    """
    from ocssl.common.yaml import assignments
    from ocssl.live import check_names
    from ocssl.live import learn as learn_live

    given: dict[str, Any] = {
        "follow": follow,
        "images_per_second": images_per_second,
        "save_every": save_every,
        "report_every": report_every,
        "image_size": image_size,
        "backbone": backbone,
        "strategy": strategy,
        "method": method,
        "memory": memory,
        "batch": batch,
        "passes": passes,
        "device": device,
        "seed": seed,
    }
    given |= assignments(settings or [])
    check_names(given)

    def info(line: str) -> None:
        if not quiet:
            with contextlib.suppress(OSError):  # a full disk behind the log, or a closed pipe, does not stop learning
                typer.echo(line, err=True)

    learner = learn_live(source, state, info=info, **given)
    typer.echo(f"learned from {learner.seen:,} images, CBP {learner.budget.spent:,}; encoder: {state / 'encoder'}")
