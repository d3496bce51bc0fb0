"""Settings are chosen on held-out training images; the test images stay closed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from command import TINY
from PIL import Image

from ocssl.errors import DataError
from ocssl.runs.launch import start
from ocssl.runs.material import load_splits
from ocssl.runs.presets import complete


@pytest.fixture
def untested(tmp_path: Path) -> dict[str, object]:
    """Settings of a run on a folder of images that has no test split at all."""
    chance = np.random.default_rng(0)
    for label in range(4):
        place = tmp_path / "images" / "train" / str(label)
        place.mkdir(parents=True)
        for number in range(10):
            pixels = chance.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / f"{number}.png")
    return TINY | {"dataset": f"folder:{tmp_path / 'images'}", "experiences": 2, "samples_per_class": None}


def test_a_run_that_measures_on_validation_never_opens_the_test_images(
    untested: dict[str, object], tmp_path: Path
) -> None:
    config = complete(untested | {"measure_on": "validation"})
    result = start(config, tmp_path / "run")
    assert result.final is not None
    assert result.config["measure_on"] == "validation"
    with pytest.raises(DataError, match="test"):
        start(complete(untested), tmp_path / "other")


def test_it_is_scored_on_the_held_out_images_which_the_stream_does_not_hold(untested: dict[str, object]) -> None:
    material = load_splits(complete(untested | {"measure_on": "validation"}), torch.device("cpu"))
    assert len(material.train) == 36
    assert material.test.indices.tolist() == material.validation.indices.tolist()
    assert not set(material.test.indices.tolist()) & set(material.train.indices.tolist())
