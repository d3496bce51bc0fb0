"""What ``ocssl learn`` says to those who ask, and to those who mistype."""

from __future__ import annotations

import errno
import io
import re
import signal
from pathlib import Path

import pytest
import yaml
from frames import (
    TINY,
    assert_alike,
    by_hand,
    learned,
    quiet_learn,
    tiny_options,
    write_frame,
    write_frames,
    write_tar,
)
from PIL import Image

from helpers.command import Command, wait_for
from ocssl.cli import app
from ocssl.errors import ConfigError, DataError
from ocssl.export import load

SCREEN = 40


def test_the_help_fits_a_screen_and_says_where_names_come_from(ocssl: Command) -> None:
    code, out, _ = ocssl("learn", "--help")
    assert code == 0
    assert len(out.splitlines()) <= SCREEN
    assert "ocssl list strategies|methods|memories|backbones" in out


def test_a_mistyped_setting_is_answered_with_those_of_a_learner(ocssl: Command, tmp_path: Path) -> None:
    code, _, err = ocssl("learn", tmp_path, "--state", tmp_path / "state", "--set", "Lr=0.1")
    assert code == 2
    assert "unknown setting 'Lr'; did you mean 'lr'?" in err
    assert "dataset" not in err
    _, _, err = ocssl("learn", tmp_path, "--state", tmp_path / "state", "--set", "=0.1")
    assert "'=0.1' must have the form key=value" in err


def test_settings_come_from_a_file_and_flags_win(ocssl: Command, tmp_path: Path) -> None:
    frames, config = write_frames(tmp_path / "frames", range(6)), tmp_path / "robot.yaml"
    config.write_text(yaml.safe_dump({**TINY, "passes": 2, "minutes": 3, "weights": "none"}))
    code, _, err = ocssl("learn", frames, "--state", tmp_path / "state", "--config", config, "--passes", "1")
    assert (code, "passes 1" in err) == (0, True)
    assert load(tmp_path / "state").facts["memory_size"] == TINY["memory_size"]
    config.write_text("minuts: 3")
    code, _, err = ocssl("learn", frames, "--state", tmp_path / "other", "--config", config)
    assert (code, "robot.yaml': unknown setting 'minuts'; did you mean 'minutes'?" in err) == (2, True)
    assert not (tmp_path / "other").exists()


class FullDisk(io.StringIO):
    """A log that cannot grow."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_log_that_cannot_be_written_stops_no_learning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = write_frames(tmp_path / "frames", range(6))
    (frames / "00003b.png").touch()
    monkeypatch.setattr("sys.stderr", FullDisk())
    words = [str(frames), "--state", str(tmp_path / "state"), *tiny_options(), "--report-every", "0"]
    app(["learn", *words], standalone_mode=False)
    assert "learned from 6 images" in capsys.readouterr().out


def test_numbers_that_mean_nothing_are_refused(ocssl: Command, tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(2))
    for option, value in (("--save-every", "nan"), ("--report-every", "inf"), ("--image-size", 0)):
        code, _, err = ocssl("learn", frames, "--state", tmp_path / "state", option, value)
        assert code == 2
        assert f"not {value}" in err.replace("'", "")


def test_a_huge_image_is_refused_in_one_line(ocssl: Command, tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(4))
    Image.new("1", (9500, 9500)).save(frames / "huge.png")
    code, _, err = ocssl("learn", frames, "--state", tmp_path / "state", *tiny_options())
    assert code == 0, err
    assert "refused huge.png: it has 9500×9500 pixels" in err
    assert "DecompressionBombWarning" not in err


def test_image_files_are_learned_from_once_each_and_counted(ocssl: Command, tmp_path: Path) -> None:
    frames, state, lines = write_frames(tmp_path / "frames", range(6)), tmp_path / "state", []
    files = [frames / f"{number:05d}.png" for number in (5, 1, 1, 0)]
    code, out, err = ocssl("learn", *files, "--state", state, *tiny_options())
    assert (code, out.startswith("learned from 3 images")) == (0, True), err
    assert_alike(quiet_learn(files, tmp_path / "same"), by_hand([5, 1, 0]))
    learner = quiet_learn([*files, frames / "00003.png", frames / "00004.png"], state, info=lines.append)
    assert learner.seen == 5
    assert learned(state, "paths") == [str(frames / f"{number:05d}.png") for number in (5, 1, 0, 3, 4)]
    assert lines[0] == "going on after 3 images; 2 are left"


def test_only_image_files_are_learned_from_together(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(2))
    for other in (frames, tmp_path / "day.tar", tmp_path / "drive.MP4", "-"):
        with pytest.raises(ConfigError, match=rf"'{other}' is no image that can be read, and only images can be "):
            quiet_learn([frames / "00000.png", other], tmp_path / "state")
    with pytest.raises(ConfigError, match="only a folder can be followed, not files"):
        quiet_learn([frames / "00000.png", frames / "00001.png"], tmp_path / "state", follow=True)


def test_a_pattern_that_no_shell_expanded_names_the_files_that_match(ocssl: Command, tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(6)), tmp_path / "state"
    write_frame(frames / "day [1].png", 7)
    code, out, err = ocssl("learn", frames / "0000[135].png", frames / "day [1].png", "--state", state, *tiny_options())
    assert (code, out.startswith("learned from 4 images")) == (0, True), err
    names = ["00001.png", "00003.png", "00005.png", "day [1].png"]
    assert learned(state, "paths") == [str(frames / name) for name in names]
    code, out, err = ocssl("embed", state, tmp_path / "**" / "*.png", "-o", tmp_path / "all.csv")
    assert (code, out.startswith("7 images")) == (0, True), err
    assert quiet_learn(tmp_path / "fr*", tmp_path / "folder").seen == 7
    write_tar(tmp_path / "day-1.tar", range(2))
    assert quiet_learn(tmp_path / "day-*.tar", tmp_path / "shards").seen == 2
    for missing in ("night*.png", "night*"):
        with pytest.raises(DataError, match=rf"no file matches '.*{re.escape(missing)}'"):
            quiet_learn(frames / missing, tmp_path / "none")
    with pytest.raises(DataError, match="cannot be a path"):
        quiet_learn("a\0b/*.jpg", tmp_path / "none")


def test_a_file_that_is_no_source_is_told_what_is_missing(tmp_path: Path) -> None:
    for name, reason in (("a", "no ending of an image"), ("a.zip", "no ending of"), ("a.HEIC", "convert it to JPEG")):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(DataError, match=reason):
            quiet_learn(tmp_path / name, tmp_path / "state")


def test_a_photograph_of_a_browser_is_read(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jfif", "JPEG")
    assert quiet_learn(tmp_path, tmp_path / "state").seen == 1


def test_a_wait_for_the_first_image_is_said_once(ocssl: Command, tmp_path: Path) -> None:
    frames = tmp_path / "frames"
    frames.mkdir()
    process = ocssl.start("learn", frames, "--state", tmp_path / "state", "--follow", *tiny_options())
    wait_for(lambda: (process.folder / "stderr").exists() and process.err)
    write_frames(frames, range(1))
    wait_for(lambda: "learning at" in process.err)
    process.kill(signal.SIGTERM)
    process.wait()
    assert process.err.startswith("waiting for the first image\nlearning at")


def test_a_single_image_is_said_in_the_singular(ocssl: Command, tmp_path: Path) -> None:
    frames, state = write_frames(tmp_path / "frames", range(1)), tmp_path / "state"
    assert "1 image is too few to tell" in ocssl("learn", frames, "--state", state, *tiny_options())[2]
    write_frames(frames, range(2))
    assert "going on after 1 image; 1 is left" in ocssl("learn", frames, "--state", state)[2]


def test_another_width_of_the_network_is_refused_with_that_of_the_state(tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(2))
    quiet_learn(frames, tmp_path / "state")
    with pytest.raises(ConfigError, match="was begun with backbone='convnet-w8', not 'convnet-w16'; leave it out"):
        quiet_learn(frames, tmp_path / "state", backbone="convnet-w16")
    with pytest.raises(ConfigError, match="was begun with backbone='convnet-w8', not 'convnet'; leave it out"):
        quiet_learn(frames, tmp_path / "state", backbone="convnet")
    quiet_learn(frames, tmp_path / "state", backbone="convnet", width=8)
