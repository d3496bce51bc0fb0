"""The parts of live learning by themselves: ledger, pace, drift."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from frames import TINY

from ocssl import Learner
from ocssl.errors import CheckpointError
from ocssl.live import health, pace
from ocssl.live.ledger import Ledger


def test_a_ledger_forgets_what_came_after_the_save_it_goes_on_from(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        for name in "abc":
            ledger.add("cam", name)
        ledger.commit()
    with Ledger(tmp_path / "ledger", count=2) as ledger:
        assert [ledger.holds("cam", name, "") for name in "abc"] == [True, True, False]
        assert ledger.count == 2


def test_a_ledger_that_was_not_committed_holds_its_lines_for_now_only(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.add("cam", "a")
        assert ledger.holds("cam", "a", "")
    with Ledger(tmp_path / "ledger", count=1) as ledger:
        assert not ledger.holds("cam", "a", "")


def test_a_ledger_that_cannot_be_written_says_so_and_keeps_its_lines(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        ledger._file.execute("PRAGMA max_page_count = 4")
        for number in range(2000):
            ledger.add("cam", f"{number:06d}")
        with pytest.raises(CheckpointError, match="cannot be read or written: database or disk is full"):
            ledger.commit()
        assert ledger.holds("cam", "000000", "")
        ledger._file.execute("PRAGMA max_page_count = 100000")
        ledger.commit()
        assert len(list(ledger.learned("cam"))) == 2000


def test_a_damaged_ledger_is_named(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_bytes(b"not a database" * 100)
    with pytest.raises(CheckpointError, match=r"the ledger '.*' cannot be read"):
        Ledger(tmp_path / "ledger")


def chosen(monkeypatch: pytest.MonkeyPatch, rates: list[float], **given: object) -> tuple[dict[str, object], float]:
    measured = iter(rates)
    monkeypatch.setattr(pace, "measure", lambda settings, at_least: next(measured))
    return pace.choose(20, given)


def test_the_richest_settings_that_keep_up_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, rate = chosen(monkeypatch, [400, 200, 60, 50, 10], image_size=32)
    assert settings == {**pace.LADDER[3], "image_size": 32}
    assert rate == 50


def test_a_machine_that_is_too_slow_gets_the_cheapest(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, [3.0]) == (pace.LADDER[0], 3.0)


def test_what_is_given_is_kept_and_nothing_is_measured_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, _ = chosen(monkeypatch, [99, 99, 99], backbone="convnet", hidden_dim=8, output_dim=8)
    assert settings == {"backbone": "convnet", "hidden_dim": 8, "output_dim": 8, "batch": 138, "passes": 3}


def test_measuring_gives_a_rate_and_gives_up_early_on_what_is_too_slow() -> None:
    settings = {**TINY, "memory": "fifo"}
    assert 0 < pace.measure(settings) < 1e6
    assert pace.measure(settings, at_least=1e9) < 1e9


@pytest.fixture
def images() -> torch.Tensor:
    pixels = np.random.default_rng(0).integers(0, 256, (80, 3, 8, 8), dtype=np.uint8)
    return torch.from_numpy(pixels)


def test_drift_is_none_before_there_is_anything_to_compare_then_zero_then_grows(images: torch.Tensor) -> None:
    learner = Learner(**TINY)
    watch = health.Watch(learner)
    watch.arrived(images[:63])
    assert watch.look(refused=0).drift is None
    watch.arrived(images[63:64])
    assert watch.look(refused=0).drift == pytest.approx(0, abs=1e-6)
    before = learner.transform(images[:64])
    learner.partial_fit(images)
    after = learner.transform(images[:64])
    cosine = (before * after).sum(1) / np.linalg.norm(before, axis=1) / np.linalg.norm(after, axis=1)
    assert watch.look(refused=0).drift == pytest.approx(1 - cosine.mean(), abs=1e-5)


def test_after_an_hour_drift_is_counted_from_newer_images(
    images: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(health.time, "monotonic", lambda: clock[0])
    learner = Learner(**TINY)
    watch = health.Watch(learner)
    watch.arrived(images[:64])
    learner.partial_fit(images)
    clock[0] = 1800.0
    look = watch.look(refused=2)
    assert look.drift > 0
    assert (look.drift_seconds, look.seen, look.rate, look.refused) == (1800, 80, 80 / 1800, 2)
    assert "drift" in str(look)
    assert "in 30:00" in str(look)
    clock[0] = 3700.0
    watch.arrived(images[10:74])
    assert watch.look(refused=0).drift == pytest.approx(0, abs=1e-6)
