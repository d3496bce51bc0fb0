"""Reading of regular files, and nothing else; writing beside other processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ocssl.common.files import atomic_write, read_file, remove_drafts, writing
from ocssl.errors import CheckpointError


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_file(path, limit=5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_file(path, limit=4)


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="not a regular file"):
            read_file(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "none")


@pytest.mark.parametrize("made", ["touch", "mkdir"])
def test_a_draft_that_another_process_removes_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    make, calls = getattr(Path, made), list[Path]()

    def make_and_lose_the_first(path: Path, **options: bool) -> None:
        make(path, **options)
        calls.append(path)
        if len(calls) == 1:
            remove_drafts(tmp_path, "a.txt")  # as the other process does after a write of its own

    monkeypatch.setattr(Path, made, make_and_lose_the_first)
    atomic_write(tmp_path / "a.txt", "text" if made == "touch" else lambda draft: draft.write_text("text"))
    assert len(calls) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "text"


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    said = r"cannot write '.*x\.onnx': '.*file' is a file, not a folder"
    with pytest.raises(CheckpointError, match=said), writing(file / "x.onnx"):
        file.mkdir(exist_ok=True)
