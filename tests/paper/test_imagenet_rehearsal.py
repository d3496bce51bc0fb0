"""The paper's ImageNet100 tables from files to a table, on a stand-in of the same layout."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.cli import Ocssl
from ocssl.results import read_results

ROOT = Path(__file__).parents[2]
SMALL = {"backbone": "convnet-w4", "hidden_dim": 16, "output_dim": 32, "batch": 20, "passes": 1, "memory_size": 40}
SHORT = {"evaluate": "final", "probe.max_epochs": 2, "device": "cpu"}


def test_the_estimates_of_the_documentation_are_those_of_the_measurements() -> None:
    script = runpy.run_path(str(ROOT / "benchmarks" / "imagenet.py"))
    measured = ROOT / "benchmarks" / "measured"
    found, large = (json.loads((measured / name).read_text()) for name in ("imagenet.json", "large.json"))
    seconds = large["resident_seconds"] / (large["images"] / 10 * 3)  # b_s 10, n_p 3
    estimated = script["estimate"](found["measured"], round(seconds, 4))
    assert estimated == pytest.approx(found["estimated"])
    page = (ROOT / "docs" / "scaling.md").read_text().partition("### ImageNet100, estimated")[2]
    rows = dict(line.strip("| ").split(" | ", 1) for line in page.splitlines() if line.startswith("| "))
    assert rows["decoded images on disk"].startswith(f"{estimated['cache_gb']:.0f} GB | 150,528 bytes")
    assert rows["decoding, once"].startswith(f"{estimated['decoding_minutes_here']:.0f} min on two cores")
    assert f"{found['measured']['decoded_per_second']:.0f} images of 500×375 a second" in rows["decoding, once"]
    assert rows["images on the device"].startswith(f"{estimated['device_gb_for_resident_images']:.0f} GB")
    assert rows["replay memory"].startswith(f"{estimated['replay_memory_gb']:.1f} GB")
    assert rows["activations of a step"].startswith(f"{estimated['activations_gb']:.1f} GB in bf16")
    assert rows["steps of a run"].startswith(f"{estimated['steps']:,} ")
    assert rows["training of ER, one run"].startswith(
        f"{estimated['training_minutes']:.0f} min | {1000 * seconds:.1f} ms a step"
    )


@pytest.mark.slow
def test_a_table_of_imagenet100_is_run_from_class_folders_to_its_numbers(ocssl: Ocssl, tmp_path: Path) -> None:
    script, place = ROOT / "benchmarks" / "imagenet.py", tmp_path / "data" / "imagenet"
    subprocess.run([sys.executable, script, "--stand-in", place, "--train", "12", "--test", "2"], check=True)
    assert len(list((place / "train").iterdir())) == 100
    changes = [word for name, value in (SMALL | SHORT).items() for word in ("--set", f"{name}={value}")]
    command = ("paper", "run", "high-simsiam", "--dataset", "imagenet100", "--data-root", str(tmp_path / "data"))
    code, said = ocssl(*command, "--rows", "cla-e", "--seeds", "0", "-q", *changes)
    assert code == 0, said
    assert "1 of 1 runs are done, 0 failed just now" in said
    (file,) = read_results(tmp_path / "results").files
    result = file.result
    assert (result.dataset, result.config["image_size"], result.config["lr"]) == ("imagenet100", 224, 0.1)
    assert (len(result.experiences), {len(classes) for classes in result.experiences}) == (20, {5})
    assert result.samples == 20 * (5 * 11 // 10) * 10  # a twelfth of each class is held out, remainders are dropped
    code, said = ocssl(*command, "--rows", "cla-e", "--seeds", "0", "--dry-run")
    assert "cifar100" not in said
    assert "to run: imagenet100-simsiam-cla-e-fifo-high-clean-seed0" in said
