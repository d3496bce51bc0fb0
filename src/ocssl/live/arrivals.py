"""Images handed out one after another, from places that may still be growing."""

from __future__ import annotations

import io
import os
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from ocssl.data.formats.files import image_files
from ocssl.data.reader import Item, Reader
from ocssl.errors import DataError
from ocssl.live.ledger import Ledger

SKIPPED_AT_ONCE = 64  # images in memory while others are passed over
LOOK_EVERY = 1.0  # seconds between two looks into a folder that is followed
LOOKING_SHARE = 10  # looking takes at most one part in so many of the time, however large the folder
WAIT = 0.2  # seconds to wait for a line of input before the caller may see to other things


class Arrivals(ABC):
    """What a learner takes images from.

    Attributes:
        key: names the source in a saved state, so that one state can learn from several.
        over: no image will ever come again.
    """

    key: str
    over: bool = False

    @abstractmethod
    def take(self, count: int) -> list[Item]:
        """The next images, at most ``count``; none when none is there at the moment."""

    @abstractmethod
    def done(self, item: Item, *, stamp: str = "", problem: str | None = None) -> None:
        """Called for every image that was used or, with a problem, refused."""

    def skip(self, count: int) -> None:
        """Pass over the images that were handed out in earlier sessions; here they are taken and thrown away.

        Where what was taken does not come again, as in a message queue, there is nothing to pass over: override this.
        """
        while count > 0 and (items := self.take(min(count, SKIPPED_AT_ONCE))):
            count -= len(items)


class Sequence(Arrivals):
    """Pictures in a fixed order, such as tar or parquet shards or a video: a position is all there is to remember.

    Args:
        origin: the pictures.
        key: of the source.
        start: how many were handed out before.
        ledger: told of refused pictures.
    """

    def __init__(self, origin: Reader, key: str, start: int, ledger: Ledger) -> None:
        self.key = key
        self._items: Iterator[Item] = origin.items(start)
        self._ledger = ledger
        self._broken: DataError | None = None

    def take(self, count: int) -> list[Item]:
        """The next pictures; fewer than asked for only at the end, or before a place that cannot be read."""
        if self._broken is not None:
            raise self._broken
        items: list[Item] = []
        try:
            items.extend(islice(self._items, count))
            self.over = len(items) < count
        except DataError as error:  # what was read before it is good
            self._broken = error
        return items

    def done(self, item: Item, *, stamp: str = "", problem: str | None = None) -> None:
        """Note what was refused."""
        if problem is not None:
            self._ledger.add(self.key, item.name, stamp=stamp, problem=problem)


class _Named(Arrivals):
    """Files in any order, each remembered by its name."""

    def __init__(self, key: str, ledger: Ledger) -> None:
        self.key = key
        self._ledger = ledger

    def done(self, item: Item, *, stamp: str = "", problem: str | None = None) -> None:
        """Note the name."""
        self._ledger.add(self.key, item.name, stamp=stamp, problem=problem)


class Folder(_Named):
    """Image files below a folder by name, and, if it is followed, those that arrive later.

    Args:
        folder: searched with everything below it.
        key: of the source.
        ledger: knows which files are done with.
        follow: go on looking for new files for ever.
    """

    def __init__(self, folder: Path, key: str, ledger: Ledger, *, follow: bool = False) -> None:
        super().__init__(key, ledger)
        self._folder = folder
        self._follow = follow
        self._names: deque[str] = deque()
        self._next_look = 0.0
        if not follow:
            self._look()

    def take(self, count: int) -> list[Item]:
        """The next files by name, as far as they are still there."""
        if self._follow and not self._names and time.monotonic() >= self._next_look:
            self._look()
        items: list[Item] = []
        while self._names and len(items) < count:
            name = self._names.popleft()
            if os.path.exists(self._folder / name):
                items.append(Item(name, self._folder / name))
        self.over = not self._follow and not self._names
        return items

    def _look(self) -> None:
        began = time.monotonic()
        for name in image_files(self._folder):
            if not self._ledger.holds(self.key, name, stamp_of(self._folder / name)):
                self._names.append(name)
        took = time.monotonic() - began
        self._next_look = time.monotonic() + max(LOOK_EVERY, LOOKING_SHARE * took)


class Paths(_Named):
    """Paths that arrive as lines, on standard input for instance; a path that was used is not used again.

    A path need not be valid text: bytes that are none reach the file system as they are. One that begins in the working
    folder is remembered with it: another folder may have files of the same names.
    """

    def __init__(self, lines: Iterable[str], ledger: Ledger) -> None:
        super().__init__("paths", ledger)
        self._queue: queue.Queue[str | Exception | None] = queue.Queue(maxsize=1000)
        self._broken: Exception | None = None
        if isinstance(lines, io.TextIOWrapper):
            lines.reconfigure(errors="surrogateescape")
        # Reading may block for ever; in a thread of its own it keeps nobody from saving and stopping.
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()

    def take(self, count: int) -> list[Item]:
        """The paths that have come; fewer than asked for before a place that cannot be read."""
        items: dict[Path, Item] = {}
        while len(items) < count and not self.over and self._broken is None:
            try:
                line = self._queue.get(timeout=WAIT)
            except queue.Empty:
                break
            if line is None:
                self.over = True
            elif isinstance(line, Exception):
                self._broken = line
            elif name := line.rstrip("\r\n"):
                path = Path(name).absolute()
                if not self._ledger.holds(self.key, str(path), stamp_of(path)):
                    items[path] = Item(name, path)
        if self._broken is not None and not items:  # what was read before it is good
            raise DataError(
                f"the list of paths cannot be read on: {self._broken}; send it again, one path per line"
            ) from self._broken
        return list(items.values())

    def done(self, item: Item, *, stamp: str = "", problem: str | None = None) -> None:
        """Note the whole path."""
        self._ledger.add(self.key, str(item.picture), stamp=stamp, problem=problem)

    def _read(self, lines: Iterable[str]) -> None:
        end: Exception | None = None
        try:
            for line in lines:
                self._queue.put(line)
        except Exception as error:  # of whatever kind, for the one who waits
            end = error
        finally:
            self._queue.put(end)


def stamp_of(picture: object) -> str:
    """A text that changes when a picture's file does; empty for pictures that are no files.

    >>> stamp_of(b"pixels")
    ''
    """
    if not isinstance(picture, Path):
        return ""
    try:
        stat = picture.stat()
    except (OSError, ValueError):  # the second is for what cannot be a path, with a zero byte in it
        return ""
    return f"{stat.st_size} {stat.st_mtime_ns}"


def check_same(origin: Reader, known: str | None) -> str:
    """The origin's identity; refused when the pictures handed out before are no longer its first ones.

    Shards that were added at the end are fine.
    """
    identity = origin.identity()
    if known is not None and not identity.startswith(known):
        raise DataError(
            f"{origin.describe()} changed since learning began, so a position in it means nothing now; "
            "learn from it with another --state"
        )
    return identity
