"""``ocssl budget``: what a budget buys, and what a run costs."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Annotated

import typer

from ocssl.cli.flags import given, plain_console
from ocssl.common.console import shown
from ocssl.errors import ConfigError

PAPER_CBP = 3_726_000  # the high budget
SETTINGS = ("strategy", "method", "image_size", "small_views", "small_side")
"""Settings that decide, besides the views, what an image costs."""


def budget(
    ctx: typer.Context,
    cbp: Annotated[int | None, typer.Option(min=1, help="CBP to spend [default: the paper's high, 3,726,000].")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Images in the stream.")] = 45_000,
    stream_batch: Annotated[int, typer.Option(min=1, help="Images per stream minibatch, b_s.")] = 10,
    views: Annotated[int | None, typer.Option(min=1, help="Views of each image [default: the strategy's, 2].")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Images per step, b: ask what it costs.")] = None,
    passes: Annotated[int | None, typer.Option(min=1, help="Steps per minibatch, n_p: ask what it costs.")] = None,
) -> None:
    """The CBP calculator: what a budget buys, or what it costs.

    Example: ocssl budget --cbp 270000, or: ocssl budget --batch 138 --passes 3
    """
    from rich.table import Table

    from ocssl.budget import MAX_COUNT, plan
    from ocssl.config import parse_learner

    for value in (cbp, samples, stream_batch, views, batch, passes):
        if value is not None and value > MAX_COUNT:
            raise ConfigError(f"no number may be above 10**18, and one is {shown(value)}")
    cost, minibatches = parse_learner(given(ctx)).cost(views), samples // stream_batch
    if minibatches == 0:
        raise ConfigError(f"{samples} images make no minibatch of {stream_batch}")
    if batch is not None and batch < stream_batch:
        raise ConfigError(f"batch ({batch}) must be at least stream_batch ({stream_batch})")
    if batch is not None and passes is not None:
        if cbp is not None:
            raise ConfigError("a cost follows from batch and passes; leave out one of cbp, batch and passes")
        buys = [(batch, passes)]
    else:
        buys = affordable(cbp or PAPER_CBP, cost, minibatches, stream_batch, batch, passes)
    table = Table("passes n_p", "batch b", "of it replay", "steps", "CBP", "i.i.d. epochs", box=None, pad_edge=False)
    for b, n_p in buys:
        run = plan(samples, stream_batch, b, n_p, cost)
        table.add_row(str(n_p), str(b), str(b - stream_batch), f"{run.steps:,}", f"{run.cbp:,}", str(run.iid_epochs))
    plain_console().print(table)


def affordable(
    cbp: int, cost: Fraction, minibatches: int, smallest: int, batch: int | None, passes: int | None
) -> list[tuple[int, int]]:
    """The (b, n_p) that come nearest to a budget from below.

    Args:
        cost: CBP of one image in a step; a step is rounded up.
        batch, passes: fixed, where given.

    >>> affordable(270_000, Fraction(2), 4500, smallest=10, batch=None, passes=None)
    [(30, 1), (15, 2), (10, 3)]
    """
    unit = minibatches * ceil(cost * (batch or smallest))  # of one pass over the stream
    if cbp < (least := unit * (passes or 1)):
        raise ConfigError(f"{cbp} CBP do not pay for that; the least is {least}")
    most = cbp // unit
    if batch is not None:
        return [(batch, most)]
    counts = [passes] if passes else [*range(1, min(most, 10) + 1), *([most] if most > 10 else [])]
    return [(cbp // (minibatches * n_p) // cost, n_p) for n_p in counts]
