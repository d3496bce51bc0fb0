"""Probes of a finished run's encoder, on its own images and on others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy
import torch
from PIL import Image

from helpers.command import SHORT, Command, as_options
from ocssl.evaluation.quality import colour_histogram
from ocssl.results import read_result
from ocssl.runs.data import load_splits
from ocssl.runs.evaluate import _features_file, evaluate_on
from ocssl.runs.folder import RunFolder


def test_probe_notices_that_the_images_have_changed(ocssl: Command, tmp_path: Path, runs: list[Path]) -> None:
    for split, count in (("train", 20), ("test", 10)):
        for label in range(2):
            (tmp_path / "set" / split / str(label)).mkdir(parents=True)
            for number in range(count):
                colour = (200 * label, 10 * number, 100)
                Image.new("RGB", (8, 8), colour).save(tmp_path / "set" / split / str(label) / f"{number}.png")
    measure = ("probe", runs[0], "--dataset", f"folder:{tmp_path / 'set'}", "-q")
    before = ocssl(*measure)[1]
    assert "linear 50.00 %" not in before
    assert ocssl(*measure)[1] == before
    for image in (tmp_path / "set").rglob("*.png"):
        Image.new("RGB", (8, 8), (77, 77, 77)).save(image)
    assert "linear 50.00 %" in ocssl(*measure)[1]


def test_probe_repeats_a_runs_final_number_and_keeps_the_features(ocssl: Command, runs: list[Path]) -> None:
    final = read_result(runs[0]).final
    for cached in (False, True):
        code, out, err = ocssl("probe", runs[0])
        assert code == 0, err
        assert f"shapes: linear {final:.2f} %" in out
        assert ("features" in err) == (not cached)  # extraction shows its progress
        assert json.loads((runs[0] / "probes" / "shapes.json").read_text())["features_cached"] == cached


def test_probe_keeps_numbers_of_several_crops_apart(ocssl: Command, runs: list[Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs[0], run, ignore=shutil.ignore_patterns("features", "probes"))
    for crops in (1, 10, 10):
        code, out, err = ocssl("probe", run, "--eval-crops", crops)
        assert code == 0, err
        assert ("10 crops" in out) == (crops == 10)
    assert len([*(run / "features").iterdir()]) == 2
    one, ten = (json.loads((run / "probes" / f"shapes{part}.json").read_text()) for part in ("", "-10-crops"))
    assert (one["crops"], ten["crops"], one["features_cached"], ten["features_cached"]) == (1, 10, False, True)


def test_probe_keeps_numbers_of_two_folders_apart(ocssl: Command, runs: list[Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs[0], run, ignore=shutil.ignore_patterns("features", "probes"))
    for name in ("a/b", "a-b"):
        for split in ("train", "test"):
            for label in range(2):
                place = tmp_path / name / split / str(label)
                place.mkdir(parents=True)
                for number in range(10):
                    Image.new("RGB", (8, 8), (200 * label, 10 * number, 100)).save(place / f"{number}.png")
        assert ocssl("probe", run, "--dataset", f"folder:{tmp_path / name}", "-q")[0] == 0
    measured = {json.loads(file.read_text())["dataset"] for file in (run / "probes").iterdir()}
    assert measured == {f"folder:{tmp_path / name}" for name in ("a/b", "a-b")}


def test_probe_keeps_features_of_another_precision_apart(runs: list[Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs[0], run, ignore=shutil.ignore_patterns("features", "probes"))
    found = [evaluate_on(run, changes={"precision": name}).features_cached for name in ("bf16", "fp32", "bf16", "fp32")]
    assert found == [False, False, True, True]


def test_features_of_drawn_images_of_another_size_are_kept_apart(runs: list[Path]) -> None:
    """They come from no files, so that nothing but their pixels tells them apart."""
    folder = RunFolder(runs[0])
    configs = [folder.read_config().change(image_size=size) for size in (32, 24)]
    assert len({_features_file(folder, load_splits(config, torch.device("cpu")), config) for config in configs}) == 2


def test_features_of_a_gpu_are_not_those_of_a_cpu(runs: list[Path]) -> None:
    """A GPU keeps them in half precision, and computes them in bf16 by default."""
    folder = RunFolder(runs[0])
    config = folder.read_config()
    splits = load_splits(config, torch.device("cpu"))
    on_cpu = _features_file(folder, splits, config)
    splits.train.dataset.device = torch.device("cuda")
    assert _features_file(folder, splits, config) != on_cpu


def test_features_of_other_code_of_a_plugin_are_kept_apart(ocssl: Command) -> None:
    code = """from torch import nn
from ocssl.nn import register_backbone
from ocssl.options import Options


@register_backbone("signed")
class Signed(nn.Sequential):
    class Options(Options):
        pass

    def __init__(self, options, image_size):
        super().__init__(nn.Conv2d(3, 8, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, images):
        return super().forward(1 * images)
"""
    (ocssl.folder / "mynet.py").write_text(code)
    settings = SHORT | {"backbone": "signed", "strategy": "er", "evaluate": "final"}
    assert ocssl("run", "-q", "--plugin", "mynet", "-o", "run", *as_options(settings))[0] == 0
    cached = []
    for text in (code, code, code.replace("1 *", "-1 *")):
        (ocssl.folder / "mynet.py").write_text(text)
        assert ocssl("probe", "run", "--plugin", "mynet", "-q")[0] == 0
        cached.append(json.loads((ocssl.folder / "run" / "probes" / "shapes.json").read_text())["features_cached"])
    assert cached == [False, True, False]


def test_a_run_measured_with_several_crops_says_so(ocssl: Command, runs: list[Path]) -> None:
    settings = SHORT | {"strategy": "cla-e", "eval_crops": 10}
    code, out, err = ocssl("run", "-q", "-o", "crops", *as_options(settings))
    assert code == 0, err
    assert "10 crops" in out
    one, ten = read_result(runs[0]), read_result(ocssl.folder / "crops")
    assert one.key != ten.key
    assert (ten.crops, ten.label, ten.cbp_spent) == (10, "CLA-E, 10 crops", one.cbp_spent)
    code, out, err = ocssl("probe", ocssl.folder / "crops")  # measured as the run was
    assert f"linear {ten.final:.2f} %" in out, err


def test_probe_tells_its_numbers_where_it_cannot_keep_them(ocssl: Command, tmp_path: Path, runs: list[Path]) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs[0], run, ignore=shutil.ignore_patterns("features", "probes"))
    for folder in ("features", "probes"):
        (run / folder).touch()  # nothing can be written below a file, whoever tries
    code, out, err = ocssl("probe", run, "-q")
    assert (code, f"linear {read_result(run).final:.2f} %" in out) == (0, True), err
    features, record = err.splitlines()
    assert f"warning: cannot write '{run / 'features' / 'shapes-'}" in features
    assert f"warning: cannot write '{run / 'probes' / 'shapes.json'}'" in record


def test_probe_keeps_features_for_everybody_who_may_read_the_run(ocssl: Command, runs: list[Path]) -> None:
    assert ocssl("probe", runs[0], "-q")[0] == 0
    (kept,) = (runs[0] / "features").glob("shapes-*")
    assert kept.stat().st_mode == (runs[0] / "result.json").stat().st_mode


def test_probe_measures_on_another_data_set(ocssl: Command, runs: list[Path], cifar100: Path) -> None:
    code, out, err = ocssl("probe", runs[1], "--dataset", f"parquet:{cifar100 / 'cifar100'}", "--no-cache", "-q")
    assert code == 0, err
    assert "of 400 test images" in out
    assert not (runs[1] / "features").exists()
    found = json.loads(next((runs[1] / "probes").iterdir()).read_text())
    assert (found["train"], found["validation"], found["test"]) == (1100, 100, 400)


def test_a_colour_histogram_is_the_roots_of_shares_counted_one_by_one() -> None:
    images = torch.randint(256, (3, 3, 5, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for image, found in zip(images, colour_histogram(images, levels=8), strict=True):
        pixels = image.flatten(1).T.double().numpy()
        counts, _ = numpy.histogramdd(pixels, bins=8, range=[(0, 256)] * 3)
        assert numpy.allclose(found, numpy.sqrt(counts / 25).ravel())
