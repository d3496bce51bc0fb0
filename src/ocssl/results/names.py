"""Names and styles: strategies, data sets and runs as tables and figures show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from zlib import crc32

from ocssl.results.result import Result

LABELS = {
    "iid": "i.i.d.",
    "cassle": "CaSSLe",
    "cassle-r": "CaSSLe-R",
    "finetune": "finetuning",
    "lump": "LUMP",
    "er-reservoir": "ER w/ reservoir",
    "er-fifo": "ER w/ FIFO",
    "minred": "MinRed",
    "cla-b": "CLA-b",
    "cla-r": "CLA-R",
    "cla-e": "CLA-E",
    "scale": "SCALE",
    "osiris-r": "Osiris-R",
    "pfr": "PFR",
    "random": "random encoder",
}
"""Rows of the paper's tables as the paper prints them."""

HEADINGS = {
    "cifar100": "CIFAR-100",
    "cifar10": "CIFAR-10",
    "imagenet100": "ImageNet100",
    "imagenet100:authors": "ImageNet100 (authors' classes)",
    "svhn": "SVHN",
    "cars": "Stanford Cars",
    "simsiam": "SimSiam",
    "simclr": "SimCLR",
    "high": "high CBP",
    "low": "low CBP",
    "custom": "other budget",
    "authors": "authors’",
}
LONGEST = 60  # bytes of one part of a file name; file systems take 255 in all


def row_name(strategy: str, memory: str | None) -> str:
    """The paper's name of a strategy: its own, but ER has a row for each memory.

    >>> row_name("er", "fifo"), row_name("cla-e", "fifo")
    ('er-fifo', 'cla-e')
    """
    if strategy == "er":
        return "er-fifo" if memory == "fifo" else "er-reservoir"
    return strategy


def row_label(row: str) -> str:
    """A strategy as the paper prints it; one that the paper lacks keeps its name.

    >>> row_label("er-fifo"), row_label("mine")
    ('ER w/ FIFO', 'mine')
    """
    return "other strategies" if row in SPARE else LABELS.get(row, row)


def heading(name: str) -> str:
    """A data set, method, budget or protocol as headings write it.

    >>> heading("cifar100->svhn"), heading("simsiam"), heading("folder:frames")
    ('CIFAR-100 → SVHN', 'SimSiam', 'folder:frames')
    """
    return " → ".join(HEADINGS.get(part, part) for part in name.split("->"))


def describe(result: Result, *more: str) -> str:
    """A run in a few words; ``more`` follows the data set."""
    words = [result.label, heading(result.method or ""), heading(result.dataset), *more, f"seed {result.seed}"]
    return ", ".join(filter(None, words))


def file_part(name: str) -> str:
    """A name as a part of a file name; a digest keeps names apart that would look the same.

    >>> file_part("cifar100->svhn"), file_part("folder:my frames")
    ('cifar100-to-svhn', 'folder-my-frames-9812')
    """
    plain = name.replace("->", "-to-")
    part = _cut("".join(letter if letter.isalnum() else "-" for letter in plain))
    return part if part == plain else f"{part}-{crc32(name.encode(errors='replace')) % 65536:04x}"


def dashed(text: str) -> str:
    """The words of a text in lower case, joined by dashes, as a part of a file name.

    >>> dashed("CIFAR-100, NVIDIA H200")
    'cifar-100-nvidia-h200'
    """
    return _cut("-".join("".join(letter if letter.isalnum() else " " for letter in text.lower()).split()))


def _cut(name: str) -> str:
    return name.encode(errors="replace")[:LONGEST].decode(errors="ignore")


@dataclass(frozen=True)
class Style:
    """How a strategy is drawn, the same in every figure.

    Strategies that meet in one table differ in colour for readers with deuteranopia or protanopia, too; so many cannot
    be told apart by colour alone, so markers differ as well.

    Attributes:
        colour: on a light ground.
        dash: of lines, as SVG has it; empty for a solid one.
        dark: colour on a dark ground; the same where empty.
    """

    colour: str
    marker: Literal["circle", "square", "diamond", "up", "down", "plus", "cross"]
    dash: str = ""
    dark: str = ""


DASHED, DOTTED = "6 3", "2 3"
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
    """The key in :data:`STYLES` of a row's name; a strategy without a style of its own gets a spare one.

    >>> style_name("cla-e"), style_name("mine")
    ('cla-e', 'spare-1')
    """
    return row if row in STYLES else SPARE[crc32(row.encode()) % len(SPARE)]
