"""Names as people write them."""

from __future__ import annotations

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
