"""CIFAR-10 and CIFAR-100 as their authors publish them: pickled batches, unpacked or inside the ``.tar.gz``."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ocssl.common.files import read_file
from ocssl.data.formats.tar import DAMAGE, open_tar
from ocssl.data.formats.unpickle import load_arrays
from ocssl.data.reader import Item, Reader, describe_files
from ocssl.errors import DataError

MAX_MEMBER_BYTES = 1 << 30


@dataclass(frozen=True)
class CifarLayout:
    """File names and keys of one of the two official archives."""

    archive: str
    folder: str
    batches: dict[str, tuple[str, ...]]
    labels: str
    meta: str
    class_names: str


CIFAR100 = CifarLayout(
    archive="cifar-100-python.tar.gz",
    folder="cifar-100-python",
    batches={"train": ("train",), "test": ("test",)},
    labels="fine_labels",
    meta="meta",
    class_names="fine_label_names",
)
CIFAR10 = CifarLayout(
    archive="cifar-10-python.tar.gz",
    folder="cifar-10-batches-py",
    batches={"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
    labels="labels",
    meta="batches.meta",
    class_names="label_names",
)


class CifarReader(Reader):
    """One split of CIFAR-10 or CIFAR-100.

    Args:
        place: the official archive, or the folder with its unpacked files.
    """

    def __init__(self, place: Path, layout: CifarLayout, split: str) -> None:
        self.place = place.resolve()
        self.layout = layout
        self.batches = layout.batches[split]

    def describe(self) -> str:
        return f"{', '.join(self.batches)} in {self.place}"

    def identity(self) -> str:
        files = [self.place] if self.place.is_file() else [self.place / name for name in self.batches]
        return f"cifar {self.batches}\n{describe_files(files)}"

    def class_names(self) -> tuple[str, ...]:
        names = self._load(self.layout.meta).get(self.layout.class_names, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError(f"{self.layout.meta} in {self.place} does not hold class names")
        return tuple(names)

    def items(self, start: int = 0) -> Iterator[Item]:
        position = 0
        for batch in self.batches:
            content = self._load(batch)
            pixels, labels = self._checked(batch, content.get("data"), content.get(self.layout.labels))
            for row in range(max(start - position, 0), len(pixels)):
                yield Item(f"{self.place}:{batch}:{row}", pixels[row], labels[row])
            position += len(pixels)

    def _checked(self, batch: str, data: Any, labels: Any) -> tuple[Any, list[int]]:
        fits = isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 2 and data.shape[1] == 3072
        whole = isinstance(labels, list) and all(type(label) is int for label in labels)
        if not fits or not whole or len(labels) != len(data):
            raise DataError(f"{batch} in {self.place} does not hold CIFAR images with their labels")
        return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels

    def _load(self, name: str) -> dict[str, Any]:
        try:
            if self.place.is_dir():
                content = read_file(self.place / name, MAX_MEMBER_BYTES)
            else:
                with open_tar(self.place) as archive:
                    content = _read_member(archive, f"{self.layout.folder}/{name}")
        except DAMAGE as error:
            raise DataError(f"cannot read {name} from {self.place}: {error}") from error
        return load_arrays(content, f"{name} in {self.place}")


def _read_member(archive: tarfile.TarFile, name: str) -> bytes:
    """One regular file of an archive; nothing is unpacked, so links and odd paths do no harm."""
    for member in archive:
        if member.name.removeprefix("./") == name:
            content = archive.extractfile(member) if member.isreg() and member.size <= MAX_MEMBER_BYTES else None
            if content is None:
                raise DataError(f"the member {name} is a link, or larger than any CIFAR batch")
            return content.read()
    raise DataError(f"there is no member {name}")


def find_cifar(folder: Path, split: str, layout: CifarLayout) -> CifarReader | None:
    """The split in ``folder``: below the official folder's name, right inside, or in the archive."""
    for place in (folder / layout.folder, folder):
        if all((place / name).is_file() for name in (*layout.batches[split], layout.meta)):
            return CifarReader(place, layout, split)
    archive = folder / layout.archive
    return CifarReader(archive, layout, split) if archive.is_file() else None
