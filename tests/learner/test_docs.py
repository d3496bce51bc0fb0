"""The code that docs/extending.md prints works as printed."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ocssl
from ocssl import data
from ocssl.checks import check_strategy, small_learner, small_stream
from ocssl.config import REGISTRIES, settings
from ocssl.data import catalog, streams
from ocssl.errors import ConfigError
from ocssl.runs.config import parse

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
TINY = (
    " --set image_size=8 --set samples_per_class=10 --set experiences=2 --set backbone=convnet-w4 --set hidden_dim=8"
    " --set output_dim=8 --set stream_batch=4 --set batch=8 --set passes=1 --set memory_size=12"
    " --set probe.max_epochs=1 --set device=cpu"
)


@pytest.fixture(scope="module")
def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)


@pytest.fixture(scope="module")
def folder(blocks, tmp_path_factory) -> Path:
    """A folder with recall.py as printed."""
    folder = tmp_path_factory.mktemp("extending")
    (folder / "recall.py").write_text(blocks[0])
    return folder


@pytest.fixture(scope="module")
def printed(blocks, folder) -> Iterator[None]:
    """All blocks have been run one after another, as a reader would; what they register is removed afterwards."""
    registries: list[Any] = [*REGISTRIES.values(), streams.registry, catalog.registry]
    before = [dict(registry._entries) for registry in registries]
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        for block in blocks[1:]:
            exec(compile(block, str(PAGE), "exec"), names)
    yield
    sys.modules.pop("recall", None)
    for registry, entries in zip(registries, before, strict=True):
        registry._entries.clear()
        registry._entries.update(entries)


def test_the_strategy_has_at_most_thirty_lines(blocks) -> None:
    assert len(blocks[0].splitlines()) <= 30


@pytest.mark.usefixtures("printed")
def test_every_block_runs_and_the_strategy_trains_with_its_setting() -> None:
    learner = small_learner("recall", method="simclr", memory="fifo", strength=1.0)
    assert "recall" in learner.partial_fit(small_stream(40)).losses
    assert settings()["strength"].readers == "strategies recall"
    with pytest.raises(ConfigError, match="strategy 'er' does not read strength, a setting of strategies recall"):
        ocssl.Learner(strategy="er", strength=1.0)


@pytest.mark.usefixtures("printed")
def test_the_alignment_strategy_passes_its_check() -> None:
    check_strategy("cla-slow")


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    "given",
    [
        {"method": "ressl", "slots": 50},
        {"memory": "random"},
        {"augmentation": "simclr-noise", "noise": 0.5},
        {"backbone": "patches", "patch": 2},
    ],
    ids=lambda given: next(iter(given)),
)
def test_every_printed_part_passes_the_check_of_a_strategy(given) -> None:
    """The page itself checks its optimisers so."""
    check_strategy("er", **given)


@pytest.mark.usefixtures("printed")
def test_the_stream_takes_the_classes_in_order() -> None:
    labels = torch.arange(5).repeat(8)
    config = parse({"stream": "by-class", "first_class": 3})
    stream = streams.registry.get("by-class")(config.stream_options()).build(labels, stream_batch=4)
    assert [int(labels[batch][0]) for batch in stream] == [3, 3, 4, 4, 0, 0, 1, 1, 2, 2]


@pytest.mark.usefixtures("printed")
def test_the_data_set_is_drawn_the_same_each_time() -> None:
    train, test = (data.load("gratings", split=split, image_size=8) for split in ("train", "test"))
    assert (len(train), len(test), train.image_size) == (1000, 200, 8)
    assert train.digest() == data.load("gratings", image_size=8).digest()
    assert train.labels.unique().tolist() == [*range(10)]


def test_the_commands_know_the_strategy_and_its_setting(folder) -> None:
    listing, run = re.findall(r"^ocssl .*--plugin recall.*", PAGE.read_text(), flags=re.M)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": programs, "OCSSL_CACHE": str(folder)}
    for command, expected in ((listing, "strength"), (run + TINY, "Final")):
        done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
    assert [place.name.split("-")[2] for place in (folder / "runs").iterdir()] == ["recall"]


def test_every_entry_point_group_is_named() -> None:
    groups = {registry.group for registry in (*REGISTRIES.values(), streams.registry, catalog.registry)}
    _, named = PAGE.read_text().split("The groups are")
    assert groups == set(re.findall(r"`(ocssl\.[a-z]+)`", named))


@pytest.mark.usefixtures("printed")
def test_the_printed_schedule_decides_the_learning_rate_of_each_step() -> None:
    schedule = small_learner("er", optimizer="sgd-restarts", lr=0.2, period=4).train_state.optimizer.schedule
    expected = [0.1 * (1 + math.cos(math.pi * step / 4)) for step in (0, 1, 2, 3, 0)]
    assert [schedule.next().item() for _ in range(5)] == pytest.approx(expected)
