"""From what a user types to the images that are meant."""

from __future__ import annotations

import sys
from pathlib import Path

from ocssl.data.formats.files import FilesReader, image_files
from ocssl.data.loading import open_address
from ocssl.data.reader import Reader
from ocssl.errors import ConfigError, DataError
from ocssl.live import video
from ocssl.live.arrivals import Arrivals, Folder, Paths, Sequence, check_same
from ocssl.live.ledger import Ledger

KINDS_BY_SUFFIX = {
    (".tar", ".tar.gz", ".tgz"): "tar",
    (".parquet",): "parquet",
    video.SUFFIXES: "video",
}
KINDS = ("folder", "tar", "parquet", "video", "hf", "camera")
PATHS_FROM_INPUT = "-"


def address_of(source: str) -> str:
    """A source's kind and place, the same from every working folder: its name in a saved state.

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
    kind, colon, place = source.partition(":")
    if not colon or kind not in KINDS:
        kind, place = _kind_of(source), source
    if not place:
        raise DataError(f"'{kind}:' needs a path after the colon")
    return f"{kind}:{place if kind in ('hf', 'camera') else Path(place).expanduser().resolve()}"


def open_reader(source: str) -> Reader:
    """The pictures of a source as they are now, in a fixed order."""
    address = address_of(source)
    kind, _, place = address.partition(":")
    if kind == "folder":
        return FilesReader(Path(place), image_files(Path(place)))
    if kind == "video":
        return video.VideoReader(Path(place))
    return video.CameraReader(place) if kind == "camera" else open_address(address, "train")


def open_arrivals(
    source: str, ledger: Ledger, positions: dict[str, int], identities: dict[str, str], *, follow: bool = False
) -> Arrivals:
    """The images of a source that were not handed out before.

    Args:
        source: as :func:`address_of` takes it, or ``-`` for paths on standard input.
        ledger: knows the files that were.
        positions: how many were, by address, for sources with a fixed order.
        identities: what those sources looked like; the present look of this one is put in.
        follow: go on with files that arrive in the folder later.
    """
    if source == PATHS_FROM_INPUT:
        return Paths(sys.stdin, ledger)
    address = address_of(source)
    kind, _, place = address.partition(":")
    if kind == "folder":
        return Folder(Path(place), address, ledger, follow=follow)
    if follow:
        raise ConfigError(f"only a folder can be followed, and '{source}' is none")
    origin = open_reader(source)
    identities[address] = check_same(origin, identities.get(address))
    return Sequence(origin, address, positions.get(address, 0), ledger)


def _kind_of(source: str) -> str:
    if Path(source).expanduser().is_dir():
        return "folder"
    for suffixes, kind in KINDS_BY_SUFFIX.items():
        if source.lower().endswith(suffixes):
            return kind
    if not Path(source).expanduser().exists():
        raise DataError(f"there is nothing at '{source}'")
    raise DataError(f"'{source}' is neither a folder nor a tar, parquet or video file")
