"""Synthetic results, written once for all tests of a worker, and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic

from helpers.cli import ocssl
from ocssl.results import Report, read_report, read_result

__all__ = ["ocssl"]

CLA_E = "cifar100-simsiam-cla-e-fifo-high-clean-seed0.json"
ER_FIFO = "cifar100-simsiam-er-fifo-high-clean-seed{}.json"


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


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Few, with seed 2."""
    wanted = synthetic.results(protocols=("clean",), budgets=("high",))
    return synthetic.write(tmp_path / "three", (result for result in wanted if result.method != "simclr"))


@pytest.fixture
def as_paper(few: Path) -> Path:
    """Few, with CLA-E tuned to what the paper has."""
    (few / "tuned").mkdir()
    (few / "tuned" / "high-simsiam@cifar100@clean.yaml").write_text("cla-e: {lr: 0.3, omega: 0.3}\n")
    return few


@pytest.fixture
def tuned(few: Path) -> Path:
    """Few, with CLA-E tuned as well (seed 2), and of ER with FIFO nothing but what we tuned (seeds 3 and 4)."""
    cla_e, er = read_result(few / CLA_E), read_result(few / ER_FIFO.format(0))
    runs = [synthetic.again(cla_e, 55.5, seed=2, lr=0.3, omega=0.5)]
    runs += [synthetic.again(er, 51.0 + seed, seed=seed, lr=0.2) for seed in (3, 4)]
    for number, run in enumerate(runs):
        (few / f"tuned{number}.json").write_text(run.to_json())
    for seed in (0, 1):
        (few / ER_FIFO.format(seed)).unlink()
    (few / "tuned").mkdir()
    values = "er-fifo: {lr: 0.2}\ncla-e: {lr: 0.3, omega: 0.5}\n"
    (few / "tuned" / "high-simsiam@cifar100@clean.yaml").write_text(values)
    return few
