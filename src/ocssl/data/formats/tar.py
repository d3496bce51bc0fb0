"""WebDataset shards: tar files in which the members of one sample share a name up to its first dot."""

from __future__ import annotations

import contextlib
import gzip
import os
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any, Self

from ocssl.common.console import number_of, warn_once
from ocssl.common.files import require_regular
from ocssl.common.signals import check_stop
from ocssl.data.formats.files import SUFFIXES
from ocssl.data.reader import OTHER, Item, Reader, describe_files
from ocssl.errors import DataError
from ocssl.imaging import BadImage, require_bytes

LABEL_SUFFIXES = (".cls", ".cls.txt", ".label")
MAX_HEADER_BYTES = 1 << 16  # of a long name or of extended attributes, which tarfile reads at once
MAX_LABEL_BYTES = 1 << 12
GZIP = b"\x1f\x8b"
DAMAGE = (tarfile.TarError, OSError, EOFError, zlib.error, RecursionError, ValueError, TypeError, OverflowError)
"""What tarfile raises for damaged files."""


class TarReader(Reader):
    """Shards read in order of their names, each from front to end; nothing is unpacked.

    ``000042.jpg`` with ``000042.cls`` is one labelled sample. A member that is a link, or whose path leads outside,
    counts as a bad image.

    Args:
        other_split: returns the shards of the other split; called when labels are numbered.
    """

    def __init__(self, shards: Sequence[Path], other_split: Callable[[], Sequence[Path]] = list) -> None:
        self.shards = [Path(os.path.realpath(shard)) for shard in sorted(shards)]  # by the names of links, too
        self._other_split = other_split
        for shard in self.shards:
            try:
                require_regular(shard)
            except OSError as error:
                raise DataError(f"{shard} is not a readable tar file: {error}") from error

    @cached_property
    def _other(self) -> TarReader | None:
        shards = self._other_split()
        return TarReader(shards) if shards else None

    def describe(self) -> str:
        return f"{number_of(len(self.shards), 'tar file')} in {self.shards[0].parent}"

    def identity(self) -> str:
        return f"tar\n{describe_files(self.shards)}" + (f"{OTHER}{self._other.identity()}" if self._other else "")

    def check_complete(self, known: str = "") -> None:
        """Refuse a shard without an end-of-archive mark: it is still being written, or its copy broke off.

        Args:
            known: an earlier identity; its shards were checked then.
        """
        checked = known.splitlines()
        for shard in self.shards:
            check_stop("stopped while the shards were checked; no new image was learned from")
            if describe_files([shard]) not in checked and not _has_end(shard):
                raise DataError(
                    f"{shard} is incomplete: its end-of-archive mark is missing; wait until it is written, and the "
                    "same command learns from it"
                )

    def other_labels(self) -> Iterable[int | str | None]:
        return (item.label for item in self._other.items()) if self._other else ()

    def items(self, start: int = 0) -> Iterator[Item]:
        return islice(self._all_items(), start, None)

    def _all_items(self) -> Iterator[Item]:
        for shard in self.shards:
            try:
                with open_tar(shard, "r|*") as archive:
                    yield from _samples(archive, shard)
            except DAMAGE as error:
                raise DataError(f"{shard} is not a readable tar file: {error}") from error


def open_tar(path: Path, mode: Any = "r") -> tarfile.TarFile:
    """A tar file, plain or compressed, whose headers are read in bounded memory; ``mode`` as for ``tarfile.open``."""
    require_regular(path)
    return tarfile.open(path, mode, tarinfo=_Member)


def _has_end(shard: Path) -> bool:
    """Whether there is something after the last header of a shard: its mark, or damage that is told when it is read."""
    try:
        with shard.open("rb") as raw:
            packed = raw.read(len(GZIP)) == GZIP
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if packed else raw as file:
                with (
                    contextlib.suppress(tarfile.TarError),
                    tarfile.open(fileobj=file, mode="r:", tarinfo=_Member) as archive,
                ):
                    while archive.next():
                        vars(archive)["members"] = []  # it would keep all of them
                found = bool(file.read(1))
                while packed and file.read(1 << 20):
                    pass
                return found
    except EOFError:  # of gzip
        return False
    except DAMAGE:
        return True


class _Member(tarfile.TarInfo):
    """Raises on a damaged or missing header, which Python takes for the archive's end, and on one that is too long."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        if not buf:
            raise tarfile.ReadError("its end-of-archive mark is missing; copy it again, or wait until it is written")
        try:
            member = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if any(buf):
                raise tarfile.ReadError(str(error)) from error
            raise
        if member.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("sparse members are not read")
        if member.type in _LONG_HEADERS and member.size > MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header has {member.size:,} bytes")
        return member

    def _proc_gnusparse_10(self, *_: Any) -> None:
        raise tarfile.ReadError("sparse members are not read")


_LONG_HEADERS = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
)


def _samples(archive: tarfile.TarFile, shard: Path) -> Iterator[Item]:
    """Pair each image with the label next to it."""
    members = ((*_split(member.name), member) for member in archive if not member.isdir())
    for _, sample in groupby(filter(_is_known, members), key=itemgetter(0)):
        images: list[tuple[str, bytes | BadImage]] = []
        label = None
        for _, suffix, member in sample:
            content = _content(archive, member)
            if suffix in SUFFIXES:
                if images:
                    content = BadImage(f"its sample has another image, {images[0][0]}")
                images.append((member.name, content))
            elif isinstance(content, bytes) and len(content) <= MAX_LABEL_BYTES:
                label = _label(content)
        if label is not None and not images:
            warn_once(
                "left out labels of tar files that lie beside no image; write the members of a sample one after another"
            )
        for name, content in images:
            yield Item(f"{shard}:{name}", content, label)


def _is_known(entry: tuple[str, str, tarfile.TarInfo]) -> bool:
    """Whether a member is an image or a label by its suffix; an image with a further dot in its name is told of."""
    stem, suffix, _ = entry
    if suffix.endswith(SUFFIXES) and suffix not in SUFFIXES and not stem.endswith("/"):  # a hidden file
        warn_once(
            "left out images of tar files with more than one dot in their names; rename them, or unpack them into a "
            "folder"
        )
    return suffix in (*SUFFIXES, *LABEL_SUFFIXES)


def _split(name: str) -> tuple[str, str]:
    """Stem and lower-case suffix of a member, the file's name parted at its first dot."""
    folder, file = posixpath.split(name)
    stem, dot, suffix = file.partition(".")
    return f"{folder}/{stem}", (dot + suffix).lower()


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes | BadImage:
    """The content of a member, or why it cannot be used."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        return BadImage("its path leads out of the archive")
    content = archive.extractfile(member) if member.isreg() else None
    if content is None:
        return BadImage("it is a link or a device, not a file")
    try:
        require_bytes(member.size)
    except BadImage as problem:
        return problem
    return content.read()


def _label(content: bytes) -> int | str:
    text = content.decode("utf-8", errors="replace").strip()
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 100 else text
