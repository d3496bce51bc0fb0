"""The paper's claims and their answers, with differences drawn: as markup of the page, and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING

from ocssl.results.claims import Claim, Comparison
from ocssl.results.render.figures import INK, MUTED, stacked_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = "A filled circle speaks for the claim, a square against it, and a hollow circle leaves it open."
AGAINST = "#b3440a"
TITLE = 66  # letters of a line of a title


def claim_html(claim: Claim) -> str:
    """A claim with its answer: differences drawn on one scale, everything else in sentences."""
    said, drawn = claim.evidence, ""
    if claim.has_differences:
        said = claim.remarks
        ends = [claim.limit, *(end for found in claim.shown.values() for one in found for end in one.ends)]
        low, span = min(ends), max(ends) - min(ends) or 1.0
        drawn = "".join(
            f'<dd class="place">{escape(place)}</dd>{"".join(_drawn(one, claim.limit, low, span) for one in found)}'
            for place, found in claim.shown.items()
        )
    return (
        f'<dt><span class="answer {escape(claim.answer).replace(" ", "-")}">{escape(claim.said)}</span> '
        f"{escape(claim.text)}</dt>{drawn}{''.join(f'<dd>{escape(sentence)}</dd>' for sentence in said)}"
    )


def _drawn(one: Comparison, limit: float, low: float, span: float) -> str:
    """A difference as a mark, its interval and the limit as lines, on a scale of ``span`` points from ``low``."""

    def at(points: float) -> str:
        return f"{2 + 96 * (points - low) / span:.1f}%"

    first, mean, last = one.ends
    mark = {True: "for", False: "against", None: "open"}[one.supports]
    places = f"--limit: {at(limit)}; --low: {at(first)}; --mean: {at(mean)}; --high: {at(last)}"
    what = ", ".join(filter(None, (one.what, one.remark)))
    return (
        f'<dd class="compared"><span>{escape(what)}</span>'
        f'<span class="scale {mark}" style="{places}" aria-hidden="true"><i></i><b></b></span>'
        f"<span>{escape(one.points)}</span></dd>"
    )


def draw_claims(answered: Sequence[Claim]) -> Figure:
    """A plot for each claim that has differences."""
    claims = [claim for claim in answered if claim.has_differences]
    rows = [[(place, one) for place, found in claim.shown.items() for one in (None, *found)] for claim in claims]
    figure, plots = stacked_figure(7, [len(lines) for lines in rows])
    for axes, claim, lines in zip(plots, claims, rows, strict=True):
        axes.axvline(claim.limit, color=MUTED, lw=0.8)
        for row, (_, one) in enumerate(lines):
            if one is not None:
                first, mean, last = one.ends
                colour = AGAINST if one.supports is False else INK
                face = "white" if one.supports is None else colour
                axes.plot([first, last], [row, row], color=colour, lw=1.2)
                axes.plot(mean, row, "s" if one.supports is False else "o", color=colour, mfc=face, ms=4.5)
                axes.annotate(one.points, (1.02, row), xycoords=("axes fraction", "data"), va="center", fontsize=7)
        axes.set_yticks(range(len(lines)), [place if one is None else one.what for place, one in lines])
        for label, (_, one) in zip(axes.get_yticklabels(), lines, strict=True):
            label.set_color(MUTED if one is None else INK)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(lines) - 0.5, -0.5)
        axes.set_title(fill(f"{claim.text} {claim.said[:1].upper()}{claim.said[1:]}.", TITLE))
    return figure
