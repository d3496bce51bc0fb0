"""Checkpoints are complete or absent, and metrics are whole lines, whatever fails while they are written."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ocssl.common.checkpoints import CheckpointFolder, MetricsFile
from ocssl.errors import CheckpointError


def touch(draft: Path) -> None:
    (draft / "weights").touch()


def test_the_newest_checkpoints_are_kept_in_order_of_their_numbers(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    (tmp_path / "999999").mkdir()
    (tmp_path / "999999" / "state.json").write_text("{}")
    for step in range(3):
        checkpoints.save(touch, {"step": step}, keep=2)
    assert [path.name for path in checkpoints.complete()] == ["1000001", "1000002"]
    assert [checkpoints.read_state(path)["step"] for path in checkpoints.complete()] == [1, 2]


def test_checkpoints_that_cannot_be_read_are_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run or a learner would begin anew, and cut its metrics to nothing."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, refuse)
    with pytest.raises(CheckpointError, match=f"the checkpoints in '{tmp_path}' cannot be read: Permission denied"):
        CheckpointFolder(tmp_path).complete()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_save_that_fails_leaves_the_earlier_checkpoint_and_no_draft(tmp_path: Path, error: BaseException) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    saved = checkpoints.save(touch, {}, keep=1)

    def fails(draft: Path) -> None:
        touch(draft)
        raise error

    with pytest.raises((KeyboardInterrupt, CheckpointError)):
        checkpoints.save(fails, {}, keep=1)
    assert [*tmp_path.iterdir()] == [saved]


def test_drafts_of_a_killed_process_are_not_checkpoints_and_are_removed(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    saved = checkpoints.save(touch, {}, keep=1)
    (tmp_path / "draft-0badc0ffee00").mkdir()
    assert checkpoints.complete() == [saved]
    checkpoints.remove_drafts()
    assert [*tmp_path.iterdir()] == [saved]


@pytest.mark.parametrize("text", ["{", "[1]", None])
def test_a_checkpoint_without_a_state_is_named(tmp_path: Path, text: str | None) -> None:
    checkpoints = CheckpointFolder(tmp_path)
    saved = checkpoints.save(touch, {}, keep=1)
    (saved / "state.json").unlink()
    if text is not None:
        (saved / "state.json").write_text(text)
    with pytest.raises(CheckpointError, match="000001' cannot be read as a checkpoint"):
        checkpoints.read_state(saved)


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file can grow beyond so many bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_line_of_metrics_that_a_full_disk_cuts_short_leaves_nothing(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    metrics.append({"seen": 1})
    with files_up_to(metrics.size + 5), pytest.raises(CheckpointError, match=r"cannot write '.*metrics\.jsonl'"):
        metrics.append({"seen": 2})
    metrics.append({"seen": 3})
    assert [json.loads(line) for line in metrics.path.read_text().splitlines()] == [{"seen": 1}, {"seen": 3}]


def test_metrics_are_cut_but_never_lengthened(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    assert (metrics.size, metrics.sync()) == (0, 0)
    metrics.truncate(0)
    assert not metrics.path.exists()
    metrics.append({"seen": 1})
    size = metrics.sync()
    metrics.append({"seen": 2})
    metrics.truncate(size)
    metrics.truncate(size + 100)
    assert metrics.path.read_text() == '{"seen": 1}\n'
