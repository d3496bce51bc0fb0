"""Data sets on the Hugging Face Hub, through the Hub's own client: its cache, its tokens, its resumed downloads."""

from __future__ import annotations

from pathlib import Path

from ocssl.data.layout import of_split
from ocssl.errors import DataError, missing_extra

CONVERTED = "refs/convert/parquet"
"""The branch on which the Hub keeps its own parquet copy of data sets that were uploaded in another format."""


def hub_parquet_files(address: str, split: str) -> list[Path]:
    """Download one split's parquet files.

    Args:
        address: ``owner/name``, or ``owner/name/config`` where the set has several configurations.
    """
    try:
        from huggingface_hub import HfApi, hf_hub_download
    except ImportError:
        raise missing_extra("huggingface_hub", "hub", "data sets from the Hugging Face Hub") from None
    repository, config = _parts(address)
    try:
        revision, names = None, _shards(HfApi().list_repo_files(repository, repo_type="dataset"), split)
        if not names:
            revision = CONVERTED
            names = _shards(HfApi().list_repo_files(repository, repo_type="dataset", revision=revision), split)
        if not names:
            raise DataError(f"'{repository}' has no parquet files of a {split} split on the Hugging Face Hub")
        chosen = _of_config(repository, names, config)
        return [Path(hf_hub_download(repository, name, repo_type="dataset", revision=revision)) for name in chosen]
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


def _shards(names: list[str], split: str) -> list[str]:
    """The split's shards in every configuration, which may call their splits by other names."""
    by_config = _by_config(sorted(name for name in names if name.endswith(".parquet")))
    return [file.as_posix() for shards in by_config.values() for file in of_split(map(Path, shards), split)]


def _by_config(names: list[str]) -> dict[str, list[str]]:
    """Names by their configuration, which is the first folder of their paths."""
    by_config: dict[str, list[str]] = {}
    for name in names:
        by_config.setdefault(name.rpartition("/")[0].partition("/")[0], []).append(name)
    return by_config


def _of_config(repository: str, names: list[str], config: str | None) -> list[str]:
    """The shards of one configuration."""
    by_config = _by_config(names)
    if config is None and len(by_config) == 1:
        return names
    if config in by_config:
        return by_config[config]
    raise DataError(f"choose a configuration of '{repository}': hf:{repository}/NAME with {', '.join(by_config)}")
