"""What a result says of its times."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from helpers.command import TINY
from ocssl.execution import Eager
from ocssl.runs import loop
from ocssl.runs.presets import resolve
from ocssl.runs.progress import LineProgress, Progress, Status
from ocssl.runs.run import start


def test_preparing_is_no_training_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step, steps, watches = Eager.step, 0, 0

    def step_after_preparing(self: Eager, stream: object) -> object:
        nonlocal steps
        steps += 1
        self.preparing += 0.25
        return step(self, stream)  # type: ignore[arg-type]

    def a_minute(*_: object) -> float:
        nonlocal watches
        watches += 1
        return 60.0

    monkeypatch.setattr(Eager, "step", step_after_preparing)
    monkeypatch.setattr(loop, "_seconds_since", a_minute)
    settings = TINY | {"experiences": 2, "samples_per_class": 10, "evaluate": "never"}
    result = start(resolve(settings), tmp_path / "run")
    assert steps > 2
    assert result.prepare_seconds == 0.25 * steps
    assert result.train_seconds + result.eval_seconds == 60 * watches - 0.25 * steps
    assert result.eval_seconds % 60 == 0
    assert len(result.seconds_at) == 2
    assert result.seconds_at[-1] == result.train_seconds


def test_preparing_does_not_slow_the_rate_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Listening(Progress):
        def update(self, status: Status, *, important: bool = False) -> None:
            rates.append(status.rate)

    def step_after_preparing(self: Eager, stream: object) -> object:
        self.preparing = 58.0
        return step(self, stream)  # type: ignore[arg-type]

    rates: list[float] = []
    step = Eager.step
    monkeypatch.setattr(Eager, "step", step_after_preparing)
    monkeypatch.setattr(loop, "_seconds_since", lambda *_: 60.0)
    settings = TINY | {"experiences": 2, "samples_per_class": 10, "evaluate": "never"}
    start(resolve(settings), tmp_path / "run", Listening())
    assert rates[0] == TINY["stream_batch"] / 2  # images in the two seconds that were training


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_log_that_cannot_be_written_stops_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr("sys.stderr", io.TextIOWrapper(full, write_through=True))
        result = start(
            resolve({**TINY, "experiences": 2, "samples_per_class": 10, "evaluate": "never"}),
            tmp_path / "run",
            LineProgress(),
        )
    assert result.samples > 0
