"""Synthetic stores, written once for all tests of a worker."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic

from ocssl.report import Report, read_report


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every row of the main tables on CIFAR-100, three seeds, both protocols, both budgets."""
    return synthetic.write(tmp_path_factory.mktemp("store"), synthetic.results())


@pytest.fixture(scope="session")
def report(store: Path) -> Report:
    return read_report(store, "Synthetic results")


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """The high SimSiam table under the clean protocol, seeds 0 and 1."""
    wanted = synthetic.results(protocols=("clean",), seeds=(0, 1), budgets=("high",))
    return synthetic.write(tmp_path / "few", (result for result in wanted if result.method != "simclr"))
