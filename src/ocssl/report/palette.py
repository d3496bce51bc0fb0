"""One look for each strategy, the same in every figure: a colour, a marker, a dash.

The colours of strategies that meet in one table stay apart for readers with deuteranopia or protanopia as well; a test
measures by how much. With so many strategies colour alone cannot carry the difference, so markers differ too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from zlib import crc32

Marker = Literal["circle", "square", "diamond", "up", "down", "plus", "cross"]
SOLID, DASHED, DOTTED = "", "6 3", "2 3"


@dataclass(frozen=True)
class Look:
    """How a strategy is drawn.

    Attributes:
        colour: on a light ground.
        dark: on a dark one.
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


LOOKS = {
    "iid": Look("#3c3c3c", "square", DASHED, "#d6d6d2"),
    "random": Look("#8c8c88", "cross", DOTTED),
    "er-reservoir": Look("#334fbd", "circle", SOLID, "#6f88ea"),
    "er-fifo": Look("#31b1f0", "up"),
    "minred": Look("#52bb99", "diamond"),
    "lump": Look("#16c1cd", "plus"),
    "finetune": Look("#597370", "down", SOLID, "#7f9c98"),
    "cassle": Look("#aab35f", "square"),
    "cassle-r": Look("#615600", "down", SOLID, "#9c8c1c"),
    "scale": Look("#605574", "plus", SOLID, "#8d80a6"),
    "osiris-r": Look("#a76ea1", "cross"),
    "pfr": Look("#7167ce", "up"),
    "cla-b": Look("#d8324b", "diamond"),
    "cla-r": Look("#e2a60a", "square"),
    "cla-e": Look("#e25e14", "circle"),
    "spare-0": Look("#4c78a8", "up", DOTTED),
    "spare-1": Look("#b5651d", "down", DOTTED),
    "spare-2": Look("#7b8b3d", "diamond", DOTTED),
}
SPARE = [name for name in LOOKS if name.startswith("spare")]


def look_name(strategy: str) -> str:
    """Under which name the palette has a strategy; one that is not ours gets a spare look, always the same.

    These names, unlike those in result files, are fit for style sheets.

    >>> look_name("cla-e"), look_name("mine")
    ('cla-e', 'spare-1')
    """
    return strategy if strategy in LOOKS else SPARE[crc32(strategy.encode()) % len(SPARE)]
