"""Images as they lie on disk, before decoding: the interface that every format implements."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from PIL.Image import Image

from ocssl import imaging
from ocssl.data.dataset import ColumnArray
from ocssl.errors import ConfigError, DataError
from ocssl.imaging import BadImage, Fit, Picture, PixelRange, Pixels

Label = int | str | None
_Job = TypeVar("_Job")
_Done = TypeVar("_Done")
OTHER = "\nother "  # in an identity, before that of the other split


@dataclass(frozen=True)
class Item:
    """One image before decoding.

    Attributes:
        name: where it comes from.
        picture: its file, bytes or pixels; or why it cannot be used.
        label: a number, a class name, or None.
    """

    name: str
    picture: Picture | BadImage
    label: Label = None

    @property
    def held_bytes(self) -> int:
        """Memory that the image takes before it is decoded."""
        if isinstance(self.picture, Image):
            return 4 * self.picture.width * self.picture.height
        return len(self.picture) if isinstance(self.picture, bytes) else getattr(self.picture, "nbytes", 0)

    def decode(self, size: int | None = None, fit: Fit = "crop", pixel_range: PixelRange | None = None) -> Pixels:
        """The image as uint8 ``(3, S, S)``, see :func:`ocssl.imaging.decode`.

        Raises:
            BadImage: it is unusable.
            DataError: it could not be read for a reason outside of it, such as a failing disk; it may be fine later.
        """
        if isinstance(self.picture, BadImage):
            raise self.picture
        try:
            return imaging.decode(self.picture, size, fit, pixel_range)
        except OSError as error:
            raise DataError(f"{self.name} could not be read: {error.strerror or error}") from error
        except MemoryError as error:
            raise DataError(f"{self.name} could not be decoded: there is too little memory") from error


class Reader(ABC):
    """An ordered set of images in some format. Making one is cheap: images are read when they are asked for."""

    @abstractmethod
    def describe(self) -> str:
        """What is there and where, for messages."""

    @abstractmethod
    def identity(self) -> str:
        """A text that changes when the images or their labels do, without reading them; part of the cache's key."""

    @abstractmethod
    def items(self, start: int = 0) -> Iterator[Item]:
        """The images in order, from position ``start`` on."""

    def class_names(self) -> tuple[str, ...]:
        """Class names by label, where the format has them; called once, when the images are decoded."""
        return ()

    def other_labels(self) -> Iterable[Label]:
        """Labels of the other split, where there is one: labels without given class names are numbered over both."""
        return ()

    def count(self) -> int | None:
        """Number of images; None where it is unknown before all are read."""
        return None

    def column(self, name: str) -> ColumnArray:
        """A further property of every image, in order."""
        raise ConfigError(f"there is no column '{name}' to order by")


def describe_files(files: Iterable[Path]) -> str:
    """Name, size and modification time of each file: cheap to get, and different after any relevant change."""
    # A dangling link, for instance, is unreadable; it counts as a bad image when it is read.
    return "\n".join(f"{file} {imaging.file_stamp(file) or 'unreadable'}" for file in files)


def in_order(work: Callable[[_Job], _Done], jobs: Iterable[_Job], most: int) -> Iterator[_Done]:
    """What ``work`` makes of each job, in their order; Pillow decodes outside the interpreter lock.

    Args:
        jobs: taken when a thread is about to be free, so that few of them and of their results are held at a time.
        most: threads, on a machine that has as many cores.

    >>> list(in_order(str, range(3), 2))
    ['0', '1', '2']
    """
    workers = min(os.cpu_count() or 1, most)
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[Future[_Done]] = deque()
        try:
            for job in jobs:
                pending.append(pool.submit(work, job))
                if len(pending) > workers + 1:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
