"""What is printed while other processes run jobs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn

from ocssl.common.checkpoints import MetricsFile
from ocssl.engines import progress
from ocssl.engines.jobs import Job


def begun(folder: Path, samples: int, of: int = 400) -> Job:
    """A job whose run has learned from so many of its images, and was measured since."""
    folder.mkdir()
    metrics = MetricsFile(folder / "metrics.jsonl")
    metrics.append({"kind": "train", "samples": samples, "of": of})
    metrics.append({"kind": "probe", "point": "1", "samples": samples, "linear": 20.0})
    return Job(folder.name, {}, folder)


def test_a_log_has_a_line_with_the_time_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0, 59, 60, 60, 60, 90, 120, 120, 120])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    early, late, new = begun(tmp_path / "a", 100), begun(tmp_path / "b", 300), Job("c", {}, tmp_path / "c")
    with progress.PoolProgress(4, quiet=False) as shown:
        for over, jobs in ((0, []), (0, [early, new]), (0, [late]), (1, [late, new])):
            shown.update(over, jobs)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "0 of 4 runs over, 2 in progress",
        "1 of 4 runs over, 2 in progress, about 1:30 left",  # 100 of 1,600 images were done, now 700
    ]


def test_the_number_of_runs_need_not_be_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0)
    with progress.PoolProgress(None, quiet=False) as shown:
        shown.update(1, [begun(tmp_path / "a", 100)])
    assert capsys.readouterr().err == "1 run over, 1 in progress\n"


def test_quiet_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0)
    with progress.PoolProgress(1, quiet=True) as shown:
        shown.update(0, [begun(tmp_path / "a", 100)])
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar_for_each_job_and_none_where_lines_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    bars = Progress(
        TextColumn("{task.description}"), MofNCompleteColumn(), console=Console(file=screen, force_terminal=True)
    )
    monkeypatch.setattr(progress, "make_bars", lambda: bars)
    monkeypatch.setattr(progress, "LOOK_EVERY", 0)
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    with progress.PoolProgress(3, quiet=False) as shown:
        shown.update(0, [begun(tmp_path / "a", 100), begun(tmp_path / "b", 300)])
        assert [(task.description, task.completed, task.total) for task in bars.tasks] == [
            ("all, 0 of 3 over", 400, 1200),
            ("a", 100, 400),
            ("b", 300, 400),
        ]
        shown.pause()
        drawn = screen.getvalue()
        bars.console.print("a line")
        assert screen.getvalue() == drawn + "a line\n", "nothing is drawn while a caller prints"
        shown.update(1, [Job("b", {}, tmp_path / "b")])
        assert [task.description for task in bars.tasks] == ["all, 1 of 3 over", "b"]


def test_metrics_that_cannot_be_read_are_no_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 0)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "metrics.jsonl").write_text("half a li\n")
    with progress.PoolProgress(2, quiet=False) as shown:
        shown.update(0, [Job("a", {}, tmp_path / "a")])
    assert capsys.readouterr().err == "0 of 2 runs over, 1 in progress\n"
