"""Names as people write them."""

from __future__ import annotations

from zlib import crc32

from ocssl.paper import TABLES

STRATEGIES = {row.name: row.label for table in TABLES.values() for row in table.rows} | {"pfr": "PFR"}
"""Labels of the paper's rows."""

KNOWN = {
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
    "clean": "clean",
    "authors": "authors’",
}


def spell(name: str) -> str:
    """A data set, method, budget or protocol as it stands in headings.

    >>> spell("cifar100->svhn"), spell("simsiam"), spell("folder:frames")
    ('CIFAR-100 → SVHN', 'SimSiam', 'folder:frames')
    """
    if "->" in name:
        return " → ".join(spell(part) for part in name.split("->"))
    return KNOWN.get(name, name)


LONGEST = 60
"""Bytes of a name in a file's name; file systems take 255 for all of it."""


def file_name(name: str) -> str:
    """A name as part of a file's; a digest keeps names apart that look the same then.

    >>> file_name("cifar100->svhn"), file_name("folder:my frames")
    ('cifar100-to-svhn', 'folder-my-frames-9812')
    """
    said = name.replace("->", "-to-")
    plain = cut("".join(letter if letter.isalnum() else "-" for letter in said))
    return plain if plain == said else f"{plain}-{crc32(name.encode(errors='replace')) % 65536:04x}"


def cut(name: str) -> str:
    """As much of a name as the name of a file has room for."""
    return name.encode(errors="replace")[:LONGEST].decode(errors="ignore")


def label(row: str) -> str:
    """A strategy as the paper prints it; a row's name is the strategy's but for ER, which has two.

    >>> label("er-fifo"), label("mine")
    ('ER w/ FIFO', 'mine')
    """
    return "other strategies" if row.startswith("spare-") else STRATEGIES.get(row, row)
