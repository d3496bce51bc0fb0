"""From a name, an address or an iterable to a data set; and what is there of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image
from torch import Tensor, uint8

from ocssl.common.console import warn_once
from ocssl.data.cache import Decoding, OnBadImage, cache_root, find_caches, open_cache
from ocssl.data.cache_writer import cached, write_cache, writing_cache
from ocssl.data.catalog import DatasetSpec, dataset_spec
from ocssl.data.dataset import Dataset, DatasetInfo
from ocssl.data.download import fetch
from ocssl.data.formats.files import any_folder, image_files, one_split
from ocssl.data.formats.tar import TarReader
from ocssl.data.layout import (
    OTHER_SPLIT,
    SPLIT_NAMES,
    USUAL_ROOT,
    NoSplit,
    as_path,
    data_root,
    is_there,
    no_split,
    shard_files,
    split_folder,
    subfolders,
)
from ocssl.data.reader import Item, Reader
from ocssl.errors import ConfigError, DataError
from ocssl.imaging import BadImage, Fit, Picture, PixelRange, bad_images, check_pixel_range, detached
from ocssl.registry import unknown

SCHEMES = ("folder", "parquet", "tar", "hf")
SHARD_SUFFIXES = {"parquet": (".parquet",), "tar": (".tar", ".tar.gz", ".tgz")}


def load(
    address: str,
    *,
    split: str = "train",
    root: str | Path | None = None,
    image_size: int | None = None,
    fit: Fit = "crop",
    pixel_range: PixelRange | None = None,
    on_bad_image: OnBadImage = "error",
    download: bool = True,
    verify: bool = False,
    progress: bool | None = None,
) -> Dataset:
    """Open a data set.

    Args:
        address: a name from :func:`ocssl.data.names`, or ``folder:PATH``, ``parquet:PATH``, ``tar:PATH``, ``hf:REPO``.
        split: ``"train"`` or ``"test"``; sets whose test labels are not public give their validation images as test.
        root: folder with data sets; ``$OCSSL_DATA`` by default, else ``data``. An address below ``data`` is
            looked for below it, too.
        image_size: side length to resize to. By default that of the named set; for an address that of the
            first image, which all must then have.
        fit: ``"crop"`` takes the largest centred square of an image, ``"squash"`` all of it.
        pixel_range: black and white of images with more than 8 bits or floating point numbers, e.g. ``(0, 4095)``; by
            default 0 and 65,535, and floating point numbers are refused.
        on_bad_image: ``"error"`` stops at an image that cannot be used and names it; ``"skip"`` leaves it out and
            lists it in ``dataset.skipped``.
        download: whether a named set that is not there may be downloaded.
        verify: read the decoded images once and compare their checksums.
        progress: show progress bars; by default when stderr is a terminal.

    >>> load("shapes", split="test")
    <shapes: 1800 images of 32×32, 18 classes>
    """
    if split not in SPLIT_NAMES:
        raise unknown("split", split, SPLIT_NAMES)
    decoding = Decoding(image_size, fit, on_bad_image, check_pixel_range(pixel_range))
    if is_address(address):
        reader, info = open_address(locate(address, root), split), DatasetInfo(address)
    else:
        spec = dataset_spec(address)
        size = image_size or spec.image_size
        decoding = replace(decoding, image_size=size)
        if spec.drawn:
            made = spec.drawn(split, size)
            if not isinstance(made, Dataset):
                raise ConfigError(f"data set '{spec.name}' must be drawn as a Dataset, not {type(made).__name__}")
            return made
        reader = _find_or_fetch(spec, data_root(root), split, download, progress)
        info = DatasetInfo(spec.name, mean=spec.mean, std=spec.std)
    return cached(reader, info, decoding, check=verify, show=progress)


def from_iterable(
    images: Iterable[object],
    *,
    name: str = "iterable",
    image_size: int | None = None,
    fit: Fit = "crop",
    pixel_range: PixelRange | None = None,
    on_bad_image: OnBadImage = "error",
    progress: bool | None = None,
) -> Dataset:
    """A data set from anything that yields images, read once from front to end.

    The images are kept in RAM when they are few and in a scratch file when they are many. An endless iterable needs no
    data set: give its minibatches to the learner directly.

    Args:
        images: PIL images, arrays ``(H, W)`` or ``(H, W, C)`` as for :func:`~ocssl.imaging.decode`, uint8 tensors
            ``(C, H, W)``, encoded bytes, paths.
        image_size, fit, pixel_range, on_bad_image: as for :func:`load`.

    >>> from_iterable(np.zeros((5, 8, 8, 3), dtype=np.uint8))
    <iterable: 5 images of 8×8>
    """
    decoding = Decoding(image_size, fit, on_bad_image, check_pixel_range(pixel_range))
    root = cache_root()
    with writing_cache(root):
        root.mkdir(parents=True, exist_ok=True)
        # A mapped file stays readable after it is deleted, so nothing is left behind.
        scratch = tempfile.TemporaryDirectory(dir=root, ignore_cleanup_errors=True)
    with scratch as folder:
        write_cache(_IterableReader(images, name), Path(folder) / "cache", decoding, progress)
        return open_cache(Path(folder) / "cache", DatasetInfo(name))


@dataclass(frozen=True)
class SplitStatus:
    """The state of one split in one word, and in one sentence."""

    state: Literal["ready", "found", "download", "missing", "broken"]
    detail: str


def status(address: str, split: str, *, root: str | Path | None = None, image_size: int | None = None) -> SplitStatus:
    """Whether a split of a named set or an address is there, without decoding or downloading anything.

    Args:
        image_size: count only what is decoded to this side length.

    >>> status("shapes", "train")
    SplitStatus(state='ready', detail='drawn by code')
    """
    wanted = Decoding(image_size)
    spec = None if is_address(address) else dataset_spec(address)
    if spec and spec.drawn:
        return SplitStatus("ready", "drawn by code")
    if address.startswith("hf:"):
        return SplitStatus("download", "downloaded from the Hugging Face Hub when used")
    below = data_root(root)
    try:
        reader = spec.locate(below, split) if spec else open_address(locate(address, root), split)
        identity = reader.identity() if reader else ""  # which opens the other split, too
    except NoSplit as error:
        return SplitStatus("missing", str(error))
    except OSError as error:  # a DataError of our own, or what a folder raises that cannot be listed
        return SplitStatus("broken", str(error))
    if reader is None:
        if spec and spec.downloads:
            return SplitStatus("download", f"not below {below}; will be downloaded from {spec.downloads[split].url}")
        return SplitStatus("missing", f"not found below {below}")
    found = find_caches(address, identity, wanted.image_size)
    if decoded := ", ".join(f"{folder} ({decoding})" for folder, decoding in found):
        return SplitStatus("ready", f"{reader.describe()}, decoded in {decoded}")
    return SplitStatus("found", f"{reader.describe()}, to be decoded when first used")


def is_address(address: str) -> bool:
    """Whether this is an address such as ``folder:PATH``, not the name of a set."""
    return address.partition(":")[0] in SCHEMES


def locate(address: str, root: str | Path | None = None) -> str:
    """An address; where nothing is there and it is below ``data``, the usual root, one below the root that is given.

    >>> locate("folder:data/none", root="/sets"), locate("folder:none", root="/sets")
    ('folder:/sets/none', 'folder:none')
    """
    scheme, _, place = address.partition(":")
    first, *below = Path(place).parts or [""]
    if scheme == "hf" or first != USUAL_ROOT or not below or is_there(Path(place)):
        return address
    return f"{scheme}:{data_root(root).joinpath(*below)}"


def open_address(address: str, split: str) -> Reader:
    """The images at ``folder:PATH``, ``parquet:PATH``, ``tar:PATH`` or ``hf:REPO``."""
    scheme, _, place = address.partition(":")
    if not place:
        raise DataError(f"'{scheme}:' needs a path after the colon")
    if scheme == "folder":
        path = as_path(place)
        reader = one_split(path, split)
        if reader is None and (split == "test" or split_folder(path, "test")):
            raise no_split(place, split)
        if reader:
            _tell_of_other_folders(path)
        return reader or any_folder(path)
    if scheme == "hf":
        from ocssl.data.formats.hub import hub_parquet_files

        find = partial(hub_parquet_files, place)
    else:
        find = partial(shard_files, as_path(place), SHARD_SUFFIXES[scheme])

    def other_files() -> list[Path]:
        try:
            return find(OTHER_SPLIT[split])
        except NoSplit:
            return []

    if scheme == "tar":
        return TarReader(find(split), other_files)
    from ocssl.data.formats.parquet import ParquetReader

    return ParquetReader(find(split), other_files)


def _tell_of_other_folders(folder: Path) -> None:
    """Warn of images beside the splits: they may be classes, one of which is called train."""
    splits = {name for names in SPLIT_NAMES.values() for name in names}
    others = (path for path in subfolders(folder) if path.name.lower() not in splits and path.name[0] != ".")
    if other := next((path for path in others if image_files(path)), None):
        why = f"since {folder} has a folder that is called like a split"
        warn_once(f"left out the images in {other}, {why}; rename that folder if it is a class")


def _find_or_fetch(spec: DatasetSpec, root: Path, split: str, download: bool, progress: bool | None) -> Reader:
    reader = spec.locate(root, split)
    if reader is None and download and spec.downloads:
        fetch(spec.downloads[split], root, progress)
        reader = spec.locate(root, split)
    if reader is None:
        raise DataError(f"{spec.name} ({split}) was not found below {root}: {spec.advice}")
    return reader


class _IterableReader(Reader):
    def __init__(self, images: Iterable[object], name: str) -> None:
        self._images = images
        self._name = name

    def describe(self) -> str:
        return self._name

    def identity(self) -> str:
        raise NotImplementedError("an iterable is read once and never cached")

    def items(self, start: int = 0) -> Iterator[Item]:
        for position, image in enumerate(self._images):
            yield Item(f"{self._name}:{position}", _as_picture(image))


def _as_picture(image: object) -> Picture | BadImage:
    """An image of the caller's, as it is now: the caller may write the next one over it, or close its file."""
    if isinstance(image, Tensor):
        if image.dtype != uint8:
            return BadImage(f"its pixels are {image.dtype}, not uint8")
        pixels = image.detach().cpu().numpy()
        return (pixels.transpose(1, 2, 0) if pixels.ndim == 3 else pixels).copy()
    if isinstance(image, np.ndarray):
        return image.copy()
    if isinstance(image, Image.Image):
        try:
            with bad_images():
                return detached(image)
        except BadImage as problem:
            return problem
    if isinstance(image, (bytes, Path)):
        return image
    hint = "; make a path of it: pathlib.Path(…)" if isinstance(image, str) else ""
    return BadImage(f"it is a {type(image).__name__}, not an image{hint}")
