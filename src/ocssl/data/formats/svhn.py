"""SVHN's cropped digits: MATLAB files with all images in one array."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ocssl.data.formats.matlab import read_matrices
from ocssl.data.reader import Item, Reader, describe_files
from ocssl.errors import DataError


class SvhnReader(Reader):
    """One of ``train_32x32.mat`` and ``test_32x32.mat``: ``X`` uint8 ``(32, 32, 3, N)``, ``y`` with 10 for a zero."""

    def __init__(self, file: Path) -> None:
        self.file = file.resolve()

    def describe(self) -> str:
        return str(self.file)

    def identity(self) -> str:
        return f"svhn\n{describe_files([self.file])}"

    def class_names(self) -> tuple[str, ...]:
        return tuple("0123456789")

    def items(self, start: int = 0) -> Iterator[Item]:
        try:
            content = read_matrices(self.file, ("X", "y"))
            pixels, labels = content["X"], content["y"].ravel().astype(np.int64) % 10
        except (ValueError, OSError) as error:
            raise DataError(f"{self.file} is not a readable SVHN file: {error}") from error
        if pixels.dtype != np.uint8 or pixels.shape[:3] != (32, 32, 3) or pixels.shape[3:] != labels.shape:
            raise DataError(f"{self.file} does not hold 32×32 digits with their labels")
        for position in range(start, len(labels)):
            yield Item(f"{self.file}:{position}", pixels[..., position], int(labels[position]))


def find_svhn(folder: Path, split: str) -> SvhnReader | None:
    """The MATLAB file of a split in ``folder``, if it is there."""
    file = folder / f"{split}_32x32.mat"
    return SvhnReader(file) if file.is_file() else None
