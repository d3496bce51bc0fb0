"""Strategies, data sets and runs as tables and figures write them."""

from __future__ import annotations

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
    return "other strategies" if row.startswith("spare-") else LABELS.get(row, row)


def heading(name: str) -> str:
    """A data set, method, budget or protocol as headings write it.

    >>> heading("cifar100->svhn"), heading("simsiam"), heading("folder:frames")
    ('CIFAR-100 → SVHN', 'SimSiam', 'folder:frames')
    """
    return " → ".join(HEADINGS.get(part, part) for part in name.split("->"))


def describe(result: Result, *more: str) -> str:
    """A run in a few words; ``more`` follows the data set."""
    words = [result.label, result.method and heading(result.method), heading(result.dataset), *more]
    return ", ".join(word for word in words if word) + f", seed {result.seed}"


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
