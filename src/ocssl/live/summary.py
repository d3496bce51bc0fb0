"""What a live learner says of the quality of its encoder."""

from __future__ import annotations

from collections.abc import Iterator

from ocssl.live.gate import ORDERED, Quality


def quality_line(quality: Quality) -> str:
    """The numbers of a check in a few words, for the progress line.

    >>> check = Quality(seen=500, order=9.0, in_time=0.42, published=0.42, start=0.38, pixels=0.2, colours=0.2,
    ...                 chance=0.04, error=0.01, rank=60.0, rank_published=60.0, rank_start=55.0, agreement=0.4,
    ...                 agreement_published=0.4)
    >>> quality_line(check)
    'neighbours in time 42 %, at the start 38 %, colours 20 %'
    """
    if quality.ordered:
        start, colours = _percent(quality.start), _percent(quality.colours)
        teacher = "" if quality.teacher is None else f", teacher {_percent(quality.teacher)}"
        return f"neighbours in time {_percent(quality.in_time)}, at the start {start}{teacher}, colours {colours}"
    return f"rank {quality.rank:.0f}, at the start {quality.rank_start:.0f}"


def order_line(quality: Quality) -> str:
    """Whether the images have an order in time, and what follows from it."""
    if quality.ordered:
        return f"the images have an order in time (z = {quality.order:.0f}): encoders are judged by neighbours in time"
    return (
        f"the images have no order in time (z = {quality.order:.1f}, below {ORDERED:.0f}): neighbours in time say "
        "nothing here, and only encoders whose effective rank collapses are held back"
    )


def summary(quality: Quality) -> Iterator[str]:
    """A table of the encoder before and after, and of the yardsticks; :func:`verdict` says what follows."""
    shares = quality.ordered
    yield f"{'':<22}{'neighbours in time':>20}{'effective rank':>16}{'agreement':>11}"
    for name, share, rank, agreement in (
        ("at the start", quality.start, quality.rank_start, 1.0),
        ("published encoder", quality.published, quality.rank_published, quality.agreement_published),
        ("teacher", quality.teacher, None, None),
        ("raw pixels", quality.pixels, None, None),
        ("colours", quality.colours, None, None),
        ("chance", quality.chance, None, None),
    ):
        if share is not None and (shares or rank is not None):
            row = f"{name:<22}{_percent(share, 1) if shares else '–':>20}"
            row += f"{'' if rank is None else f'{rank:.1f}':>16}{'' if agreement is None else _percent(agreement):>11}"
            yield row.rstrip()


def verdict(quality: Quality, *, pretrained: bool = False, heads_only: bool = False) -> str:
    """Whether learning has helped, and where it has not, what to try.

    Args:
        pretrained: the learner began with given weights.
        heads_only: no step has trained the network itself so far.
    """
    if heads_only:
        return (
            "the network is as it was given: so far only the new heads have learned; give more images, or begin a new "
            "--state with a smaller --set heads_first"
        )
    network = "" if pretrained else " or a pretrained network"
    remedy = f"try more images, or a new --state with more time (--minutes){network}"
    if not quality.ordered and quality.agreement_published < 1:  # something learned is published
        rank = "grown" if quality.helped else "not fallen"
        return f"the effective rank has {rank}; only labels can tell more where images have no order (ocssl probe)"
    rise = f"neighbours in time rose from {_percent(quality.start, 1)} to {_percent(quality.published, 1)}"
    if quality.ordered and 0 < quality.published - quality.start < quality.least_rise:
        by = 100 * (quality.published - quality.start)
        least = f"a rise counts from {100 * quality.least_rise:.2f} points on"
        return f"learning has not helped clearly: {rise}, by {by:.2f} points, and {least}; {remedy}"
    if not quality.helped:
        return f"learning has not helped: the published encoder is no better than at the start; {remedy}"
    if quality.teacher is not None and quality.published < quality.teacher:
        return f"learning has helped, but the teacher still finds more neighbours in time: use it meanwhile; {remedy}"
    yardstick = max(quality.colours, quality.pixels)
    if quality.published <= yardstick:
        name = "colours" if quality.colours >= quality.pixels else "raw pixels"
        return f"learning has helped, but {name} alone find at least as many neighbours in time; {remedy}"
    return f"learning has helped: {rise}"


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"
