"""What ``ocssl learn`` says to those who ask, and to those who mistype."""

from __future__ import annotations

import errno
import io
from pathlib import Path

import pytest
import yaml
from frames import TINY, assert_alike, by_hand, learned, quiet_learn, tiny_options, write_frames
from PIL import Image

from helpers.command import Command
from ocssl.cli import app
from ocssl.errors import ConfigError
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
