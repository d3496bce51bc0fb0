"""Pictures as they lie on disk, before anything is decoded: the one interface that every format implements."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ocssl.data.source import Column
from ocssl.errors import ConfigError
from ocssl.imaging import BadImage, Picture


@dataclass(frozen=True)
class Item:
    """One picture: where it comes from, what it is (or why it is refused), and its label if it has one."""

    name: str
    picture: Picture | BadImage
    label: int | str | None = None


class Reader(ABC):
    """An ordered set of pictures in some format. Making one is cheap: pictures are read when they are asked for."""

    @abstractmethod
    def describe(self) -> str:
        """What is there and where, for a person."""

    @abstractmethod
    def identity(self) -> str:
        """A text that changes when the pictures or their labels do, without reading them; part of the cache's key."""

    @abstractmethod
    def items(self, start: int = 0) -> Iterator[Item]:
        """The pictures in order, from position ``start`` on."""

    def class_names(self) -> tuple[str, ...]:
        """Class names by label, where the format tells them; asked once, when the pictures are decoded."""
        return ()

    def other_labels(self) -> Iterable[int | str | None]:
        """Labels of the other split, where there is one: labels without given class names are numbered over both."""
        return ()

    def count(self) -> int | None:
        """Number of pictures, None where only reading them all would tell."""
        return None

    def column(self, name: str) -> Column:
        """A further property of every picture, in order."""
        raise ConfigError(f"there is no column '{name}' to order by")


def number_of(count: int, thing: str) -> str:
    """A count with its noun.

    >>> number_of(1, "image"), number_of(2, "image")
    ('1 image', '2 images')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def describe_files(files: Iterable[Path]) -> str:
    """Name, size and modification time of each file: cheap to get, and different after any change worth noticing."""
    return "\n".join(_describe(file) for file in files)


def _describe(file: Path) -> str:
    try:
        stat = os.stat(file)
    except OSError:  # a dangling link, for instance: a bad image, and told so when it is its turn to be read
        return f"{file} unreadable"
    return f"{file} {stat.st_size} {stat.st_mtime_ns}"
