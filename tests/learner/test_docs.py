"""The code that the pages on parts of one's own print works as printed."""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ocssl
from helpers.command import SHORT, Command, as_options
from helpers.pages import EXTENDING, PAGES, printed_blocks
from ocssl import data
from ocssl.checks import check_strategy, small_learner, small_stream
from ocssl.config import REGISTRIES, settings
from ocssl.data import catalog, streams
from ocssl.errors import ConfigError
from ocssl.runs.config import parse

TINY = as_options(SHORT | {"probe": {"max_epochs": 1}, "references": False})


RECALL, *OTHERS = printed_blocks(EXTENDING)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with recall.py as printed."""
    folder = tmp_path_factory.mktemp("extending")
    (folder / "recall.py").write_text(RECALL)
    return folder


@pytest.fixture(scope="module")
def printed(folder) -> Iterator[None]:
    """All blocks of each page have been run, as a reader would; what they register is removed afterwards."""
    registries: list[Any] = [*REGISTRIES.values(), streams.registry, catalog.registry]
    before = [dict(registry._entries) for registry in registries]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        for page in PAGES:
            names: dict[str, Any] = {} if page == EXTENDING else {"ocssl": ocssl}  # as the page says
            for block in OTHERS if page == EXTENDING else printed_blocks(page):
                exec(compile(block, str(page), "exec"), names)
    yield
    sys.modules.pop("recall", None)
    for registry, entries in zip(registries, before, strict=True):
        registry._entries.clear()
        registry._entries.update(entries)


def test_the_strategy_has_at_most_thirty_lines() -> None:
    assert len(RECALL.splitlines()) <= 30


@pytest.mark.usefixtures("printed")
def test_every_block_runs_and_the_strategy_trains_with_its_setting() -> None:
    learner = small_learner("recall", method="simclr", memory="fifo", strength=1.0)
    assert "recall" in learner.partial_fit(small_stream(40)).losses
    assert settings()["strength"].readers == "strategies recall"
    with pytest.raises(ConfigError, match="strategy 'er' does not read strength, a setting of strategies recall"):
        ocssl.Learner(strategy="er", strength=1.0)


@pytest.mark.usefixtures("printed")
def test_printed_parts_that_the_page_does_not_train_pass_the_check_together() -> None:
    """The page itself trains with the others, in the same check."""
    noise, patches = {"augmentation": "simclr-noise", "noise": 0.5}, {"backbone": "patches", "patch": 2}
    check_strategy("cla-slow", memory="random", **noise, **patches)


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


def test_the_commands_know_the_strategy_and_its_setting(folder, server) -> None:
    command = Command(server, folder)
    listing, run = re.findall(r"^ocssl (.*--plugin recall.*)", EXTENDING.read_text(), flags=re.M)
    for words, expected in ((shlex.split(listing), "strength"), (shlex.split(run) + TINY, "Final")):
        code, out, err = command(*words)
        assert code == 0, err
        assert expected in out
    assert [place.name.split("-")[2] for place in (folder / "runs").iterdir()] == ["recall"]


def test_every_entry_point_group_is_named() -> None:
    groups = {registry.group for registry in (*REGISTRIES.values(), streams.registry, catalog.registry)}
    _, named = EXTENDING.read_text().split("The groups are")
    assert groups == set(re.findall(r"`(ocssl\.[a-z]+)`", named))


@pytest.mark.usefixtures("printed")
def test_the_printed_schedule_decides_the_learning_rate_of_each_step() -> None:
    schedule = small_learner("er", optimizer="sgd-restarts", lr=0.2, period=4).train_state.optimizer.schedule
    expected = [0.1 * (1 + math.cos(math.pi * step / 4)) for step in (0, 1, 2, 3, 0)]
    assert [schedule.next().item() for _ in range(5)] == pytest.approx(expected)
