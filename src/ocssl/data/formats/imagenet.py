"""ImageNet's layouts: ILSVRC class folders with two choices of 100 classes, and the Tiny ImageNet tree."""

from __future__ import annotations

import random
import re
from importlib.resources import files
from pathlib import Path

from ocssl.data.formats.files import FilesReader, any_folder, class_folders, image_files, one_split
from ocssl.data.layout import split_folder
from ocssl.errors import DataError

AUTHORS_SEED = 42
_SYNSET = re.compile(r"n\d{8}")


def customary_classes() -> tuple[str, ...]:
    """The 100 synsets that the literature calls ImageNet100, in their published order.

    >>> len(set(customary_classes()))
    100
    """
    return tuple(files("ocssl.data.formats").joinpath("imagenet100.txt").read_text(encoding="ascii").split())


def authors_classes(synsets: list[str], seed: int = AUTHORS_SEED) -> tuple[str, ...]:
    """The paper's ImageNet100: 100 of the 1,000 sorted synsets by Python's generator, in the order they were drawn."""
    if len(synsets) != 1000:
        raise DataError(f"the authors draw from 1,000 class folders, and there are {len(synsets)}")
    return tuple(synsets[number] for number in random.Random(seed).sample(range(1000), 100))


def find_imagenet100(folder: Path, split: str, authors_seed: int | None = None) -> FilesReader | None:
    """100 classes of an ILSVRC tree: ``train/n…/*.JPEG`` and ``val/n…/*.JPEG``.

    Args:
        authors_seed: draw the classes as the authors do; None takes the customary list.
    """
    place = split_folder(folder, split) or split_folder(folder / "Data" / "CLS-LOC", split)
    if place is None:
        return None
    synsets = sorted(entry.name for entry in place.iterdir() if _SYNSET.fullmatch(entry.name))
    if not synsets:
        raise DataError(f"{place} has no class folders (n01440764, …): sort its images into them by synset")
    return class_folders(place, customary_classes() if authors_seed is None else authors_classes(synsets, authors_seed))


def find_tiny_imagenet(folder: Path, split: str) -> FilesReader | None:
    """The tree of ``tiny-imagenet-200.zip``; its test images have no labels, so the validation images serve as test."""
    notes = folder / "val" / "val_annotations.txt"
    if not notes.is_file():  # a validation folder sorted into class folders
        return one_split(folder, split)
    rows = (line.split("\t") for line in notes.read_text(encoding="utf-8").splitlines())
    label_of = {row[0]: row[1] for row in rows if len(row) > 1}
    listed = folder / "wnids.txt"
    classes = sorted({*label_of.values(), *(listed.read_text(encoding="ascii").split() if listed.is_file() else ())})
    if split == "train":
        return any_folder(folder / "train", classes)
    names = [name for name in image_files(folder / "val" / "images") if name in label_of]
    return FilesReader(folder / "val" / "images", names, [label_of[name] for name in names], classes)
