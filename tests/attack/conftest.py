"""A folder with one of everything, copied for each test."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from subprocess import Popen

import numpy as np
import pytest
from attacking import LEARN, RUN, SETTINGS, Attack
from hostile import Hostile, Make
from PIL import Image

from helpers.command import Command
from helpers.results import CLA_E


@pytest.fixture(scope="session")
def template(server: Popen[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images, the state of a learner, a finished run, an unfinished one, a sweep and a result."""
    folder = tmp_path_factory.mktemp("template")
    ocssl = Command(server, tmp_path_factory.mktemp("commands"))
    draw = np.random.default_rng(0)
    for place, count in (("imgs", 20), ("set/train/a", 4), ("set/train/b", 4), ("set/test/a", 4), ("set/test/b", 4)):
        (folder / place).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(draw.integers(0, 256, (16, 16, 3), np.uint8)).save(folder / place / f"{number:03d}.png")
    (folder / "plan.yaml").write_text(json.dumps({"settings": SETTINGS, "space": {"lr": [0.05]}}))
    for words in (
        ("learn", folder / "imgs", "--state", folder / "state", *LEARN),
        ("run", *RUN, "--output", folder / "run"),
        ("export", folder / "state", "--to", "safetensors", "-o", folder / "enc.safetensors"),
        ("sweep", folder / "plan.yaml", "--output", folder / "swept", "-q"),
    ):
        code, _, err = ocssl(*words)
        assert code == 0, err
    shutil.copytree(folder / "run", folder / "open")
    (folder / "open" / "result.json").unlink()
    (folder / "results").mkdir()
    shutil.copy(CLA_E, folder / "results" / "r0.json")
    return folder


@pytest.fixture(scope="session")
def make(server: Popen[str]) -> Make:
    """The command line in a folder."""
    return lambda folder: Hostile(server, folder)


@pytest.fixture(scope="session")
def state(template: Path) -> Path:
    """A learner that learned from twenty images."""
    return template / "state"


@pytest.fixture
def attack(server: Popen[str], template: Path, tmp_path: Path) -> Attack:
    """A copy of the template, and the command line in it."""
    folder = tmp_path / "here"
    shutil.copytree(template, folder, symlinks=True)
    return Attack(server, folder)
