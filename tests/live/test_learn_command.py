"""What ``ocssl learn`` says to those who ask, and to those who mistype."""

from __future__ import annotations

from pathlib import Path

from command import Command
from frames import write_frames

SCREEN = 40


def test_the_help_fits_a_screen_and_says_where_names_come_from(ocssl: Command) -> None:
    code, out, _ = ocssl("learn", "--help")
    assert code == 0
    assert len(out.splitlines()) <= SCREEN
    for hint in ("ocssl list strategies", "ocssl list methods", "ocssl list memories", "resnet18-w16"):
        assert hint in out


def test_a_mistyped_setting_is_answered_with_those_of_a_learner(ocssl: Command, tmp_path: Path) -> None:
    code, _, err = ocssl("learn", tmp_path, "--state", tmp_path / "state", "--set", "Lr=0.1")
    assert code == 2
    assert "unknown setting of a learner 'Lr'; did you mean 'lr'?" in err
    assert "dataset" not in err
    _, _, err = ocssl("learn", tmp_path, "--state", tmp_path / "state", "--set", "=0.1")
    assert "'=0.1' must have the form key=value" in err


def test_numbers_that_mean_nothing_are_refused(ocssl: Command, tmp_path: Path) -> None:
    frames = write_frames(tmp_path / "frames", range(2))
    for option, value in (("--save-every", "nan"), ("--report-every", "inf"), ("--image-size", 0)):
        code, _, err = ocssl("learn", frames, "--state", tmp_path / "state", option, value)
        assert code == 2
        assert f"not {value}" in err
