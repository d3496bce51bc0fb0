"""Where data sets lie: the root folder, the usual names of a set's folder, and the files of a split."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ocssl.common.files import not_a_path
from ocssl.errors import DataError

SPLIT_NAMES = {"train": ("train", "training"), "test": ("test", "testing", "val", "valid", "validation")}
OTHER_SPLIT = {"train": "test", "test": "train"}
USUAL_ROOT = "data"


def data_root(root: str | Path | None = None) -> Path:
    """The folder to search: the argument, else ``$OCSSL_DATA``, else ``data``."""
    return as_path(str(root or os.environ.get("OCSSL_DATA") or USUAL_ROOT))


def as_path(place: str) -> Path:
    """A text as a path, ``~`` replaced; one that no file system takes is a :class:`DataError`."""
    try:
        path = Path(place).expanduser()
        path.is_dir()
        return path
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: no such user; ValueError: a zero byte
        raise DataError(not_a_path(place, error)) from error


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder, or one that matches it as a pattern."""
    return os.path.exists(path) or bool(_matching(path))


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
    """The subfolder that holds a split, under any of its usual names; case does not count."""
    folders = {path.name.lower(): path for path in subfolders(folder)}
    return next((folders[name] for name in SPLIT_NAMES[split] if name in folders), None)


def subfolders(folder: Path) -> list[Path]:
    """The folders right below a folder, sorted; none where it cannot be listed."""
    try:
        with os.scandir(folder) as listing:
            return sorted(Path(entry.path) for entry in listing if entry.is_dir())
    except OSError:
        return []


def parquet_files(folder: Path, split: str) -> list[Path]:
    """The parquet shards of a known set's split in its folder, or in one below it, as the Hub's repositories have."""
    for pattern in ("*.parquet", "*/*.parquet"):
        files = of_split(sorted(folder.glob(pattern)), split)
        folders = sorted({file.parent.name for file in files})
        if len(folders) > 1:
            raise DataError(f"{folder} has parquet files of more than one set: {', '.join(folders)}; keep one of them")
        if files:
            return files
    return []


def shard_files(path: Path, suffixes: tuple[str, ...], split: str) -> list[Path]:
    """The shards of a split at an address: all below a folder, those that match a pattern, or a single file."""
    if path.is_dir():
        base, below = path, sorted(path.rglob("*"))
        found = [file.relative_to(path) for file in below if file.name.endswith(suffixes) and file.is_file()]
    else:
        # A name that is there but no file, such as a pipe, is refused by what opens it.
        base, found = Path(), [path] if path.is_file() else _matching(path)
    if not found:
        raise DataError(f"there is no {suffixes[0]} file at {path}")
    chosen = of_split(found, split)
    if not chosen and split == "train" and not (path.is_dir() and of_split(found, "test")):
        chosen = found  # shards that name no split, or were given by name: all are for training
    if not chosen:
        raise no_split(str(path), split)
    return [base / file for file in chosen]


class NoSplit(DataError):
    """The address has images, but none of the split that is asked for."""


def no_split(place: str, split: str) -> NoSplit:
    """The error for an address without the split that is asked for."""
    return NoSplit(f"{place} has no {split} split: put it into folders or files called train… and test…")


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


def _matching(pattern: Path) -> list[Path]:
    try:
        return sorted(pattern.parent.glob(pattern.name))
    except (OSError, ValueError) as error:
        raise DataError(f"'{pattern}' is not a pattern of file names: {error}") from error


def _split_name(file: Path) -> str | None:
    words = (re.split(r"[-_.\d]", file.name.lower())[0], file.parent.name.lower())
    return next((word for word in words for known in SPLIT_NAMES.values() if word in known), None)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
