"""The parts of live learning by themselves: index of seen images, paths, presets, drift."""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from frames import TINY, frame, png, seen_images
from PIL import Image

from ocssl import Learner
from ocssl.config import unless_chosen
from ocssl.data.reader import Item
from ocssl.errors import CheckpointError, ConfigError, DataError
from ocssl.imaging import BadImage, file_stamp
from ocssl.live import autotune as tuning
from ocssl.live import learning, sources
from ocssl.live.autotune import autotune, image_size_for
from ocssl.live.monitor import Monitor, progress_line
from ocssl.live.seen import SeenIndex
from ocssl.live.sources import FolderStream, ImageStream, PathStream


def test_an_index_forgets_what_came_after_the_save_it_goes_on_from(tmp_path: Path) -> None:
    with SeenIndex(tmp_path / "seen") as index:
        for name in "abc":
            index.add("cam", name)
        index.commit()
    with SeenIndex(tmp_path / "seen", size=2) as index:
        assert [index.has("cam", name, str) for name in "abc"] == [True, True, False]
        assert index.size == 2


def test_an_index_that_was_not_committed_holds_its_lines_for_now_only(tmp_path: Path) -> None:
    with SeenIndex(tmp_path / "seen") as index:
        index.add("cam", "a")
        assert index.has("cam", "a", pytest.fail)  # the file of an image that was used is not asked for
    with SeenIndex(tmp_path / "seen", size=1) as index:
        assert not index.has("cam", "a", str)


def test_an_index_that_cannot_be_written_says_so_and_keeps_its_lines(tmp_path: Path) -> None:
    with SeenIndex(tmp_path / "seen") as index:
        index._file.execute("PRAGMA max_page_count = 4")
        for number in range(2000):
            index.add("cam", f"{number:06d}")
        with pytest.raises(CheckpointError, match="cannot be read or written: database or disk is full"):
            index.commit()
        assert index.has("cam", "000000", str)
        index._file.execute("PRAGMA max_page_count = 100000")
        index.commit()
        assert len(seen_images(index, "cam")) == 2000


def test_a_damaged_index_is_named(tmp_path: Path) -> None:
    (tmp_path / "seen").write_bytes(b"not a database" * 100)
    with pytest.raises(CheckpointError, match=r"the index of images '.*' cannot be read"):
        SeenIndex(tmp_path / "seen")


def test_an_index_takes_file_names_that_are_not_utf8_and_gives_them_back(tmp_path: Path) -> None:
    source, name, other = (os.fsdecode(text) for text in (b"folder:/d\xe9p\xf4t", b"caf\xe9.png", b"caf\xe8.png"))
    with SeenIndex(tmp_path / "seen") as index:
        index.add(source, name)
        index.add(source, other, stamp="10 bytes", problem="it is broken")
        index.add(source, "caf\u00e9.png")
        index.commit()
    with SeenIndex(tmp_path / "seen", size=3) as index:
        assert seen_images(index, source) == [(name, None), (other, "it is broken"), ("caf\u00e9.png", None)]
        assert [index.has(source, each, str) for each in (name, other, "caf\\udce9.png")] == [True, False, False]


def taken(paths: PathStream) -> list[str]:
    """All that a list of paths gives before it is exhausted."""
    names: list[str] = []
    while not paths.exhausted:
        names += [item.name for item in paths.take(2)]
    return names


def test_a_path_that_is_no_valid_text_reaches_its_file(tmp_path: Path) -> None:
    lines = io.TextIOWrapper(io.BytesIO(b"one.png\ncaf\xe9.png\n"), encoding="utf-8", errors="strict")
    with SeenIndex(tmp_path / "seen") as index:
        assert [os.fsencode(name) for name in taken(PathStream(lines, index))] == [b"one.png", b"caf\xe9.png"]


def test_a_list_of_paths_that_breaks_off_gives_what_came_before_and_then_says_why(tmp_path: Path) -> None:
    def broken() -> Iterator[str]:
        yield "one.png\n"
        raise OSError("the line went dead")

    with SeenIndex(tmp_path / "seen") as index:
        paths = PathStream(broken(), index)
        assert [item.name for item in paths.take(2)] == ["one.png"]
        with pytest.raises(DataError, match="cannot be read on: the line went dead"):
            taken(paths)


def test_a_list_of_paths_with_zero_bytes_in_it_names_no_files(tmp_path: Path) -> None:
    with SeenIndex(tmp_path / "seen") as index:
        paths = PathStream(["one.png\0two.png\n", "three.png\n"], index)
        assert taken(paths) == ["one.png\0two.png", "three.png"]
    assert image_size_for(Path("one.png\0two.png"), "cpu") is None


def test_a_path_from_the_working_folder_is_another_one_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []
    with SeenIndex(tmp_path / "seen") as index:
        for folder in ("monday", "tuesday", "monday"):
            (tmp_path / folder).mkdir(exist_ok=True)
            monkeypatch.chdir(tmp_path / folder)
            paths = PathStream(["one.png\n", "./one.png\n", f"{tmp_path}/{folder}/one.png\n"], index)
            for item in paths.take(4):
                given.append((item.name, item.picture))
                paths.ack(item)
    assert [picture for _, picture in given] == [tmp_path / day / "one.png" for day in ("monday", "tuesday")]


def test_a_listed_path_that_is_taken_again_leaves_no_negative_number_of_paths(tmp_path: Path) -> None:
    path = tmp_path / "one.png"
    path.write_bytes(b"")
    with SeenIndex(tmp_path / "seen") as index:
        paths = PathStream([f"{path}\n"] * 2, index)
        (item,) = paths.take(1)
        paths.ack(item, stamp="0 0", problem="it is empty")
        path.write_bytes(png(0))  # so its second line is new
        assert [item.picture for item in paths.take(1)] == [path]
        assert paths.remaining == 0


def test_a_picture_that_cannot_be_used_has_no_size(tmp_path: Path) -> None:
    (tmp_path / "half.png").write_bytes(png(0)[:60])
    for picture in (tmp_path / "gone.png", tmp_path / "half.png", b"", BadImage("it is broken")):
        assert image_size_for(picture, "cpu") is None
    for picture in (png(0), Image.fromarray(frame(0)), frame(0), frame(0).astype(np.uint16) * 257, frame(0) / 255):
        assert image_size_for(picture, "cpu") == 8


def test_a_followed_folder_gives_no_file_twice_while_it_is_scanned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "SCAN_EVERY", 0.0)
    monkeypatch.setattr(sources, "SCAN_SHARE", 0.0)
    for number in range(3):
        (tmp_path / f"{number}.png").touch()
    with SeenIndex(tmp_path / "seen") as index:
        stream = FolderStream(tmp_path, "folder", index, follow=True)
        first = stream.take(10)
        assert [item.name for item in first] == ["0.png", "1.png", "2.png"]
        (tmp_path / "3.png").touch()
        assert [item.name for item in stream.take(10)] == ["3.png"]
        for item in first:
            stream.ack(item, stamp=file_stamp(item.picture), problem="it is empty" if item.name == "1.png" else None)
        (tmp_path / "1.png").write_text("changed")
        assert [item.name for item in stream.take(10)] == ["1.png"]


def test_a_followed_folder_that_vanishes_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setattr(sources, "SCAN_EVERY", 0.0)
    monkeypatch.setattr(sources, "SCAN_SHARE", 0.0)
    frames, away = tmp_path / "frames", tmp_path / "away"
    frames.mkdir()
    (frames / "0.png").touch()
    with SeenIndex(tmp_path / "seen") as index:
        stream = FolderStream(frames, "folder", index, follow=True)
        for item in stream.take(10):
            stream.ack(item)
        frames.rename(away)
        assert [stream.take(10) for _ in range(3)] == [[], [], []]
        assert not stream.exhausted
        assert warnings == [f"there is no folder {frames}; learning waits until it is there again"]
        away.rename(frames)
        (frames / "1.png").touch()
        assert [item.name for item in stream.take(10)] == ["1.png"]


class Counting(ImageStream):
    """A hundred thousand pictures that come again in every session."""

    key = "numbers"

    def __init__(self) -> None:
        self.left, self.largest = 100_000, 0

    def take(self, count: int) -> list[Item]:
        self.largest = max(self.largest, count)
        count = min(count, self.left)
        self.left -= count
        return [Item("one", b"")] * count

    def ack(self, item: Item, *, stamp: str = "", problem: str | None = None) -> None: ...


def test_what_is_passed_over_is_not_all_held_in_memory() -> None:
    stream = Counting()
    stream.seek(70_001)
    assert (stream.left, stream.largest < 1000) == (29_999, True)


def chosen(monkeypatch: pytest.MonkeyPatch, rates: list[float], **given: object) -> tuple[dict[str, object], float]:
    measured = iter(rates)
    monkeypatch.setattr(tuning, "measure", lambda settings, at_least, known: next(measured))
    return autotune(20, given)


def test_the_richest_settings_that_keep_up_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, rate = chosen(monkeypatch, [400, 200, 60, 50, 10], image_size=32)
    assert settings == {**tuning.PRESETS[3][1], "batch": 30, "image_size": 32}
    assert rate == 50


def test_a_machine_that_is_too_slow_gets_the_cheapest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, [3.0]) == ({**tuning.PRESETS[0][1], "batch": 30}, 3.0)


def test_presets_that_the_given_settings_do_not_fit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow_only(settings: dict[str, object], at_least: float, known: object) -> float:
        if settings["backbone"] != "convnet-w8":
            raise ConfigError("the width is given twice")
        return 99.0

    monkeypatch.setattr(tuning, "measure", narrow_only)
    assert autotune(20, {}) == ({**tuning.PRESETS[0][1], "batch": 30}, 99.0)
    monkeypatch.setattr(tuning, "PRESETS", tuning.PRESETS[1:])
    with pytest.raises(ConfigError, match="the width is given twice"):
        autotune(20, {})


@pytest.mark.parametrize(("given", "backbone"), [({"stem": "small"}, "resnet18-w16"), ({"width": 4}, "convnet")])
def test_a_setting_of_some_backbones_chooses_among_them(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, object], backbone: str
) -> None:
    presets = [(4, {**preset, "hidden_dim": 8, "output_dim": 8}) for _, preset in tuning.PRESETS[:5]]
    monkeypatch.setattr(tuning, "PRESETS", presets)
    settings, _ = autotune(1e9, {**given, "image_size": 8, "device": "cpu"})  # the cheapest that fits
    assert settings["backbone"] == backbone


def test_what_is_given_is_kept_and_nothing_is_measured_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, _ = chosen(monkeypatch, [99, 99, 99], backbone="convnet", hidden_dim=8, output_dim=8)
    given = {"backbone": "convnet", "hidden_dim": 8, "output_dim": 8}
    assert settings == {**given, "batch": 30, "passes": 10}


def test_a_choice_of_parts_or_a_setting_that_only_other_parts_read_leaves_the_recipe_out() -> None:
    for given in ({"strategy": "cla-r"}, {"optimizer": "sgd"}, {"omega": 0.1}, {"weights": "some", "tau": 0.9}):
        assert unless_chosen(tuning.RECIPE, given) == {}
    assert unless_chosen({"strategy": "adapt"}, {"weights": "some", "omega": 0.1}) == {"strategy": "adapt"}
    for given in ({}, {"lr": 0.1, "views": 4}, {"backbone": "resnet18"}):
        assert unless_chosen(tuning.RECIPE, given) == tuning.RECIPE


def test_a_step_replays_no_more_than_the_users_memory_can_give(monkeypatch: pytest.MonkeyPatch) -> None:
    for strategy in ("er", "minred"):
        settings, _ = chosen(monkeypatch, [99] * 8, strategy=strategy, memory_size=100)
        small = {"backbone": "convnet-w8", "image_size": 8, "hidden_dim": 8, "output_dim": 8, "device": "cpu"}
        assert Learner(**{**settings, **small}).memory_size == 100


def test_settings_that_no_learner_can_have_are_refused_before_anything_is_measured() -> None:
    with pytest.raises(ConfigError, match="stream_batch must be a whole number from 1 to 65,536, not 'many'"):
        autotune(20, {"stream_batch": "many"})
    with pytest.raises(ConfigError, match=r"memory_size \(10\) is too small for strategy 'lump'"):
        autotune(20, {"strategy": "lump", "memory_size": 10, "image_size": 8, "device": "cpu"})


def test_measuring_teaches_a_backbone_of_the_users_own_nothing() -> None:
    own = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4), torch.nn.BatchNorm1d(4))
    before = copy.deepcopy(own.state_dict())
    tuning.measure({**TINY, "backbone": own})
    assert all(torch.equal(before[name], value) for name, value in own.state_dict().items())


def test_measuring_gives_a_rate_and_gives_up_early_on_what_is_too_slow() -> None:
    settings = {**TINY, "memory": "fifo"}
    assert 0 < tuning.measure(settings) < 1e6
    assert tuning.measure(settings, at_least=1e9) < 1e9


def test_more_passes_are_reckoned_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[int, int]] = []

    def half_a_second(learner: Learner) -> float:
        measured.append((learner.passes, learner.early_images))
        return 0.5

    monkeypatch.setattr(tuning, "_seconds", half_a_second)
    assert tuning.measure({**TINY, "passes": 1}) == 8.0
    assert tuning.measure({**TINY, "passes": 10, "early_passes": 2, "early_images": 100}) == 0.8
    assert {*measured} == {(1, 0)}


def test_a_long_step_is_measured_once_and_only_with_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([90.0, 1.0, 1.0, 1.0, 80.0, 2.0, 2.0])  # three minibatches fill the memory of nine images
    monkeypatch.setattr(tuning, "_seconds", lambda learner: next(seconds))
    assert tuning.measure({**TINY}) == 4 / 80


@pytest.mark.parametrize("seconds", [[0.9, 0.2, 0.8], [*[0.04] * 7, *[0.02] * 4, *[0.04] * 9]])
def test_other_work_that_slows_some_steps_down_does_not_count(
    monkeypatch: pytest.MonkeyPatch, seconds: list[float]
) -> None:
    steps = iter([1.0, 0.9, 0.9, 0.9, *seconds])  # the first, and three that fill the memory
    monkeypatch.setattr(tuning, "_seconds", lambda learner: next(steps))
    assert tuning.measure({**TINY}) == 4 / min(seconds)


def test_a_slow_step_without_replay_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([3.0, 2.0])  # the first is not an accident, the second tells
    monkeypatch.setattr(tuning, "_seconds", lambda learner: next(seconds))
    assert tuning.measure({**TINY, "stream_batch": 4, "batch": 8}) == 4 / (2.0 * 8 / 4)


def test_settings_that_differ_in_their_passes_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[str, int]] = []

    def noted(learner: Learner) -> float:
        measured.append((learner.backbone, learner.width))
        return 0.01

    monkeypatch.setattr(tuning, "_seconds", noted)
    given = {"image_size": 8, "stream_batch": 4, "hidden_dim": 8, "output_dim": 8, "device": "cpu"}
    settings, rate = autotune(1.0, given)
    assert (settings["backbone"], settings["passes"]) == ("resnet18", 10)
    assert [*dict.fromkeys(measured)] == [("convnet", 8), ("convnet", 32), ("resnet18", 16), ("resnet18", 64)]
    assert len({measured.count(name) for name in measured}) == 1
    assert rate == pytest.approx(4 / 0.01 / 10)


def test_steps_of_the_heads_alone_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    whole: list[int] = []
    monkeypatch.setattr(tuning, "_seconds", lambda learner: whole.append(learner.heads_first) or 1.0)
    tuning.measure({**TINY, "strategy": "adapt", "heads_first": 60})
    assert len(whole) == whole[0] + tuning.MEASURED


@pytest.mark.parametrize("memory", [{"memory": "anchored", "first": 0.8}, {"memory": "hybrid", "recent": 0.2}])
def test_a_memory_is_refused_for_its_own_size_and_not_for_that_of_measuring(memory: dict[str, object]) -> None:
    assert tuning.measure({**TINY, **memory}) > 0
    share = next(name for name in memory if name != "memory")
    with pytest.raises(ConfigError, match=rf"{share} \(.*\) of memory_size 15 must leave room for 4"):
        tuning.measure({**TINY, **memory, "memory_size": 15})


@pytest.fixture
def images() -> torch.Tensor:
    pixels = np.random.default_rng(0).integers(0, 256, (80, 3, 8, 8), dtype=np.uint8)
    return torch.from_numpy(pixels)


def test_drift_is_none_before_there_is_anything_to_compare_then_zero_then_grows(images: torch.Tensor) -> None:
    learner = Learner(**TINY)
    monitor = Monitor(learner.seen)
    monitor.add(learner, images[:63])
    assert monitor.sample(learner, refused=0)[0]["drift"] is None
    monitor.add(learner, images[63:64])
    assert monitor.sample(learner, refused=0)[0]["drift"] == pytest.approx(0, abs=1e-6)
    before = learner.transform(images[:64])
    learner.partial_fit(images)
    after = learner.transform(images[:64])
    cosine = (before * after).sum(1) / np.linalg.norm(before, axis=1) / np.linalg.norm(after, axis=1)
    assert monitor.sample(learner, refused=0)[0]["drift"] == pytest.approx(1 - cosine.mean(), abs=1e-5)


def test_after_an_hour_drift_is_counted_from_newer_images(
    images: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(learning.time, "monotonic", lambda: clock[0])
    learner = Learner(**TINY)
    monitor = Monitor(learner.seen)
    monitor.add(learner, images[:64])
    learner.partial_fit(images)
    clock[0] = 1800.0
    numbers, reason = monitor.sample(learner, refused=2)
    assert (numbers["drift"] > 0, reason) == (True, None)
    assert [numbers[name] for name in ("drift_seconds", "seen", "rate", "refused")] == [1800, 80, 80 / 1800, 2]
    assert "drift" in progress_line(numbers)
    assert "in 30:00" in progress_line(numbers)
    clock[0] = 3700.0
    monitor.add(learner, images[10:74])
    assert monitor.sample(learner, refused=0)[0]["drift"] == pytest.approx(0, abs=1e-6)
