"""Data sets on the Hugging Face Hub, through the Hub's own client: its cache, its tokens, its resumed downloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ocssl.data.layout import NoSplit, of_split
from ocssl.errors import DataError, import_extra

CONVERTED = "refs/convert/parquet"
"""The branch on which the Hub keeps its own parquet copy of data sets that were uploaded in another format."""


def hub_parquet_files(address: str, split: str) -> list[Path]:
    """Download one split's parquet files.

    Args:
        address: ``owner/name``, or ``owner/name/config`` where the set has several configurations.
    """
    hub = import_extra("huggingface_hub", "hub", "data sets from the Hugging Face Hub")
    repository, config = _parts(address)
    try:
        for revision in (None, CONVERTED):
            where: Any = {"repo_type": "dataset", "revision": revision}
            if shards := shards_by_config(hub.HfApi().list_repo_files(repository, **where), split):
                if config is None and len(shards) == 1:
                    [config] = shards
                if config not in shards:
                    known = ", ".join(shards)
                    raise DataError(f"choose a configuration of '{repository}': hf:{repository}/NAME with {known}")
                return [Path(hub.hf_hub_download(repository, name, **where)) for name in shards[config]]
        raise NoSplit(f"'{repository}' has no parquet files of a {split} split on the Hugging Face Hub")
    except DataError:
        raise
    # Besides its own errors the client lets through those of its HTTP library, which is another one in each version.
    except Exception as error:
        raise DataError(f"could not get '{repository}' from the Hugging Face Hub: {error}") from error


def _parts(address: str) -> tuple[str, str | None]:
    owner, _, rest = address.partition("/")
    name, _, config = rest.partition("/")
    if not owner or not name:
        raise DataError(f"'hf:{address}' does not name a data set; it is hf:OWNER/NAME or hf:OWNER/NAME/CONFIG")
    return f"{owner}/{name}", config or None


def shards_by_config(names: list[str], split: str) -> dict[str, list[str]]:
    """The split's shards in each configuration that has any; a configuration is the first folder of their paths."""
    by_config: dict[str, list[Path]] = {}
    for name in sorted(name for name in names if name.endswith(".parquet")):
        by_config.setdefault(name.rpartition("/")[0].partition("/")[0], []).append(Path(name))
    chosen = {config: of_split(files, split) for config, files in by_config.items()}
    return {config: [file.as_posix() for file in files] for config, files in chosen.items() if files}
