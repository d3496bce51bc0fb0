"""Learning from folders, lists of paths, archives and videos, each image once, whatever state the files are in."""

from __future__ import annotations

import copy
import io
import json
import os
import sqlite3
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from frames import TINY, frame, png, write_frame, write_frames

from ocssl import Learner, strategies
from ocssl.common.files import unseal
from ocssl.data.dataset import IMAGENET_MEAN, IMAGENET_STD
from ocssl.data.reader import Item
from ocssl.errors import CheckpointError, ConfigError, DataError
from ocssl.live import autotune as tuning
from ocssl.live import learn
from ocssl.live.seen import SeenIndex
from ocssl.live.sources import ImageStream
from ocssl.live.state import StateFolder


def entries(state: Path, source: str) -> dict[str, str | None]:
    with SeenIndex(state / "ledger.sqlite", 10**9) as index:
        return dict(index.entries(source))


def learned(state: Path, source: str) -> list[str]:
    return [name for name, problem in entries(state, source).items() if problem is None]


def refused(state: Path, source: str) -> dict[str, str]:
    return {name: problem for name, problem in entries(state, source).items() if problem is not None}


def by_hand(numbers: list[int]) -> Learner:
    """A learner that got these frames directly."""
    learner = Learner(mean=IMAGENET_MEAN, std=IMAGENET_STD, **TINY)
    return learner.partial_fit(np.stack([frame(number) for number in numbers])).flush()


def assert_alike(first: Learner, second: Learner) -> None:
    assert first.seen == second.seen
    for one, other in zip(first.network.state_dict().values(), second.network.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def quiet_learn(source: object, state: Path, **options: object) -> Learner:
    return learn(str(source), state, **{"info": lambda line: None, **TINY, **options})


def test_a_folder_is_learned_from_by_name_as_if_its_images_were_given_by_hand(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(15))
    learner = quiet_learn(frames, tmp_path / "state")
    assert_alike(learner, by_hand(list(range(15))))
    assert learned(tmp_path / "state", f"folder:{frames.resolve()}") == [f"{n:05d}.png" for n in range(15)]


def test_a_second_time_only_new_files_are_learned_from(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(10, 18))
    assert quiet_learn(frames, tmp_path / "state").seen == 8
    assert quiet_learn(frames, tmp_path / "state").seen == 8
    write_frames(frames, range(4))  # their names come before all others
    assert_alike(quiet_learn(frames, tmp_path / "state"), by_hand([*range(10, 18), *range(4)]))


def test_one_state_can_learn_from_two_folders_with_the_same_names(tmp_path: Path) -> None:
    for name in ("monday", "tuesday"):
        assert quiet_learn(write_frames(tmp_path / name, range(4)), tmp_path / "state")
    assert quiet_learn(tmp_path / "monday", tmp_path / "state").seen == 8


def test_a_half_written_file_is_refused_for_now_and_learned_from_when_it_is_whole(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(7)), tmp_path / "state"
    late = frames / "00003.png"
    whole = late.read_bytes()
    late.write_bytes(whole[: len(whole) // 2])
    lines: list[str] = []
    quiet_learn(frames, state, info=lines.append)
    key = f"folder:{frames.resolve()}"
    assert "00003.png" not in learned(state, key)
    assert list(refused(state, key)) == ["00003.png"]
    assert sum("refused 00003.png: it is broken" in line for line in lines) == 1
    quiet_learn(frames, state, info=lines.append)
    assert sum("refused 00003.png" in line for line in lines) == 1  # nothing changed, so nothing is tried or told again
    late.write_bytes(whole)
    assert_alike(quiet_learn(frames, state), by_hand_in_calls([0, 1, 2, 4, 5, 6], [3]))
    assert learned(state, key)[-1] == "00003.png"
    assert refused(state, key) == {}


def by_hand_in_calls(*calls: list[int]) -> Learner:
    learner = by_hand(calls[0])
    for numbers in calls[1:]:
        learner.partial_fit(np.stack([frame(number) for number in numbers])).flush()
    return learner


def test_files_that_are_no_images_or_empty_or_locked_away_are_refused_by_name(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    (frames / "notes.png").write_text("not an image")
    (frames / "empty.jpg").touch()
    (frames / "dangling.png").symlink_to(tmp_path / "nowhere.png")
    (frames / "readme.txt").write_text("no image, and not called one")
    assert quiet_learn(frames, state).seen == 4
    problems = refused(state, f"folder:{frames.resolve()}")
    assert set(problems) == {"notes.png", "empty.jpg"}
    assert problems["notes.png"].startswith("it is not an image")


def test_files_with_names_that_are_not_utf8_are_learned_from_once(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    odd = os.fsdecode(b"caf\xe9.png")
    write_frame(frames / odd, 4)
    assert quiet_learn(frames, state).seen == 5
    assert odd in learned(state, f"folder:{frames.resolve()}")
    assert quiet_learn(frames, state).seen == 5


def test_a_refused_file_is_told_in_text_that_can_be_printed(tmp_path: Path) -> None:
    frames, lines = write_frames(tmp_path / "frames", range(4)), []
    (frames / os.fsdecode(b"caf\xe9.png")).write_text("not an image")
    quiet_learn(frames, tmp_path / "state", info=lambda line: lines.append(line.encode("utf-8")))
    assert lines[0].startswith(b"refused caf\\udce9.png: it is not an image")


def test_a_pipe_among_the_frames_is_passed_over(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    os.mkfifo(frames / "00002b.png")
    assert quiet_learn(frames, tmp_path / "state").seen == 4


def test_a_file_that_vanishes_before_its_turn_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = write_frames(tmp_path / "frames", range(9))
    real, calls = Learner.partial_fit, []

    def and_remove_one(self: Learner, images: torch.Tensor) -> Learner:
        calls.append(len(images))
        (frames / "00008.png").unlink(missing_ok=True)
        return real(self, images)

    monkeypatch.setattr(Learner, "partial_fit", and_remove_one)
    assert quiet_learn(frames, tmp_path / "state").seen == 8


def test_a_file_that_vanishes_while_it_is_opened_is_refused_and_welcome_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = write_frames(tmp_path / "frames", range(5))
    with monkeypatch.context() as patched:
        patched.setattr(os.path, "exists", lambda path: True)
        (frames / "00004.png").unlink()
        patched.setattr("ocssl.live.sources.image_files", lambda folder: [f"{n:05d}.png" for n in range(5)])
        assert quiet_learn(frames, tmp_path / "state").seen == 4
    assert refused(tmp_path / "state", f"folder:{frames.resolve()}") == {"00004.png": "it is not there"}
    write_frames(frames, range(4, 5))
    assert quiet_learn(frames, tmp_path / "state").seen == 5


def test_images_of_any_size_are_cropped_and_resized_to_that_of_the_beginning(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    write_frame(frames / "00004.png", 4, height=30, width=50)
    write_frame(frames / "00005.png", 5, height=3, width=3)
    learner = quiet_learn(frames, tmp_path / "state")
    assert (learner.seen, learner.image_size) == (6, 8)


def test_without_a_size_that_of_the_first_usable_image_is_taken(tmp_path: Path) -> None:
    (tmp_path / "frames").mkdir()
    (tmp_path / "frames" / "00000.png").write_text("not an image")
    write_frame(tmp_path / "frames" / "00001.png", 1, height=12, width=20)
    assert quiet_learn(tmp_path / "frames", tmp_path / "state", image_size=None).image_size == 12


def test_an_empty_folder_and_a_missing_one_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "photo.heic").touch()
    with pytest.raises(DataError, match=r"there is no usable image in folder:.*; names of images end in .*\.png"):
        quiet_learn(tmp_path / "empty", tmp_path / "state")
    with pytest.raises(DataError, match="there is nothing at"):
        quiet_learn(tmp_path / "missing", tmp_path / "state")


def test_a_learner_that_never_began_leaves_no_folder_but_takes_none_away(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "own").mkdir()
    for state in ("state", "own"):
        with pytest.raises(DataError, match="there is no usable image"):
            quiet_learn(tmp_path / "empty", tmp_path / state)
    assert not (tmp_path / "state").exists()
    assert (tmp_path / "own").is_dir()
    frames = write_frames(tmp_path / "frames", range(6))
    quiet_learn(frames, tmp_path / "own")
    with pytest.raises(DataError, match="there is nothing at"):
        quiet_learn(tmp_path / "missing", tmp_path / "own")
    assert_alike(quiet_learn(frames, tmp_path / "own"), by_hand([*range(6)]))


def test_paths_on_standard_input_are_learned_from_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = write_frames(tmp_path / "frames", range(6))
    lines = [f"{frames}/{number:05d}.png\n" for number in (5, 1, 1, 0, 3, 99)]
    for _ in range(2):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(lines)))
        learner = quiet_learn("-", tmp_path / "state")
    assert_alike(learner, by_hand([5, 1, 0, 3]))
    assert refused(tmp_path / "state", "paths") == {f"{frames}/00099.png": "it is not there"}


def write_tar(path: Path, numbers: range) -> Path:
    with tarfile.open(path, "w") as archive:
        for number in numbers:
            content = png(number)
            member = tarfile.TarInfo(f"{number:05d}.png")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_tar_shards_go_on_at_their_position_and_may_grow_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    write_tar(tmp_path / "shards" / "0.tar", range(6))
    source, state = f"tar:{tmp_path / 'shards'}", tmp_path / "state"
    assert quiet_learn(source, state).seen == 6
    write_tar(tmp_path / "shards" / "1.tar", range(6, 10))
    assert_alike(quiet_learn(source, state), by_hand_in_calls(list(range(6)), list(range(6, 10))))
    write_tar(tmp_path / "shards" / "0.tar", range(5))
    with pytest.raises(DataError, match="changed since learning began"):
        quiet_learn(source, state)


def test_a_source_that_breaks_midway_costs_nothing_of_what_was_learned(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    write_tar(tmp_path / "shards" / "0.tar", range(8))
    (tmp_path / "shards" / "1.tar").write_bytes(b"not a tar file" * 1000)
    with pytest.raises(DataError, match=r"1\.tar is not a readable tar file"):
        quiet_learn(f"tar:{tmp_path / 'shards'}", tmp_path / "state")
    restored = StateFolder(tmp_path / "state").restore()
    assert restored is not None
    assert_alike(restored[0], by_hand(list(range(8))))


def test_parquet_is_learned_from_in_order(tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": [png(number) for number in range(9)]}), tmp_path / "images.parquet")
    assert_alike(quiet_learn(tmp_path / "images.parquet", tmp_path / "state"), by_hand(list(range(9))))


def test_a_video_gives_each_frame_once_and_goes_on_where_it_was_left(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    video = cv2.VideoWriter(str(tmp_path / "drive.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10, (32, 24))
    for number in range(11):
        video.write(np.full((24, 32, 3), (number * 20, 0, 250 - number * 20), dtype=np.uint8))
    video.release()
    from ocssl.live.sources import open_reader

    origin = open_reader(str(tmp_path / "drive.avi"))
    frames = [np.asarray(item.picture) for item in origin.items()]
    assert len(frames) == 11
    assert [frame[:, :, 0].mean().round() for frame in frames] == pytest.approx(
        [250 - 20 * number for number in range(11)], abs=8
    )  # red first
    assert all(
        np.array_equal(one, np.asarray(other.picture)) for one, other in zip(frames[7:], origin.items(7), strict=True)
    )
    assert quiet_learn(tmp_path / "drive.avi", tmp_path / "state").seen == 11
    assert quiet_learn(tmp_path / "drive.avi", tmp_path / "state").seen == 11


def test_a_file_that_is_no_video_and_a_camera_without_number_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    (tmp_path / "drive.mp4").write_text("no video")
    with pytest.raises(DataError, match=r"drive\.mp4 cannot be opened"):
        quiet_learn(tmp_path / "drive.mp4", tmp_path / "state")
    with pytest.raises(ConfigError, match="camera:0 for the first one"):
        quiet_learn("camera:front", tmp_path / "state")


class Frames(ImageStream):
    """A source of one's own: so many frames by number."""

    key = "frames"

    def __init__(self, count: int) -> None:
        self.numbers = list(range(count))

    def take(self, count: int) -> list[Item]:
        taken, self.numbers = self.numbers[:count], self.numbers[count:]
        self.exhausted = not self.numbers
        return [Item(str(number), frame(number)) for number in taken]

    def ack(self, item: Item, *, stamp: str = "", problem: str | None = None) -> None:
        assert problem is None


def test_a_source_of_ones_own_goes_on_where_it_was_left(tmp_path: Path) -> None:
    for count in (6, 11):
        learner = learn(Frames(count), tmp_path / "state", info=lambda line: None, **TINY)
    assert_alike(learner, by_hand_in_calls(list(range(6)), list(range(6, 11))))


def test_only_folders_can_be_followed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only a folder can be followed"):
        quiet_learn(write_tar(tmp_path / "frames.tar", range(3)), tmp_path / "state", follow=True)


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
    assert f"batch {stream_batch + 12}, passes 1" in lines[0]


def test_a_last_minibatch_of_one_image_is_not_called_collapsed(tmp_path: Path, warnings: list[str]) -> None:
    frames, lines = write_frames(tmp_path / "frames", range(11)), []
    quiet_learn(
        frames, tmp_path / "state", strategy="finetune", memory_size=None, stream_batch=10, batch=10, info=lines.append
    )
    assert "11 images" in lines[-1]
    assert not warnings
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


def own_network(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    )


def test_a_backbone_of_ones_own_begins_as_it_was_given_and_goes_on_as_it_was_saved(
    tmp_path: Path, two_presets: None
) -> None:
    frames, own, lines = write_frames(tmp_path / "frames", range(11)), own_network(0), []
    before, begun = copy.deepcopy(own.state_dict()), []

    def info(line: str) -> None:
        lines.append(line)
        begun.append(all(torch.equal(before[name], value) for name, value in own.state_dict().items()))

    first = learn(str(frames), tmp_path / "state", backbone=own, info=info)
    assert "with your Sequential, batch" in lines[0]
    assert "\n" not in lines[0]
    assert (begun[0], begun[-1]) == (True, False)
    second = learn(str(frames), tmp_path / "state", backbone=own_network(1), info=info)
    assert_alike(first, second)
    with pytest.raises(CheckpointError, match="a backbone of your own; pass it"):
        learn(str(frames), tmp_path / "state", info=info)


def test_the_same_settings_go_on_whatever_kind_of_sequence_they_come_in(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    for mean in ([0.5, 0.5, 0.5], (0.5, 0.5, 0.5), np.full(3, 0.5)):
        assert quiet_learn(frames, tmp_path / "state", mean=mean, image_size=None).mean == (0.5, 0.5, 0.5)
    with pytest.raises(ConfigError, match="was begun with mean"):
        quiet_learn(frames, tmp_path / "state", mean=[0.5, 0.5, 0.4])


def test_what_others_put_into_a_state_does_not_keep_it_from_going_on(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    quiet_learn(frames, state)
    (state / "features.parquet").touch()
    (state / ".DS_Store").touch()
    assert quiet_learn(frames, state).seen == 4
    assert (state / "features.parquet").exists()


def test_the_files_of_a_state_are_those_of_the_versions_before(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    quiet_learn(frames, state)
    names = {path.name for path in state.iterdir() if not path.name.startswith(".")}
    assert names == {"checkpoints", "encoder", "ledger.sqlite", "metrics.jsonl"}
    (saved,) = (state / "checkpoints").iterdir()
    assert {path.name for path in saved.iterdir()} == {"learner", "state.json"}
    place = {"noted": 4, "positions": {f"folder:{frames.resolve()}": 4}, "identities": {}}
    size = (state / "metrics.jsonl").stat().st_size
    assert unseal(json.loads((saved / "state.json").read_text())) == {"place": place, "metrics_bytes": size}
    rows = sqlite3.connect(state / "ledger.sqlite").execute("SELECT source, name, number, problem FROM arrivals")
    assert [*rows] == [(f"folder:{frames.resolve()}", f"{n:05d}.png", n + 1, None) for n in range(4)]


OF_VERSION_0_1 = {
    **TINY, "strategy": "cla-e", "method": None, "memory": None, "lr": 0.1, "omega": None, "tau": 0.999, "seed": 0,
    "augmentation": None, "variant": "clean", "options": None, "method_options": None, "memory_options": None,
    "joint_views": None, "sync_norm": True, "momentum": 0.9, "weight_decay": 1e-4, "stem": "auto", "precision": "auto",
    "execution": "auto", "mean": list(IMAGENET_MEAN), "std": list(IMAGENET_STD),
}  # fmt: skip


@pytest.mark.parametrize("own", [False, True])
def test_a_state_of_version_0_1_goes_on(tmp_path: Path, own: bool) -> None:
    frames, state = write_frames(tmp_path / "frames", range(10)), tmp_path / "state"
    backbone = {"backbone": own_network(0)} if own else {}
    then = {"lr": 0.1, "joint_views": True}  # the defaults of that version
    quiet_learn(frames, state, **backbone, **then)
    (index,) = state.glob("checkpoints/*/learner/learner.json")
    saved = json.loads(index.read_text())
    del saved["facts"]["config"], saved["checksum"]
    saved["facts"]["parameters"] = OF_VERSION_0_1 | ({"backbone": None} if own else {})
    index.write_text(json.dumps(saved))
    write_frames(frames, range(10, 14))
    whole = Learner(
        mean=IMAGENET_MEAN, std=IMAGENET_STD, **{**TINY, **then, **({"backbone": own_network(0)} if own else {})}
    )
    for numbers in (range(10), range(10, 14)):
        whole.partial_fit(np.stack([frame(number) for number in numbers])).flush()
    assert_alike(quiet_learn(frames, state, **backbone), whole)


def test_metrics_that_were_taken_away_are_not_missed(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    quiet_learn(frames, state)
    (state / "metrics.jsonl").unlink()
    write_frames(frames, range(4, 8))
    assert_alike(quiet_learn(frames, state), by_hand(list(range(8))))
    assert (state / "metrics.jsonl").read_text().startswith('{"seen": 8,')


def test_a_state_whose_ledger_is_lost_is_not_taught_everything_again(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    quiet_learn(frames, state)
    (state / "ledger.sqlite").unlink()
    for _ in range(2):
        with pytest.raises(
            CheckpointError, match=r"ledger\.sqlite' is missing, .* of 4 images .* put it back or choose"
        ):
            quiet_learn(frames, state)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1])
def test_times_that_never_come_are_refused(tmp_path: Path, seconds: float) -> None:
    for name in ("save_every", "report_every"):
        with pytest.raises(ConfigError, match=f"{name} must be a number of at least 0, not {seconds}"):
            quiet_learn(tmp_path / "frames", tmp_path / "state", **{name: seconds})
    assert not (tmp_path / "state").exists()


def test_a_size_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="image_size must be a whole number from 1 to 8,192, not 0"):
        quiet_learn(write_frames(tmp_path / "frames", range(4)), tmp_path / "state", image_size=0)


def test_a_folder_with_other_things_in_it_does_not_become_a_state(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    with pytest.raises(ConfigError, match="is not the state of a learner"):
        quiet_learn(frames, frames)


def test_a_failed_save_is_told_and_tried_again_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    frames = write_frames(tmp_path / "frames", range(24))
    real, calls = StateFolder.save, []

    def sometimes_full(self: StateFolder, *arguments: object) -> None:
        calls.append(1)
        if 2 <= len(calls) <= 4:
            raise CheckpointError("could not save: no space left on device")
        real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(StateFolder, "save", sometimes_full)
    learner = quiet_learn(frames, tmp_path / "state", save_every=0, report_every=100)
    assert sum(line.startswith("could not save: no space") for line in warnings) == 3
    assert_alike(learner, by_hand(list(range(24))))
    assert len(learned(tmp_path / "state", f"folder:{frames.resolve()}")) == 24


def test_a_disk_that_is_full_at_a_restart_keeps_nobody_from_learning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    quiet_learn(frames, tmp_path / "state")
    write_frames(frames, range(4, 8))
    real, calls = StateFolder.save, []

    def full_at_first(self: StateFolder, *arguments: object) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise CheckpointError("could not save: no space left on device")
        real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(StateFolder, "save", full_at_first)
    assert quiet_learn(frames, tmp_path / "state").seen == 8
    assert warnings[0].startswith("could not save: no space left on device; learning goes on")
    assert_alike(quiet_learn(frames, tmp_path / "state"), by_hand(list(range(8))))
