"""Whole runs on the real CIFAR-100 in both precisions: what half of the bits costs in accuracy."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import mean

import pytest
import torch

from ocssl.data.catalog import dataset_spec
from ocssl.data.layout import dataset_dirs, parquet_files
from ocssl.runs.presets import resolve
from ocssl.runs.run import start

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

ROOT = Path(os.environ.get("OCSSL_DATA") or Path(__file__).parents[3] / "shared" / "data")
SEEDS = (0, 1)  # two trainings that differ in rounding alone end up to a point apart, like two seeds


def final(precision: str, seed: int, folder: Path) -> float:
    """Accuracy at the end of a run at the paper's low budget."""
    settings = {"strategy": "cla-e", "method": "simsiam", "dataset": "cifar100", "budget": "low", "device": "cuda"}
    how = {"data_root": str(ROOT), "evaluate": "final", "references": False, "knn": False, "execution": "graph"}
    result = start(resolve({**settings, **how, "precision": precision, "seed": seed}), folder)
    assert result.final is not None
    return result.final


def test_bf16_and_fp32_end_within_a_point_of_each_other(tmp_path: Path) -> None:
    if not any(parquet_files(home, "train") for home in dataset_dirs(ROOT, dataset_spec("cifar100").aliases)):
        pytest.skip(f"no parquet files of CIFAR-100 below {ROOT}; put them there or set OCSSL_DATA")
    ends = {
        precision: [final(precision, seed, tmp_path / f"{precision}-{seed}") for seed in SEEDS]
        for precision in ("bf16", "fp32")
    }
    assert min(ends["bf16"]) > 20, "an untrained encoder has about 15"
    assert abs(mean(ends["bf16"]) - mean(ends["fp32"])) < 1, ends
