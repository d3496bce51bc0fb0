"""What is there of a set and what is not, without decoding or downloading anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ocssl.data.cache import cache_folder, is_prepared
from ocssl.data.catalog import dataset_spec
from ocssl.data.loading import is_address, open_address
from ocssl.data.places import data_root
from ocssl.errors import DataError


@dataclass(frozen=True)
class Presence:
    """The state of one split in one word, and in one sentence."""

    state: Literal["ready", "found", "download", "missing", "broken"]
    detail: str


def presence(address: str, split: str, *, root: str | Path | None = None, image_size: int | None = None) -> Presence:
    """Look for a split of a known set, or of ``folder:PATH``, ``parquet:PATH`` and ``tar:PATH``.

    >>> presence("shapes", "train")
    Presence(state='ready', detail='drawn by code')
    """
    known = None if is_address(address) else dataset_spec(address)
    if known and known.drawn:
        return Presence("ready", "drawn by code")
    if address.startswith("hf:"):
        return Presence("download", "asked for on the Hugging Face Hub when used")
    place = data_root(root)
    try:
        origin = known.locate(place, split) if known else open_address(address, split)
    except DataError as error:
        return Presence("broken", str(error))
    if origin is None:
        downloads = known.downloads if known else None
        if downloads:
            return Presence("download", f"not below {place}; will be downloaded from {downloads[split].url}")
        return Presence("missing", f"not found below {place}")
    folder = cache_folder(origin, address, image_size or (known.image_size if known else None))
    if is_prepared(folder):
        return Presence("ready", f"{origin.describe()}, decoded in {folder}")
    return Presence("found", f"{origin.describe()}, to be decoded when first used")
