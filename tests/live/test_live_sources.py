"""Learning from folders, lists of paths, archives and videos, each image once, whatever state the files are in."""

from __future__ import annotations

import errno
import gzip
import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from frames import (
    TINY,
    assert_alike,
    by_hand,
    frame,
    learned,
    png,
    quiet_learn,
    refused,
    write_frame,
    write_frames,
    write_tar,
)

from ocssl import Learner, imaging
from ocssl.data.reader import Item
from ocssl.errors import ConfigError, DataError
from ocssl.export import load
from ocssl.imaging import file_stamp
from ocssl.live import learn
from ocssl.live.sources import ImageStream
from ocssl.live.state import StateFolder


def test_one_state_can_learn_from_two_folders_with_the_same_names(tmp_path: Path) -> None:
    for name in ("monday", "tuesday"):
        assert quiet_learn(write_frames(tmp_path / name / "frames", range(4)), tmp_path / "state", gate=False)
    assert quiet_learn(tmp_path / "monday" / "frames", tmp_path / "state", gate=False).seen == 8
    assert load(tmp_path / "state" / "encoder").facts["sources"] == {"folder:frames": 8}


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
    assert set(problems) == {"notes.png", "empty.jpg", "dangling.png"}
    assert problems["notes.png"].startswith("it is not an image")
    assert problems["dangling.png"] == "it is not there"


def test_files_with_names_that_are_not_utf8_are_learned_from_once(tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(4)), tmp_path / "state"
    odd = os.fsdecode(b"caf\xe9.png")
    write_frame(frames / odd, 4)
    assert quiet_learn(frames, state).seen == 5
    assert odd in learned(state, f"folder:{frames.resolve()}")
    assert quiet_learn(frames, state).seen == 5


@pytest.mark.parametrize(
    ("name", "shown"), [(b"caf\xe9.png", b"caf\\udce9.png"), (b"a\nb\x1b[31m.png", b"a\\nb\\x1b[31m.png")]
)
def test_a_refused_file_is_told_in_text_that_can_be_printed(tmp_path: Path, name: bytes, shown: bytes) -> None:
    frames, lines = write_frames(tmp_path / "frames", range(4)), []
    (frames / os.fsdecode(name)).write_text("not an image")
    quiet_learn(frames, tmp_path / "state", info=lambda line: lines.append(line.encode("utf-8")))
    assert lines[1].startswith(b"refused " + shown + b": it is not an image")


def test_a_pipe_among_the_frames_is_passed_over(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    os.mkfifo(frames / "00002b.png")
    assert quiet_learn(frames, tmp_path / "state").seen == 4


def at_the_first_step(patched: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something when the learner gets its first image."""
    real, done = Learner.partial_fit, []

    def act_and_fit(self: Learner, images: torch.Tensor) -> Learner:
        if not done:
            done.append(act())
        return real(self, images)

    patched.setattr(Learner, "partial_fit", act_and_fit)


def test_a_file_that_vanishes_before_its_turn_is_left_out_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    frames = write_frames(tmp_path / "frames", range(9))
    with monkeypatch.context() as patched:
        at_the_first_step(patched, lambda: (frames / "00008.png").unlink())
        assert quiet_learn(frames, tmp_path / "state").seen == 8
    assert [line for line in warnings if "vanished" in line] == [
        f"1 file vanished from {frames.resolve()} and could not be learned from; bring what is missing back, and the "
        "same command goes on with it"
    ]
    write_frames(frames, range(8, 9))
    assert quiet_learn(frames, tmp_path / "state").seen == 9


def test_a_folder_that_vanishes_ends_learning_with_an_error_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames, away = write_frames(tmp_path / "frames", range(12)), tmp_path / "away"
    with monkeypatch.context() as patched:
        at_the_first_step(patched, lambda: frames.rename(away))
        with pytest.raises(DataError, match=r"frames vanished, and with it 11 files; bring it back, and the same comm"):
            quiet_learn(frames, tmp_path / "state")
    away.rename(frames)
    assert quiet_learn(frames, tmp_path / "state").seen == 12


def test_a_file_that_vanishes_while_it_is_opened_is_refused_and_welcome_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = write_frames(tmp_path / "frames", range(5))

    def vanish_first(picture: object) -> str:
        if picture == frames.resolve() / "00004.png":
            (frames / "00004.png").unlink()
        return file_stamp(picture)

    with monkeypatch.context() as patched:
        patched.setattr("ocssl.live.learning.file_stamp", vanish_first)
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
    with pytest.raises(
        DataError, match=r"^there is no usable image in the list of paths; tried 1, .*gone\.png for one"
    ):
        quiet_learn([tmp_path / "gone.png"], tmp_path / "state")


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


def test_tar_shards_go_on_at_their_position_and_may_grow_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    write_tar(tmp_path / "shards" / "train-0.tar", range(6))
    write_tar(tmp_path / "shards" / "test-0.tar", range(90, 92))
    source, state = f"tar:{tmp_path / 'shards'}", tmp_path / "state"
    assert quiet_learn(source, state).seen == 6
    write_tar(tmp_path / "shards" / "train-1.tar", range(6, 10))
    assert_alike(quiet_learn(source, state), by_hand_in_calls(list(range(6)), list(range(6, 10))))
    write_tar(tmp_path / "shards" / "train-0.tar", range(5))
    with pytest.raises(DataError, match="changed since learning began"):
        quiet_learn(source, state)


@pytest.mark.parametrize(("name", "cuts"), [("1.tar", (0, 600, 1200, 4096)), ("1.tar.gz", (0, 400, -1))])
# nothing, in an image, in a header, before the end-of-archive mark; in the packed bytes
def test_a_half_written_tar_is_learned_from_once_it_is_whole(tmp_path: Path, name: str, cuts: tuple[int, ...]) -> None:
    shards, state = tmp_path / "shards", tmp_path / "state"
    shards.mkdir()
    write_tar(shards / "0.tar", range(6))
    whole = write_tar(tmp_path / "whole", range(6, 10)).read_bytes()
    whole = gzip.compress(whole) if name.endswith("gz") else whole
    for begun in (False, True):  # a new state, and one that knows the first shard
        for cut in cuts:
            (shards / name).write_bytes(whole[:cut])
            said = rf"{name} is incomplete: .*; wait until it is written, and the same comm"
            with pytest.raises(DataError, match=said):
                quiet_learn(f"tar:{shards}", state)
            assert state.exists() is begun
        (shards / name).unlink()
        assert quiet_learn(f"tar:{shards}", state).seen == 6
    (shards / name).write_bytes(whole)
    assert_alike(quiet_learn(f"tar:{shards}", state), by_hand_in_calls(list(range(6)), list(range(6, 10))))


def test_a_source_that_breaks_midway_costs_nothing_of_what_was_learned(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    write_tar(tmp_path / "shards" / "0.tar", range(8))
    (tmp_path / "shards" / "1.tar").write_bytes(b"not a tar file" * 1000)
    said = r"1\.tar is not a readable tar file: .*; what was learned before is saved, from 8 images$"
    with pytest.raises(DataError, match=said):
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


class Slow(Frames):
    """Has no image at every second call."""

    ready = True

    def take(self, count: int) -> list[Item]:
        self.ready = not self.ready
        return super().take(count) if self.ready else []


@pytest.mark.parametrize("source", [Frames, Slow])
def test_a_source_of_ones_own_goes_on_where_it_was_left(tmp_path: Path, source: type[Frames]) -> None:
    for count in (6, 11):
        learner = learn(source(count), tmp_path / "state", info=lambda line: None, **TINY)
    assert_alike(learner, by_hand_in_calls(list(range(6)), list(range(6, 11))))


def test_a_source_of_ones_own_needs_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Frames, "key")
    with pytest.raises(ConfigError, match="Frames has no key; give it one"):
        learn(Frames(3), tmp_path / "state", info=lambda line: None, **TINY)


class Lent(Frames):
    """Gives an image that could not be read once more, after the others."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.given: list[int] = []

    def take(self, count: int) -> list[Item]:
        items = super().take(count)
        self.given += [int(item.name) for item in items]
        return items

    def release(self, item: Item, error: DataError) -> None:
        self.numbers.append(int(item.name))
        self.exhausted = False


def test_an_image_that_is_given_again_counts_once_in_the_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, decode = [1], imaging.decode

    def failing_once(picture: np.ndarray, *how: object) -> np.ndarray:
        if failing and np.array_equal(picture, frame(failing[0])):
            failing.clear()
            raise OSError(errno.EIO, "Input/output error")
        return decode(picture, *how)

    monkeypatch.setattr(imaging, "decode", failing_once)
    for count, seen in ((6, 6), (8, 8)):
        stream = Lent(count)
        assert learn(stream, tmp_path / "state", info=lambda line: None, **TINY).seen == seen
    assert stream.given == list(range(8))


def test_images_that_could_not_be_read_do_not_count_as_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    quiet_learn(write_frames(tmp_path / "day", range(4)), state)
    night = write_frames(tmp_path / "night", range(4, 6))

    def failing(*_: object) -> np.ndarray:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(imaging, "decode", failing)
        quiet_learn(night, state, gate=False)
    assert load(state / "encoder").facts["sources"] == {"folder:day": 4, "folder:night": 0}


def test_only_folders_can_be_followed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only a folder can be followed"):
        quiet_learn(write_tar(tmp_path / "frames.tar", range(3)), tmp_path / "state", follow=True)
