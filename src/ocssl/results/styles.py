"""One style for each strategy, the same in every figure: a colour, a marker, a dash.

The colours of strategies that meet in one table differ for readers with deuteranopia or protanopia, too; a test measures
by how much. So many strategies cannot be told apart by colour alone, so markers differ as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from zlib import crc32

Marker = Literal["circle", "square", "diamond", "up", "down", "plus", "cross"]
SOLID, DASHED, DOTTED = "", "6 3", "2 3"


@dataclass(frozen=True)
class Style:
    """How a strategy is drawn.

    Attributes:
        colour: on a light ground.
        dark: on a dark one; the same by default.
        dash: of lines, as SVG has it; empty for a solid one.
    """

    colour: str
    marker: Marker
    dash: str = SOLID
    dark: str | None = None

    @property
    def on_dark(self) -> str:
        """The colour on a dark ground."""
        return self.dark or self.colour


STYLES = {
    "iid": Style("#3c3c3c", "square", DASHED, "#ececea"),
    "random": Style("#8c8c88", "square", DOTTED),
    "er-reservoir": Style("#334fbd", "circle", dark="#4763de"),
    "er-fifo": Style("#31b1f0", "up", dark="#69bbfe"),
    "minred": Style("#52bb99", "diamond", dark="#81caa7"),
    "lump": Style("#16c1cd", "plus", dark="#3adced"),
    "finetune": Style("#597370", "cross", dark="#7fb1c5"),
    "cassle": Style("#aab35f", "down", dark="#d9e79f"),
    "cassle-r": Style("#615600", "down", dark="#846516"),
    "scale": Style("#605574", "plus", dark="#735879"),
    "osiris-r": Style("#a76ea1", "cross", dark="#ae7da3"),
    "pfr": Style("#7167ce", "up", dark="#8a8eea"),
    "cla-b": Style("#d8324b", "diamond", dark="#e7605b"),
    "cla-r": Style("#e2a60a", "square", dark="#ffce31"),
    "cla-e": Style("#e25e14", "circle", dark="#fe7907"),
    "spare-0": Style("#4c78a8", "up", DOTTED),
    "spare-1": Style("#b5651d", "down", DOTTED),
    "spare-2": Style("#7b8b3d", "diamond", DOTTED),
}
SPARE = [name for name in STYLES if name.startswith("spare")]


def style_name(row: str) -> str:
    """The key in :data:`STYLES` of a row's name; a strategy without a style of its own gets one of the spare ones.

    >>> style_name("cla-e"), style_name("mine")
    ('cla-e', 'spare-1')
    """
    return row if row in STYLES else SPARE[crc32(row.encode()) % len(SPARE)]
