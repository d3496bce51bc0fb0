"""Names and styles: strategies, data sets and runs as tables and figures show them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from zlib import crc32

from ocssl.common.console import short_value
from ocssl.common.files import slug
from ocssl.results.published import read_yaml

MAX_PART_BYTES = 60  # of one part of a file name; file systems take 255 in all
COSTS = ("stream_batch", "batch", "passes")  # settings behind b_s, b and n_p
ABSOLUTE_FOLDERS = re.compile(r"(?<![\w.:/<])/(?:[\w.@+~%-]+/)+(?=[\w.@+~%-])")
SYMBOLS = {
    "stream_batch": "b_s", "batch": "b", "passes": "n_p", "views": "n_v", "omega": "ω", "tau": "τ", "alpha": "α",
    "mix": "α", "average_power": "γ",
}  # fmt: skip
"""Symbols of settings, as their declarations have them; a test compares the two."""


@dataclass(frozen=True)
class Style:
    """How a strategy is drawn, the same in every figure.

    Attributes:
        colour: on a light ground.
        dash: of lines, as SVG has it; empty for a solid one.
        dark: colour on a dark ground; the same where empty.
    """

    colour: str
    marker: Literal["circle", "square", "diamond", "up", "down", "plus", "cross"]
    dash: str = ""
    dark: str = ""


STYLES = {name: Style(**style) for name, style in read_yaml("names")["styles"].items()}


def style_name(row: str) -> str:
    """The key in :data:`STYLES` of a row's name; a strategy without a style of its own gets a spare one.

    >>> style_name("cla-e"), style_name("mine")
    ('cla-e', 'spare-1')
    """
    return row if row in STYLES else f"spare-{crc32(row.encode()) % 3}"


def row_name(strategy: str, memory: str | None) -> str:
    """The paper's name of a strategy: its own, but ER has a row for each memory.

    >>> row_name("er", "fifo"), row_name("cla-e", "fifo")
    ('er-fifo', 'cla-e')
    """
    return f"er-{memory}" if strategy == "er" else strategy


def row_label(row: str) -> str:
    """A strategy as the paper prints it; one that the paper lacks keeps its name.

    >>> row_label("er-fifo"), row_label("mine")
    ('ER w/ FIFO', 'mine')
    """
    return str(read_yaml("names")["labels"].get(row, row))


def setting_text(name: str, value: object) -> str:
    """A setting as labels and captions write it.

    >>> setting_text("omega", 0.3), setting_text("probe.lr", 0.05), setting_text("cbp", None)
    ('ω 0.3', 'probe.lr 0.05', 'cbp unset')
    """
    return f"{SYMBOLS.get(name, name)} {'unset' if value is None else short_value(value)}"


def flat_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of groups by names such as ``probe.lr``.

    >>> flat_settings({"lr": 0.3, "probe": {"lr": 0.05}})
    {'lr': 0.3, 'probe.lr': 0.05}
    """
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
    return flat


def heading(name: str) -> str:
    """A data set, method, budget or protocol as headings write it.

    >>> heading("cifar100->svhn"), heading("simsiam"), heading("folder:frames")
    ('CIFAR-100 → SVHN', 'SimSiam', 'folder:frames')
    """
    return " → ".join(read_yaml("names")["headings"].get(part, part) for part in name.split("->"))


def file_part(name: str) -> str:
    """A name as a part of a file name; a digest keeps names apart that would look the same.

    >>> file_part("cifar100->svhn"), file_part("folder:my frames")
    ('cifar100-to-svhn', 'folder-my-frames-9812')
    """
    plain = name.replace("->", "-to-")
    part = slug(re.sub(r"[\W_]", "-", plain), MAX_PART_BYTES)
    return part if part == plain else f"{part}-{crc32(name.encode(errors='replace')) % 65536:04x}"


def dashed(text: str) -> str:
    """The words of a text in lower case, joined by dashes, as a part of a file name.

    >>> dashed("CIFAR-100, NVIDIA H200")
    'cifar-100-nvidia-h200'
    """
    return slug(re.sub(r"[\W_]+", "-", text.lower()).strip("-"), MAX_PART_BYTES)


def without_folders(text: str) -> str:
    """A sentence whose absolute paths have lost their folders, which are those of the machine that made it.

    >>> without_folders("cannot read '/home/me/data/a.png': no space")
    "cannot read 'a.png': no space"
    """
    return ABSOLUTE_FOLDERS.sub("", text)
