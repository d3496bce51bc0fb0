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
    "iid": Look("#3c3c3c", "square", DASHED, "#ececea"),
    "random": Look("#8c8c88", "square", DOTTED),
    "er-reservoir": Look("#334fbd", "circle", dark="#4763de"),
    "er-fifo": Look("#31b1f0", "up", dark="#69bbfe"),
    "minred": Look("#52bb99", "diamond", dark="#81caa7"),
    "lump": Look("#16c1cd", "plus", dark="#3adced"),
    "finetune": Look("#597370", "cross", dark="#7fb1c5"),
    "cassle": Look("#aab35f", "down", dark="#d9e79f"),
    "cassle-r": Look("#615600", "down", dark="#846516"),
    "scale": Look("#605574", "plus", dark="#735879"),
    "osiris-r": Look("#a76ea1", "cross", dark="#ae7da3"),
    "pfr": Look("#7167ce", "up", dark="#8a8eea"),
    "cla-b": Look("#d8324b", "diamond", dark="#e7605b"),
    "cla-r": Look("#e2a60a", "square", dark="#ffce31"),
    "cla-e": Look("#e25e14", "circle", dark="#fe7907"),
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
