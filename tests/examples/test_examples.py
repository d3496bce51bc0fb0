"""Every example runs as its first lines say, on less data."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
from PIL import Image

from ocssl.data.shapes import draw
from ocssl.nn import ResNet18
from ocssl.runs.config import read_settings
from ocssl.runs.presets import resolve

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_neighbours_of_a_frame_begin_with_itself(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    frames = tmp_path / "frames"
    frames.mkdir()
    for number, image in enumerate(draw(60, size=16, seed=0)[0]):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(frames / f"{number:03d}.png")
    out = run("neighbours.py", frames, "--query", frames / "007.png", "--count", 3, "--images-per-second", 5000)
    lines = [line for line in out.splitlines() if re.match(r"-?\d\.\d{3}  ", line)]
    assert len(lines) == 3
    assert lines[0] == f"1.000  {frames}/007.png"


def test_a_drifting_video_becomes_a_page_with_two_strips(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    out = run("drifting_video.py", "--frames", 90, "--size", 8, "--backbone", "convnet-w8", "-o", "page.html")
    assert out.startswith("90 frames, CBP ")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<table>") == 2
    assert page.count("<img ") == 2 * 6 * (1 + 8)


def test_few_labels_on_learned_features(run) -> None:  # type: ignore[no-untyped-def]
    out = run("few_labels.py", "--images", 150, "--backbone", "convnet-w8", "--labels-per-class", 2)
    assert re.findall(r"^(pixels|untrained encoder|learned encoder) +\d+\.\d %$", out, re.MULTILINE) == [
        "pixels",
        "untrained encoder",
        "learned encoder",
    ]


def test_a_strategy_of_ones_own_runs_beside_cla_at_the_same_budget(run) -> None:  # type: ignore[no-untyped-def]
    out = run("own_strategy.py", "--images", 150, "--experiences", 3, "--backbone", "convnet-w8")
    found = re.findall(r"^(\S+) +CBP ([\d,]+) +k-NN [\d.]+ %$", out, re.MULTILINE)
    assert [name for name, _ in found] == ["er", "cla-e", "spread-replay"]
    assert len({budget for _, budget in found}) == 1


def test_cla_on_one_page_measures_the_features(run) -> None:  # type: ignore[no-untyped-def]
    out = run("cla_on_one_page.py", "--images", 150)
    assert re.findall(r"^(untrained|CLA-E) +1-NN [\d.]+ %$", out, re.MULTILINE) == ["untrained", "CLA-E"]


def test_the_settings_of_the_small_encoder_are_valid_and_its_file_has_6_megabytes() -> None:
    config = resolve(read_settings(EXAMPLES / "small_encoder.yaml"))
    backbone = ResNet18(ResNet18.Options(width=config.to_dict()["width"]))
    assert 6.2e6 < 4 * sum(weights.numel() for weights in backbone.state_dict().values()) < 6.4e6


def test_every_example_is_tested() -> None:
    text = Path(__file__).read_text()
    examples = [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.yaml")]
    assert all(f'"{example.name}"' in text for example in examples)
