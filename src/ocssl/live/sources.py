"""Images one after another, from sources that may still grow: folders, archives, videos, cameras, lists of paths."""

from __future__ import annotations

import contextlib
import glob
import io
import os
import queue
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ocssl.common.console import number_of, warn
from ocssl.common.files import not_a_path
from ocssl.common.signals import check_stop
from ocssl.config import LearnerConfig
from ocssl.data.formats.files import SUFFIXES as IMAGE_SUFFIXES
from ocssl.data.formats.files import UNREAD, FilesReader, image_files
from ocssl.data.formats.tar import TarReader
from ocssl.data.layout import as_path
from ocssl.data.loading import SCHEMES, SHARD_SUFFIXES, open_address
from ocssl.data.reader import OTHER, Item, Reader
from ocssl.errors import ConfigError, DataError
from ocssl.imaging import BadImage, file_stamp
from ocssl.live import video
from ocssl.live.seen import PATHS, SeenIndex

SUFFIXES = {**SHARD_SUFFIXES, "video": video.SUFFIXES}
"""How names of files end, by kind."""
KINDS = (*SCHEMES, "video", "camera")
STANDARD_INPUT = "-"
MAX_REFERENCES, MIN_REFERENCES = 500, 50  # images on which features must stay as they are
SEEK_CHUNK = 64  # images in memory while others are skipped
HELD_BYTES = 64 << 20  # of encoded images and frames that are taken at once, unless a single one has more
SCAN_EVERY = 1.0  # seconds between two scans of a followed folder
SCAN_SHARE = 10  # a scan takes at most one part in so many of the time, however large the folder
WAIT = 0.2  # seconds to wait for a line of input, or for an image to skip, before the caller may save or stop


class ImageStream(ABC):
    """What a live learner takes images from.

    Attributes:
        key: names the source in a saved state, which can hold several.
        exhausted: no further image will come.
    """

    key: str
    exhausted: bool = False

    @property
    def remaining(self) -> int | None:
        """Images that are still to come; None where that is unknown, or where they never end."""
        return None

    @abstractmethod
    def take(self, count: int) -> list[Item]:
        """The next images, at most ``count``; none where none is there at the moment."""

    @abstractmethod
    def ack(self, item: Item, *, stamp: str = "", problem: str | None = None) -> None:
        """Called for every image that was used or, with a problem, refused."""

    def release(self, item: Item, error: DataError) -> None:
        """Called for an image that could not be read for a reason outside of it, such as a failing disk.

        A stream that can give the image again later overrides this to do so; this version stops learning.
        """
        raise error

    def seek(self, count: int) -> None:
        """Skip the images that were used or refused in earlier sessions; this version takes and drops them.

        One that was released counts when it was given again. A stream that does not repeat its images, such as a
        message queue, overrides this to do nothing.
        """
        while count > 0 and not self.exhausted:
            items = self.take(min(count, SEEK_CHUNK))
            count -= len(items)
            if not items:  # none is there at the moment
                check_stop("stopped before the images of earlier sessions were skipped; nothing was learned")
                time.sleep(WAIT)


class _Indexed(ImageStream):
    """A stream whose images are remembered by name."""

    def __init__(self, key: str, index: SeenIndex) -> None:
        self.key = key
        self._index = index
        self._taken: set[str] = set()  # names that were taken and not acknowledged yet
        self._error: DataError | None = None

    def take(self, count: int) -> list[Item]:
        """The next images; those before a part that cannot be read are given before its error is raised."""
        items: list[Item] = []
        held = 0
        try:
            while self._error is None and len(items) < count and held < HELD_BYTES:
                if (item := self._next()) is None:
                    break
                items.append(item)
                held += item.held_bytes
        except StopIteration:
            self.exhausted = True
        except DataError as error:
            self._error = error
        if self._error is not None and not items:
            raise self._error
        return items

    @abstractmethod
    def _next(self) -> Item | None:
        """The next image; None where none is there at the moment, StopIteration at the end."""

    def ack(self, item: Item, *, stamp: str = "", problem: str | None = None) -> None:
        """Add the name to the index."""
        self._taken.discard(item.name)
        self._index.add(self.key, item.name, stamp=stamp, problem=problem)

    def _is_new(self, name: str, path: str | Path) -> bool:
        return name not in self._taken and not self._index.has(self.key, name, lambda: file_stamp(Path(path)))


class ReaderStream(_Indexed):
    """Images in a fixed order, such as tar or parquet shards or a video; a position is enough to continue.

    Args:
        start: how many were taken before.
        index: gets the refused images only.
    """

    def __init__(self, reader: Reader, key: str, start: int, index: SeenIndex) -> None:
        super().__init__(key, index)
        self._items: Iterator[Item] = reader.items(start)
        self._count, self._given = reader.count(), start

    @property
    def remaining(self) -> int | None:
        """Images that were not given yet, where the reader knows."""
        return None if self._count is None else max(0, self._count - self._given)

    def _next(self) -> Item:
        item = next(self._items)
        self._given += 1
        return item

    def ack(self, item: Item, *, stamp: str = "", problem: str | None = None) -> None:
        """Add the name of a refused image to the index."""
        if problem is not None:
            super().ack(item, stamp=stamp, problem=problem)


class FolderStream(_Indexed):
    """Image files below a folder, by name, and, if it is followed, those that arrive later.

    Args:
        folder: searched with all its subfolders.
        index: holds the files that are finished.
        follow: look for new files for ever.
    """

    def __init__(self, folder: Path, key: str, index: SeenIndex, *, follow: bool = False) -> None:
        super().__init__(key, index)
        self._folder = folder
        self._follow = follow
        self._names: deque[str] = deque()
        self._gone = 0  # files that vanished before their turn
        self._waiting = False  # for a followed folder that cannot be listed
        self._scan()

    @property
    def remaining(self) -> int | None:
        """Files that were not given yet, unless more may arrive."""
        return None if self._follow else len(self._names)

    def _next(self) -> Item | None:
        if self._follow and not self._names and time.monotonic() >= self._next_scan:
            self._scan_again()
        while self._names:
            name = self._names.popleft()
            if os.path.lexists(self._folder / name):
                self._taken.add(name)
                return Item(name, self._folder / name)
            self._gone += 1
        if self._follow:
            return None
        self._tell_of_gone()
        raise StopIteration

    def release(self, item: Item, error: DataError) -> None:
        """The next scan, or the next call, gives the file again."""
        self._taken.discard(item.name)

    def _scan(self) -> None:
        began = time.monotonic()
        names = image_files(self._folder)
        self._names.extend(name for name in names if self._is_new(name, os.path.join(self._folder, name)))
        now = time.monotonic()
        self._next_scan = now + max(SCAN_EVERY, SCAN_SHARE * (now - began))

    def _scan_again(self) -> None:
        """Scan a followed folder; one that cannot be listed, e.g. on a lost network drive, is waited for."""
        try:
            self._scan()
            self._waiting = False
        except DataError as error:
            self._next_scan = time.monotonic() + SCAN_EVERY
            if not self._waiting:
                warn(printable(f"{error}; learning waits until it is there again"))
            self._waiting = True

    def _tell_of_gone(self) -> None:
        """Warn of files that vanished before their turn; an error where the folder itself did, e.g. with its drive."""
        gone, self._gone = self._gone, 0
        if not gone:
            return
        files = number_of(gone, "file")
        if not self._folder.is_dir():
            why = f"the folder {self._folder} vanished, and with it {files}"
            raise DataError(printable(f"{why}; bring it back, and the same command goes on"))
        why = f"{files} vanished from {self._folder} and could not be learned from"
        warn(printable(f"{why}; bring what is missing back, and the same command goes on with it"))


class PathStream(_Indexed):
    """Paths that arrive as lines, e.g. on standard input; a path that was used is not used again.

    Bytes that are not valid text reach the file system as they are. A relative path is remembered with the working
    folder: another folder may have files of the same names.

    Args:
        lines: the paths; how many are left is known where this is a list.
    """

    def __init__(self, lines: Iterable[str], index: SeenIndex) -> None:
        super().__init__(PATHS, index)
        self._left: int | None = None
        if isinstance(lines, list):
            paths = {Path(line.rstrip("\r\n")).absolute() for line in lines}
            self._left = sum(self._is_new(str(path), path) for path in paths)
        self._queue: queue.Queue[str | Exception | None] = queue.Queue(maxsize=1000)
        if isinstance(lines, io.TextIOWrapper):
            lines.reconfigure(errors="surrogateescape")
        # Reading may block for ever; in a thread of its own it delays neither a save nor a stop.
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()

    def _next(self) -> Item | None:
        while True:
            try:
                line = self._queue.get(timeout=WAIT)
            except queue.Empty:
                return None
            if line is None:
                raise StopIteration
            if isinstance(line, Exception):
                raise DataError(f"the list of paths cannot be read on: {line}; send it again") from line
            name = line.rstrip("\r\n")
            path = Path(name).absolute()
            if name and self._is_new(str(path), path):
                self._taken.add(str(path))
                self._left = None if self._left is None else self._left - 1
                return Item(name, path)

    @property
    def remaining(self) -> int | None:
        """Paths of a list that were not taken yet; one that is taken again, since its file has changed, counts once."""
        return None if self._left is None else max(0, self._left)

    def ack(self, item: Item, *, stamp: str = "", problem: str | None = None) -> None:
        """Add the absolute path to the index."""
        super().ack(replace(item, name=str(item.picture)), stamp=stamp, problem=problem)

    def release(self, item: Item, error: DataError) -> None:
        """The path counts as new when it comes again."""
        self._taken.discard(str(item.picture))

    def _read(self, lines: Iterable[str]) -> None:
        end: Exception | None = None
        try:
            for line in lines:
                self._queue.put(line)
        except Exception as error:  # of any kind: take() raises it
            end = error
        finally:
            self._queue.put(end)


# ---------------------------------------------------------------------- from a user's text to a stream


def address_of(source: str) -> str:
    """A source's kind and place, the same from every working folder: its key in a saved state.

    Args:
        source: a folder, a video, a tar or parquet file or a pattern of them, ``camera:0``, or an address such as
            ``tar:PATH`` or ``hf:OWNER/NAME``.

    >>> address_of("/frames/day1.tar"), address_of("camera:0")
    ('tar:/frames/day1.tar', 'camera:0')
    >>> address_of("holiday.docx")
    Traceback (most recent call last):
    ...
    ocssl.errors.DataError: there is nothing at 'holiday.docx'
    """
    kind, place = _parts(source)
    kind = kind or _kind_of(source)
    if not place:
        raise DataError(f"'{kind}:' needs a path after the colon")
    try:
        return f"{kind}:{place if kind in ('hf', 'camera') else os.path.realpath(as_path(place))}"
    except ValueError as error:  # a zero byte
        raise DataError(not_a_path(source, error)) from error


def source_paths(source: str) -> list[str]:
    """The files and folders that a source or an address of data names, for :func:`ocssl.common.files.check_output`.

    >>> source_paths("tar:/frames/day1.tar")
    ['/frames/day1.tar']
    """
    place = os.path.expanduser(_parts(source)[1])
    return sorted({place, *glob.glob(place, recursive=True)})


def printable(name: str) -> str:
    """A file's name for a terminal: control characters, and bytes that are not UTF-8, become escapes.

    >>> print(printable("été 😀 \\n \\x1b[31m \\udce9"))
    été 😀 \\n \\x1b[31m \\udce9
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)


def as_source(words: Sequence[str | Path]) -> str | list[str]:
    """What a command was given: one source as for :func:`address_of`, or image files, which may be several.

    A pattern that no shell has expanded stands for the files that match it, by name.

    >>> as_source(["frames/"]), as_source(["a.jpg", "b.jpg"])
    ('frames/', ['a.jpg', 'b.jpg'])
    """
    names = [name for word in words for name in _matches(str(word))]
    others = [name for name in names if not name.lower().endswith(IMAGE_SUFFIXES) or as_path(name).is_dir()]
    if len(names) > 1 and others:
        raise ConfigError(
            f"'{others[0]}' is no image that can be read, and only images can be given together; "
            "run the command once for each source"
        )
    return others[0] if others else names


def _matches(word: str) -> list[str]:
    """What a pattern matches; a word that is no pattern, an address and a pattern of shards are left as they are."""
    shards = tuple(ending for endings in SHARD_SUFFIXES.values() for ending in endings)
    if _parts(word)[0] or word.lower().endswith(shards) or not glob.has_magic(word) or os.path.lexists(as_path(word)):
        return [word]
    try:
        found = sorted(glob.glob(str(as_path(word)), recursive=True))
    except ValueError as error:  # a zero byte
        raise DataError(not_a_path(word, error)) from error
    if not found:
        raise DataError(f"no file matches '{word}'")
    return found


def open_reader(source: str | list[str]) -> Reader:
    """The images of a source as they are now, in a fixed order; ``source`` as :func:`as_source` returns it."""
    if isinstance(source, list):
        return FilesReader(Path.cwd(), source)
    address = address_of(source)
    kind, _, place = address.partition(":")
    if kind == "folder":
        return FilesReader(Path(place), image_files(Path(place)))
    if kind == "video":
        return video.VideoReader(Path(place))
    return video.CameraReader(place) if kind == "camera" else open_address(address, "train")


def reference_images(folder: str, settings: LearnerConfig) -> Tensor:
    """At most 500 images of a folder, evenly over its names, as a learner with these settings takes its images."""
    place, names = reference_files(folder)
    images = []
    for item in FilesReader(place, names[:: max(1, -(-len(names) // MAX_REFERENCES))]).items(0):
        with contextlib.suppress(BadImage):
            images.append(torch.from_numpy(item.decode(settings.image_size, settings.fit, settings.pixel_range)))
    _check_enough(folder, len(images))
    return torch.stack(images)


def reference_files(folder: str) -> tuple[Path, list[str]]:
    """A folder of reference images and the names in it; refused where it is none, or where there are too few."""
    address = address_of(folder)
    if not address.startswith("folder:"):
        raise ConfigError(f"reference must be a folder of images, not '{folder}'")
    place = Path(address.removeprefix("folder:"))
    names = image_files(place)
    _check_enough(folder, len(names))
    return place, names


def _check_enough(folder: str, found: int) -> None:
    if found < MIN_REFERENCES:
        usable = number_of(found, "usable image")
        raise DataError(f"'{folder}' has {usable}; a reference needs at least {MIN_REFERENCES}")


def open_stream(
    source: str | list[str],
    index: SeenIndex,
    positions: dict[str, int],
    identities: dict[str, str],
    *,
    follow: bool = False,
) -> ImageStream:
    """The images of a source that were not taken before.

    Args:
        source: as :func:`as_source` returns it, or ``-`` for paths on standard input.
        index: holds the files that are finished.
        positions: images taken, by address, for sources with a fixed order.
        identities: of those sources; that of this one is checked and brought up to date.
        follow: continue with files that arrive in the folder later.
    """
    if source == STANDARD_INPUT:
        return PathStream(sys.stdin, index)
    if isinstance(source, list):
        if follow:
            raise ConfigError("only a folder can be followed, not files; leave --follow out")
        return PathStream(source, index)
    address = address_of(source)
    kind, _, place = address.partition(":")
    if kind == "folder":
        return FolderStream(Path(place), address, index, follow=follow)
    if follow:
        raise ConfigError(f"only a folder can be followed, not '{source}'; leave --follow out")
    reader = open_reader(source)
    before = identities.get(address, "").partition(OTHER)[0]  # images of the other split are not learned from
    if isinstance(reader, TarReader):
        reader.check_complete(before)
    identity = reader.identity()
    if not identity.startswith(before):  # shards may be added at the end
        raise DataError(
            f"{reader.describe()} changed since learning began, so the saved position means nothing now; "
            "learn from it with another --state"
        )
    identities[address] = identity
    return ReaderStream(reader, address, positions.get(address, 0), index)


def _parts(source: str) -> tuple[str, str]:
    """Kind and place of an address; of anything else an empty kind, and the whole."""
    kind, colon, place = source.partition(":")
    return (kind, place) if colon and kind in KINDS else ("", source)


def _kind_of(source: str) -> str:
    path = as_path(source)
    if path.is_dir():
        return "folder"
    for kind, suffixes in SUFFIXES.items():
        if source.lower().endswith(suffixes):
            return kind
    if not path.exists():
        raise DataError(f"there is nothing at '{source}'")
    if path.suffix.lower() in UNREAD:
        raise DataError(f"'{source}' is a photograph of a kind that is not read; convert it to JPEG or PNG")
    raise DataError(f"the name '{source}' has no ending of an image, a tar, parquet or video file, and it is no folder")
