"""The real command, and a small piece of the real CIFAR-100."""

from __future__ import annotations

import os
from pathlib import Path
from subprocess import Popen

import pytest

from helpers.command import SHORT, Command, as_options

BESIDE_THE_CHECKOUT = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def ocssl(server: Popen[str], tmp_path: Path) -> Command:
    """The command line, working in the test's own folder."""
    return Command(server, tmp_path)


@pytest.fixture(scope="module")
def ocssl_module(server: Popen[str], tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command line, working in a folder that the tests of a module share."""
    return Command(server, tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def runs(ocssl_module: Command) -> list[Path]:
    """CLA-E and ER, finished."""
    for strategy in ("cla-e", "er"):
        code, _, err = ocssl_module("run", "-q", "-o", strategy, *as_options(SHORT | {"strategy": strategy}))
        assert code == 0, err
    return [ocssl_module.folder / "cla-e", ocssl_module.folder / "er"]


@pytest.fixture(scope="session")
def cifar100(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root with the first dozen images of every class of the real CIFAR-100, and four to test on."""
    import numpy as np
    from pyarrow import parquet

    from ocssl.data.catalog import dataset_spec
    from ocssl.data.layout import dataset_dirs, parquet_files

    root = Path(os.environ.get("OCSSL_DATA") or BESIDE_THE_CHECKOUT)
    files = [
        file for home in dataset_dirs(root, dataset_spec("cifar100").aliases) for file in parquet_files(home, "test")
    ]
    if not files:
        pytest.skip(f"no parquet files of CIFAR-100 below {root}; put them there or set OCSSL_DATA")
    table = parquet.read_table(files[0])
    labels = table["fine_label"].to_numpy()
    by_class = [np.flatnonzero(labels == label) for label in range(100)]
    small = tmp_path_factory.mktemp("data")
    (small / "cifar100").mkdir()
    for split, rows in {"train": slice(0, 12), "test": slice(12, 16)}.items():
        chosen = np.sort(np.concatenate([members[rows] for members in by_class]))
        parquet.write_table(table.take(chosen), small / "cifar100" / f"{split}-00000-of-00001.parquet")
    return small
