"""Image files in folders, with or without class folders."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ocssl.common.console import number_of, warn_once
from ocssl.data.dataset import ColumnArray
from ocssl.data.layout import OTHER_SPLIT, split_folder
from ocssl.data.reader import Item, Reader, describe_files
from ocssl.errors import ConfigError, DataError

SUFFIXES = (".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""What Pillow reads on every platform."""

UNREAD = (".arw", ".avif", ".cr2", ".cr3", ".dng", ".heic", ".heif", ".jp2", ".jxl", ".nef", ".orf", ".raf")
"""Other endings of photographs, which are left out with a warning."""


class FilesReader(Reader):
    """A list of image files below one folder.

    Args:
        folder: what the names are relative to.
        files: relative names, in order.
        labels: one class name per file, or None.
        classes: all class names by label; the sorted labels by default.
    """

    def __init__(
        self, folder: Path, files: Sequence[str], labels: Sequence[str] | None = None, classes: Sequence[str] = ()
    ) -> None:
        if not files:
            raise DataError(f"there are no images in {folder}")
        self.folder = folder.resolve()
        self.files = files
        self.labels = labels
        self._classes = tuple(classes)

    def describe(self) -> str:
        return f"{number_of(len(self.files), 'image file')} in {self.folder}"

    def identity(self) -> str:
        text = "\n".join(
            ["files", describe_files(self.folder / file for file in self.files), *(self.labels or ()), *self._classes]
        )
        return text.encode(errors="backslashreplace").decode()  # file names need not be UTF-8

    def class_names(self) -> tuple[str, ...]:
        return self._classes

    def count(self) -> int:
        return len(self.files)

    def items(self, start: int = 0) -> Iterator[Item]:
        for position in range(start, len(self.files)):
            path = self.folder / self.files[position]
            yield Item(str(path), path, self.labels[position] if self.labels else None)

    def column(self, name: str) -> ColumnArray:
        if name == "name":
            return np.array(self.files)
        if name == "mtime":
            return np.array([_changed_ns(self.folder / file) for file in self.files])
        raise ConfigError(f"image files can be ordered by 'name' or 'mtime', not by '{name}'")


def any_folder(folder: Path, classes: Sequence[str] = ()) -> FilesReader:
    """All images below a folder; labelled when every one of them lies in a class folder, unlabelled otherwise.

    Args:
        classes: class names by label, where more are known than this folder shows.
    """
    files = image_files(folder)
    if all(os.sep in file for file in files):
        labels = [_top(file) for file in files]
        return FilesReader(folder, files, labels, sorted({*labels, *classes}))
    return FilesReader(folder, files)


def one_split(folder: Path, split: str) -> FilesReader | None:
    """The images of ``folder/train`` or ``folder/test`` (or ``val``); classes are numbered over both."""
    place = split_folder(folder, split)
    if place is None:
        return None
    other = split_folder(folder, OTHER_SPLIT[split])
    return any_folder(place, [_top(file) for file in image_files(other) if os.sep in file] if other else ())


def class_folders(folder: Path, classes: Sequence[str]) -> FilesReader:
    """The images of some class folders only, with labels in the order of ``classes``."""
    missing = [name for name in classes if not (folder / name).is_dir()]
    if missing:
        raise DataError(f"{folder} lacks {len(missing)} of {len(classes)} class folders, {missing[0]} for one")
    files = [os.path.join(name, file) for name in sorted(classes) for file in image_files(folder / name)]
    return FilesReader(folder, files, [_top(file) for file in files], classes)


def image_files(folder: Path) -> list[str]:
    """Names of all image files below a folder, sorted; hidden files and folders are left out.

    Links are followed. Each folder is listed once, by a path without links where there is one. A subfolder that cannot
    be read is left out with a warning, and so are photographs of kinds that are not read.
    """
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}")
    found: list[str] = []
    seen: set[tuple[int, int]] = set()
    places = deque([""])  # folders first, links to folders behind them
    while places:
        place = places.popleft()
        path = folder / place
        try:
            stat = os.stat(path)
            with os.scandir(path) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            if not place:
                raise DataError(f"cannot read the folder {folder}: {error.strerror}") from error
            warn_once(f"left out the folder {path}, which cannot be read: {error.strerror}")
            continue
        if (stat.st_dev, stat.st_ino) in seen:
            continue
        seen.add((stat.st_dev, stat.st_ino))
        for entry in entries:
            if entry.name.startswith("."):
                continue
            name, suffix = os.path.join(place, entry.name), os.path.splitext(entry.name)[1].lower()
            if _is_folder(entry):
                if not entry.is_symlink():
                    places.appendleft(name)
                elif not path.resolve().is_relative_to(Path(entry.path).resolve()):
                    places.append(name)
            elif suffix in SUFFIXES and _may_be_read(entry):
                found.append(name)
            elif suffix in UNREAD:
                remedy = "convert them to JPEG or PNG"
                warn_once(f"left out the {suffix} files below {folder}, a kind that is not read; {remedy}")
    return sorted(found)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link into an unreadable folder
        return False


def _may_be_read(entry: os.DirEntry[str]) -> bool:
    """Whether this is a regular file, or a dangling link, which counts as a bad image; reading a pipe never ends."""
    try:
        return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))
    except OSError:
        return True


def _changed_ns(file: Path) -> int:
    """Modification time; 0 for a dangling link, which is a bad image and left out."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _top(file: str) -> str:
    return file.split(os.sep, 1)[0]
