"""Learning from images as they come: starts, stops, and settings that follow from the machine."""

from __future__ import annotations

import copy
import errno
import signal
from pathlib import Path
from threading import Timer

import numpy as np
import pytest
import torch
from frames import (
    TINY,
    assert_alike,
    by_hand,
    frame,
    learned,
    own_network,
    png,
    quiet_learn,
    write_frames,
)

from ocssl import Learner, imaging, strategies
from ocssl.common.signals import Interrupted
from ocssl.data.dataset import IMAGENET_MEAN, IMAGENET_STD
from ocssl.errors import CheckpointError, ConfigError
from ocssl.live import autotune as tuning
from ocssl.live import learn
from ocssl.live.begin import IDLE


def test_a_folder_is_learned_from_by_name_as_if_its_images_were_given_by_hand(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(15))
    learner = quiet_learn(frames, tmp_path / "state")
    assert_alike(learner, by_hand(list(range(15))))
    assert learned(tmp_path / "state", f"folder:{frames.resolve()}") == [f"{n:05d}.png" for n in range(15)]


def test_a_source_may_be_a_path_and_what_is_none_is_refused(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    quiet_learn(str(frames), tmp_path / "state")
    assert learn(frames, tmp_path / "state", info=lambda line: None).seen == 4  # the same source
    for wrong in ([frame(0)], None):
        with pytest.raises(ConfigError, match=r"source must be a path, .*, not (list|NoneType); Learner\.partial_fit"):
            learn(wrong, tmp_path / "other", info=lambda line: None)
    assert not (tmp_path / "other").exists()


def test_a_second_time_only_new_files_are_learned_from(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(10, 18))
    assert quiet_learn(frames, tmp_path / "state").seen == 8
    assert quiet_learn(frames, tmp_path / "state").seen == 8
    write_frames(frames, range(4))  # their names come before all others
    assert_alike(quiet_learn(frames, tmp_path / "state"), by_hand([*range(10, 18), *range(4)]))


def test_a_second_start_says_how_far_the_first_one_came(tmp_path: Path) -> None:
    frames, state, lines = write_frames(tmp_path / "frames", range(6)), tmp_path / "state", []
    quiet_learn(frames, state)
    write_frames(frames, range(6, 9))
    quiet_learn(frames, state, info=lines.append, report_every=0)
    assert lines[0] == "going on after 6 images; 3 are left"
    assert "waiting for new images" not in lines  # the folder ends
    lines.clear()
    quiet_learn(frames, state, info=lines.append)
    assert lines[0] == "there is no new image; 9 were learned from before"


def test_a_stopped_learner_names_the_number_of_images_that_it_goes_on_after(tmp_path: Path) -> None:
    frames, state, lines = write_frames(tmp_path / "frames", range(6)), tmp_path / "state", []

    def stop_at_the_third_report(line: str) -> None:
        lines.append(line)
        if sum("CBP" in said for said in lines) == 3:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted, match="stopped and saved after 6 images; "):  # a minibatch of 4, and 2 that wait
        quiet_learn(frames, state, follow=True, report_every=0, info=stop_at_the_third_report)
    quiet_learn(frames, state, info=lines.append, follow=False)
    assert "there is no new image; 6 were learned from before" in lines


def test_a_learner_that_follows_a_folder_reports_nothing_while_nothing_comes(tmp_path: Path) -> None:
    frames, state, lines = write_frames(tmp_path / "frames", range(6)), tmp_path / "state", []
    idle: list[int] = []

    def add_frames() -> None:
        idle.append(len(lines))
        write_frames(frames, range(6, 10))

    def add_frames_or_stop(line: str) -> None:
        lines.append(line)
        if line == "waiting for new images":
            if idle:
                signal.raise_signal(signal.SIGTERM)
            else:
                idle.append(len(lines))
                Timer(5 * IDLE, add_frames).start()

    with pytest.raises(Interrupted, match="stopped and saved after 10 images; "):
        quiet_learn(frames, state, follow=True, report_every=0, info=add_frames_or_stop)
    before, after = idle
    assert before == after
    assert len((state / "metrics.jsonl").read_text().splitlines()) == sum("CBP" in line for line in lines)


def test_the_first_file_of_a_followed_folder_is_learned_from_once_it_is_whole(tmp_path: Path) -> None:
    frames, lines = tmp_path / "frames", []
    frames.mkdir()
    (frames / "00000.png").write_bytes(png(0)[:20])
    give_up = Timer(30, signal.raise_signal, (signal.SIGTERM,))

    def complete(line: str) -> None:
        lines.append(line)
        if line.startswith("waiting for the first image"):
            give_up.start()
            write_frames(frames, range(1))
        if line == "waiting for new images":
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted, match="stopped and saved after 1 image; "):
        quiet_learn(frames, tmp_path / "state", follow=True, report_every=0, info=complete)
    give_up.cancel()
    assert not any("refused" in line for line in lines)


def test_the_first_file_of_a_followed_folder_is_learned_from_once_it_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file itself does not change, as on a network drive that was away."""
    lines, read_file = [], imaging.read_file
    give_up = Timer(30, signal.raise_signal, (signal.SIGTERM,))

    def failing(path: Path, limit: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    def repair(line: str) -> None:
        lines.append(line)
        if line.startswith("waiting for the first image"):
            give_up.start()
            monkeypatch.setattr(imaging, "read_file", read_file)
        if line == "waiting for new images":
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(imaging, "read_file", failing)
    frames = write_frames(tmp_path / "frames", range(1))
    with pytest.raises(Interrupted, match="stopped and saved after 1 image; "):
        quiet_learn(frames, tmp_path / "state", follow=True, report_every=0, info=repair)
    give_up.cancel()
    assert lines[0].startswith("waiting for the first image; tried 1, 00000.png for one: ")
    assert lines[0].endswith("could not be read: Input/output error")


def test_a_learner_can_be_stopped_while_the_speed_is_measured(tmp_path: Path) -> None:
    def stop(line: str) -> None:
        if line.startswith("measuring"):
            signal.raise_signal(signal.SIGINT)

    frames = write_frames(tmp_path / "frames", range(6))
    with pytest.raises(Interrupted, match="stopped while the speed was measured; nothing was learned"):
        learn(frames, tmp_path / "state", info=stop, weights="none", image_size=8, device="cpu")
    assert not (tmp_path / "state").exists()


def test_a_learner_goes_on_with_its_own_settings_only(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    quiet_learn(frames, tmp_path / "state")
    with pytest.raises(ConfigError, match="was begun with batch=8, not 12"):
        quiet_learn(frames, tmp_path / "state", batch=12)
    with pytest.raises(ConfigError, match="unknown setting 'batches'; did you mean 'batch'"):
        quiet_learn(frames, tmp_path / "state", batches=12)
    assert learn(str(frames), tmp_path / "state", info=lambda line: None).batch == 8


@pytest.fixture
def two_presets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two presets that are measured in no time."""
    tiny = {"backbone": "convnet-w8", "passes": 1, "hidden_dim": 16, "output_dim": 32}
    monkeypatch.setattr(tuning, "PRESETS", ((4, tiny), (12, tiny)))


@pytest.mark.parametrize("strategy", strategies.registry.names())
def test_every_strategy_needs_no_setting_but_its_name(tmp_path: Path, two_presets: None, strategy: str) -> None:
    frames = write_frames(tmp_path / "frames", range(23))
    learner = learn(str(frames), tmp_path / "state", strategy=strategy, images_per_second=1e-3, info=lambda line: None)
    replays = strategies.registry.get(strategy).composition in ("stream+replay", "replay")
    assert (learner.seen, learner.batch) == (23, 22 if replays else 10)


@pytest.mark.parametrize("stream_batch", [30, 64])
def test_the_batch_follows_the_stream_minibatch(tmp_path: Path, two_presets: None, stream_batch: int) -> None:
    frames, lines = write_frames(tmp_path / "frames", range(3)), []
    options = {"stream_batch": stream_batch, "images_per_second": 1e-3, "info": lines.append}
    assert learn(str(frames), tmp_path / "state", **options).batch == stream_batch + 12
    assert f"batch {stream_batch + 12}, passes 1" in lines[1]


def test_a_last_minibatch_of_one_image_is_not_called_collapsed(tmp_path: Path, warnings: list[str]) -> None:
    frames, lines = write_frames(tmp_path / "frames", range(11)), []
    quiet_learn(
        frames, tmp_path / "state", strategy="finetune", memory_size=None, stream_batch=10, batch=10, info=lines.append
    )
    assert "11 images" in lines[-1]
    assert not any("collapsed" in line for line in warnings)
    assert not any("rank" in line for line in lines)


def test_a_last_image_that_cannot_be_learned_from_alone_waits_for_the_next_ones(tmp_path: Path) -> None:
    frames, state, lines = write_frames(tmp_path / "frames", range(9)), tmp_path / "state", []
    for _ in range(2):
        learner = quiet_learn(frames, state, variant="authors", info=lines.append)
        assert (learner.seen, learner.pending) == (8, 1)
    assert sum("one image is left" in line for line in lines) == 2
    write_frames(frames, range(9, 12))
    whole = Learner(mean=IMAGENET_MEAN, std=IMAGENET_STD, variant="authors", **TINY)
    whole.partial_fit(np.stack([frame(number) for number in range(12)]))
    assert_alike(quiet_learn(frames, state, variant="authors"), whole)


def test_a_backbone_of_ones_own_begins_as_it_was_given_and_goes_on_as_it_was_saved(
    tmp_path: Path, two_presets: None
) -> None:
    frames, own, lines = write_frames(tmp_path / "frames", range(11)), own_network(0), []
    before, begun = copy.deepcopy(own.state_dict()), []

    def info(line: str) -> None:
        lines.append(line)
        begun.append(all(torch.equal(before[name], value) for name, value in own.state_dict().items()))

    first = learn(str(frames), tmp_path / "state", backbone=own, info=info)
    assert "with your Sequential, batch" in lines[1]
    assert "\n" not in lines[1]
    assert (begun[0], begun[-1]) == (True, False)
    second = learn(str(frames), tmp_path / "state", backbone=own_network(1), info=info)
    assert_alike(first, second)
    with pytest.raises(CheckpointError, match="a backbone of your own; pass it"):
        learn(str(frames), tmp_path / "state", info=info)


@pytest.mark.parametrize(
    ("options", "target"),
    [({}, 20 / 600), ({"minutes": 2.0}, 20 / 120), ({"images_per_second": 3.0}, 3.0), ({"follow": True}, 20.0)],
)
def test_a_folder_that_ends_is_given_time_and_others_a_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str], options: dict[str, object], target: float
) -> None:
    frames, asked, lines = write_frames(tmp_path / "frames", range(20)), [], []

    def autotune(target: float, given: dict[str, object]) -> tuple[dict[str, object], float]:
        asked.append(target)
        if "follow" in options:
            raise ConfigError("it was asked")
        return {**TINY, **given}, 4.0

    monkeypatch.setattr("ocssl.live.begin.autotune", autotune)
    try:
        learn(str(frames), tmp_path / "state", info=lines.append, **options)
    except ConfigError:
        assert options == {"follow": True}
    else:
        assert lines[:2] == [
            "measuring how fast this computer learns",
            "learning at 8×8 with convnet-w8 from zero, batch 8, passes 1: about 4.0 img/s here, 0:05 for 20 images",
        ]
        assert any(line.startswith("convnet-w8 is a small network for photographs") for line in warnings)
    assert asked == [pytest.approx(target)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"minutes": 1.0},
            "20 images need about 3:42 here, more than --minutes 1; a new --state with a smaller --image-size is",
        ),
        (
            {"minutes": 1.0, "backbone": "convnet"},
            "20 images need about 3:42 here, more than --minutes 1; a new --state with a smaller --image-size or",
        ),
        ({"minutes": 4.0}, None),
        ({"images_per_second": 7.0}, "this machine learns from fewer than 7 img/s"),
    ],
)
def test_a_machine_that_is_too_slow_is_told_of_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str], options: dict[str, object], said: str | None
) -> None:
    monkeypatch.setattr("ocssl.live.begin.autotune", lambda target, given: ({**TINY, **given}, 0.09))
    learn(write_frames(tmp_path / "frames", range(20)), tmp_path / "state", info=lambda line: None, **options)
    told = [line for line in warnings if "minutes" in line.partition(";")[0] or "this machine" in line]
    assert [line[: len(said or "")] for line in told] == ([] if said is None else [said])
    assert any("small network" in line for line in warnings) == (said is None)  # a larger one would be slower still


def test_the_time_for_a_single_image_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ocssl.live.begin.autotune", lambda target, given: ({**TINY, **given}, 0.5))
    lines: list[str] = []
    learn(write_frames(tmp_path / "frames", range(1)), tmp_path / "state", info=lines.append)
    assert lines[1].endswith("about 0.5 img/s here, 0:02 for 1 image")


def test_a_small_network_of_the_users_choice_is_told_of_too(tmp_path: Path, warnings: list[str]) -> None:
    quiet_learn(write_frames(tmp_path / "frames", range(4)), tmp_path / "state")
    assert any("--backbone resnet18 or with a pretrained network gets better features" in line for line in warnings)
