"""The files of a run, one by one."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ocssl.checks import small_learner
from ocssl.errors import CheckpointError, ConfigError
from ocssl.runs.folder import RunFolder
from ocssl.runs.presets import resolve


def test_others_may_read_the_encoder_of_a_run(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        RunFolder(tmp_path).write_encoder({"weights": torch.ones(2)})
    finally:
        os.umask(before)
    assert (tmp_path / "encoder.safetensors").stat().st_mode & 0o777 == 0o644


def test_an_encoder_of_tied_weights_is_written_at_the_end_of_a_run(tmp_path: Path) -> None:
    weights = torch.rand(3, 3)
    folder = RunFolder(tmp_path)
    folder.write_encoder({"first": weights, "second": weights, "turned": weights.T})
    assert torch.equal(load_file(folder.encoder)["turned"], weights.T)


def test_the_command_that_goes_on_can_be_pasted(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "my run")
    assert shlex.split(folder.go_on) == ["ocssl", "run", "--resume", str(folder.path)]
    folder.create(resolve({"dataset": "shapes"}))
    with pytest.raises(ConfigError) as refusal:
        folder.check_free()
    assert folder.go_on in str(refusal.value)


def test_a_disk_that_is_found_full_when_a_file_is_to_be_safe_is_told(tmp_path: Path, monkeypatch) -> None:
    folder = RunFolder(tmp_path)
    folder.append({"loss": 1.0})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"cannot write '.*metrics.jsonl': No space left on device"):
        folder.save(small_learner("er"), {}, keep=1)


@pytest.mark.parametrize("keep", [1, 2])
def test_checkpoints_are_in_the_order_of_their_numbers_beyond_six_digits(tmp_path: Path, keep: int) -> None:
    folder = RunFolder(tmp_path)
    (folder.checkpoints.path / "999999").mkdir(parents=True)
    (folder.checkpoints.path / "999999" / "state.json").write_text("{}")
    (folder.checkpoints.path / "1st-try").mkdir()
    for number in (1_000_000, 1_000_001):
        assert folder.save(small_learner("er"), {}, keep).name == str(number)
    kept = [path.name for path in folder.checkpoints.complete()]
    assert kept == ["999999", "1000000", "1000001"][-keep:]
    assert (folder.checkpoints.path / "1st-try").exists()
