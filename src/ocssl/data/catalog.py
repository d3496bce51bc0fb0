"""The data sets that ocssl knows by name: where they may lie, how to get them, and their normalisation.

>>> "cifar100" in names()
True
>>> dataset_spec("cifar-100")
Traceback (most recent call last):
...
ocssl.errors.ConfigError: unknown data set 'cifar-100'; did you mean 'cifar100'? Known: cifar100, cifar10, svhn, \
imagenet100, imagenet100:authors, tiny-imagenet, cars, shapes
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from ocssl.common.console import shown
from ocssl.data.dataset import IMAGENET_MEAN, IMAGENET_STD, Channels, Dataset, DatasetInfo, ResidentDataset
from ocssl.data.download import Download
from ocssl.data.formats.cifar import CIFAR10, CIFAR100, find_cifar
from ocssl.data.formats.files import one_split
from ocssl.data.formats.imagenet import AUTHORS_SEED, find_imagenet100, find_tiny_imagenet
from ocssl.data.formats.svhn import find_svhn
from ocssl.data.layout import dataset_dirs, parquet_files
from ocssl.data.reader import Reader
from ocssl.data.shapes import CLASSES, draw
from ocssl.errors import ConfigError
from ocssl.registry import Registry


@dataclass(frozen=True)
class DatasetSpec:
    """A data set with a name.

    Attributes:
        summary: one line on what it holds.
        advice: what to fetch and where to put it, as a clause that follows "not found".
        image_size: the customary side length.
        aliases: what its own folder may be called.
        parquet: what the folder with its Hugging Face parquet files may be called.
        find: the reader of a split in a given folder in any other layout; None when the split is not there.
        downloads: official files by split, kept right below the data root.
        drawn: draws the images of a split at a side length, instead of reading them.
    """

    name: str
    summary: str
    advice: str
    image_size: int
    aliases: tuple[str, ...] = ()
    parquet: tuple[str, ...] = ()
    find: Callable[[Path, str], Reader | None] = lambda folder, split: None
    downloads: dict[str, Download] | None = None
    drawn: Callable[[str, int], Dataset] | None = None
    mean: Channels = IMAGENET_MEAN
    std: Channels = IMAGENET_STD

    def locate(self, root: Path, split: str) -> Reader | None:
        """Search the root and the set's own folders below it, in every layout that is known."""
        for folder in dataset_dirs(root, self.parquet):
            if files := parquet_files(folder, split):
                from ocssl.data.formats.parquet import ParquetReader

                return ParquetReader(files)
        # Right below the root only official files, which no other set can be mistaken for.
        folders = chain(dataset_dirs(root, self.aliases), [root] if self.downloads else [])
        return next((reader for folder in folders if (reader := self.find(folder, split))), None)


registry = Registry[DatasetSpec]("data set", group="ocssl.data")
register = registry.register


def names() -> list[str]:
    """Every data set that :func:`ocssl.data.load` knows by name."""
    return registry.names()


def dataset_spec(name: str) -> DatasetSpec:
    """The data set called ``name``; ``imagenet100:authors:7`` is the authors' draw with seed 7 instead of theirs."""
    base, _, seed = name.rpartition(":")
    if base == "imagenet100:authors" and name not in registry:
        if not (seed.isdecimal() and len(seed) <= 18):
            raise ConfigError(f"the seed in {shown(name)} must be a whole number of at most 18 digits")
        return replace(registry.get(base), name=name, find=partial(find_imagenet100, authors_seed=int(seed)))
    if name not in registry and os.path.isdir(name):  # of a text that cannot be a path, it is False
        raise ConfigError(f"unknown data set '{name}'; for the images in the folder of this name, write folder:{name}")
    spec = registry.get(name)
    if not isinstance(spec, DatasetSpec):
        raise ConfigError(f"data set '{name}' must be registered as a DatasetSpec, not as {spec!r}")
    return spec


def _draw_shapes(split: str, image_size: int) -> Dataset:
    per_class, seed = {"train": (500, 0), "test": (100, 1)}[split]
    images, labels = draw(per_class * len(CLASSES), size=image_size, seed=seed)
    return ResidentDataset(images, DatasetInfo("shapes", CLASSES, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)), labels)


_TORONTO = "https://www.cs.toronto.edu/~kriz"
_STANFORD = "https://ufldl.stanford.edu/housenumbers"
_CIFAR100_FILE = Download(
    f"{_TORONTO}/{CIFAR100.archive}", "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7", 169_001_437
)
_CIFAR10_FILE = Download(
    f"{_TORONTO}/{CIFAR10.archive}", "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce", 170_498_071
)
_SVHN_TRAIN_FILE = Download(
    f"{_STANFORD}/train_32x32.mat", "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8", 182_040_794
)
_SVHN_TEST_FILE = Download(
    f"{_STANFORD}/test_32x32.mat", "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b", 64_275_384
)
_IMAGENET_ADVICE = (
    "get ILSVRC 2012 from image-net.org and put it below the root "
    "as imagenet/train/n…/*.JPEG and imagenet/val/n…/*.JPEG"
)
_IMAGENET_FOLDERS = ("imagenet100", "imagenet", "imagenet1k", "ilsvrc", "ilsvrc2012")

for _spec in (
    DatasetSpec(
        "cifar100",
        "60,000 photographs of 100 classes, 32×32",
        f"it is downloaded when needed, or put {CIFAR100.archive} or its Hugging Face parquet files into cifar100/",
        32,
        aliases=("cifar100", CIFAR100.folder),
        parquet=("cifar100",),
        find=partial(find_cifar, layout=CIFAR100),
        downloads={"train": _CIFAR100_FILE, "test": _CIFAR100_FILE},
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
    ),
    DatasetSpec(
        "cifar10",
        "60,000 photographs of 10 classes, 32×32",
        f"it is downloaded when needed, or put {CIFAR10.archive} or its Hugging Face parquet files into cifar10/",
        32,
        aliases=("cifar10", CIFAR10.folder),
        parquet=("cifar10",),
        find=partial(find_cifar, layout=CIFAR10),
        downloads={"train": _CIFAR10_FILE, "test": _CIFAR10_FILE},
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
    ),
    DatasetSpec(
        "svhn",
        "99,289 cropped house number digits, 32×32",
        "it is downloaded when needed, or put train_32x32.mat and test_32x32.mat into svhn/",
        32,
        aliases=("svhn", "house-numbers"),
        parquet=("svhn", "cropped-digits"),
        find=find_svhn,
        downloads={"train": _SVHN_TRAIN_FILE, "test": _SVHN_TEST_FILE},
        mean=(0.4377, 0.4438, 0.4728),
        std=(0.1980, 0.2010, 0.1970),
    ),
    DatasetSpec(
        "imagenet100",
        "the customary 100 classes of ImageNet, 224×224",
        _IMAGENET_ADVICE,
        224,
        aliases=_IMAGENET_FOLDERS,
        parquet=("imagenet100",),
        find=find_imagenet100,
    ),
    DatasetSpec(
        "imagenet100:authors",
        f"100 classes of ImageNet drawn as the paper's authors do, seed {AUTHORS_SEED}, 224×224",
        _IMAGENET_ADVICE,
        224,
        aliases=_IMAGENET_FOLDERS[1:],
        find=partial(find_imagenet100, authors_seed=AUTHORS_SEED),
    ),
    DatasetSpec(
        "tiny-imagenet",
        "110,000 photographs of 200 classes, 64×64",
        "unpack cs231n.stanford.edu/tiny-imagenet-200.zip, so that tiny-imagenet-200/train lies below the root",
        64,
        aliases=("tiny-imagenet", "tiny-imagenet-200"),
        parquet=("tiny-imagenet",),
        find=find_tiny_imagenet,
    ),
    DatasetSpec(
        "cars",
        "16,185 photographs of 196 makes of cars (Stanford Cars), 224×224",
        "put its images into class folders, cars/train/NAME/*.jpg and cars/test/NAME/*.jpg below the root, "
        "or its Hugging Face parquet files into cars/",
        224,
        aliases=("cars", "stanford-cars", "car-data"),
        parquet=("cars", "stanford-cars"),
        find=one_split,
    ),
    DatasetSpec(
        "shapes",
        "10,800 figures of 18 classes, drawn by code, 32×32",
        "nothing is needed, they are drawn",
        32,
        drawn=_draw_shapes,
    ),
):
    register(_spec.name)(_spec)
