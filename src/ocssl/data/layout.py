"""Where data sets lie: the root folder, the usual names of a set's folder, and the files of a split."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ocssl.errors import DataError

SPLIT_NAMES = {"train": ("train", "training"), "test": ("test", "val", "valid", "validation")}


def data_root(root: str | Path | None = None) -> Path:
    """The folder to search: the argument, else ``$OCSSL_DATA``, else ``data``."""
    return Path(root or os.environ.get("OCSSL_DATA") or "data").expanduser()


def dataset_dirs(root: Path, aliases: Iterable[str]) -> Iterator[Path]:
    """Folders named after a data set: the root itself, and folders right below it.

    Case, hyphens and underscores do not count: ``CIFAR-100``, ``cifar_100`` and ``cifar100`` are one name.
    """
    wanted = {_letters(alias) for alias in aliases}
    if _letters(root.resolve().name) in wanted:
        yield root
    if root.is_dir():
        yield from (folder for folder in sorted(root.iterdir()) if folder.is_dir() and _letters(folder.name) in wanted)


def split_folder(folder: Path, split: str) -> Path | None:
    """The subfolder that holds a split, under any of its usual names."""
    return next((folder / name for name in SPLIT_NAMES[split] if (folder / name).is_dir()), None)


def parquet_files(folder: Path, split: str) -> list[Path]:
    """The parquet shards of a split in a folder, or in one folder below it, as the Hub's repositories have it."""
    for pattern in ("*.parquet", "*/*.parquet"):
        files = of_split(sorted(folder.glob(pattern)), split)
        folders = sorted({file.parent.name for file in files})
        if len(folders) > 1:
            raise DataError(f"{folder} has parquet files of more than one set: {', '.join(folders)}; keep one of them")
        if files:
            return files
    return []


def of_split(files: Iterable[Path], split: str) -> list[Path]:
    """The files of a split by their names: ``train-00000-of-00002.parquet`` or ``train/0000.parquet``.

    Where there are both test and validation files, only the test files are the test split.

    >>> [file.name for file in of_split([Path("train-0.tar"), Path("test-0.tar"), Path("val-0.tar")], "test")]
    ['test-0.tar']
    """
    by_name: dict[str | None, list[Path]] = {}
    for file in files:
        by_name.setdefault(_split_name(file), []).append(file)
    return next((by_name[name] for name in SPLIT_NAMES[split] if name in by_name), [])


def _split_name(file: Path) -> str | None:
    words = (re.split(r"[-_.]", file.name.lower())[0], file.parent.name.lower())
    return next((word for word in words for known in SPLIT_NAMES.values() if word in known), None)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
