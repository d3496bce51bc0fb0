"""Where a data set may lie: the root folder, and the names under which people keep a set below it."""

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
    """Folders that are a set's own: the root if it is called after the set, and folders below it that are.

    Case, hyphens and underscores do not count: ``CIFAR-100``, ``cifar_100`` and ``cifar100`` are one name.
    """
    wanted = {_plain(alias) for alias in aliases}
    if _plain(root.resolve().name) in wanted:
        yield root
    if root.is_dir():
        yield from (folder for folder in sorted(root.iterdir()) if folder.is_dir() and _plain(folder.name) in wanted)


def split_folder(folder: Path, split: str) -> Path | None:
    """The subfolder that holds a split, under any of its usual names."""
    return next((folder / name for name in SPLIT_NAMES[split] if (folder / name).is_dir()), None)


def parquet_files(folder: Path, split: str) -> list[Path]:
    """The parquet shards of a split in a folder, or in one folder below it as the Hub's repositories have it."""
    for pattern in ("*.parquet", "*/*.parquet"):
        files = of_split(sorted(folder.glob(pattern)), split)
        places = sorted({file.parent.name for file in files})
        if len(places) > 1:
            raise DataError(f"{folder} has parquet files of more than one set: {', '.join(places)}; keep one of them")
        if files:
            return files
    return []


def of_split(files: Iterable[Path], split: str) -> list[Path]:
    """The files whose names tell a split: ``train-00000-of-00002.parquet`` or ``train/0000.parquet``.

    Where both test and validation files are there, the test files alone.

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


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
