"""Signs of health are read where there is enough to tell, on one core, and the program has its cores back."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import ocssl
from ocssl import diagnosis

CORES = 3


@pytest.fixture
def cores() -> object:
    """Any number but one, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(CORES)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def learner() -> ocssl.Learner:
    """One that has taken a step."""
    learner = ocssl.Learner(
        strategy="er", backbone="convnet-w8", image_size=16, stream_batch=4, batch=8, passes=1, memory_size=16,
        hidden_dim=16, output_dim=16, device="cpu",
    )  # fmt: skip
    return learner.partial_fit(torch.randint(0, 256, (16, 3, 16, 16), dtype=torch.uint8))


def test_signs_are_read_on_one_core(learner: ocssl.Learner, cores: None, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(diagnosis, "effective_rank", lambda features: seen.append(torch.get_num_threads()) or 9.0)
    assert diagnosis.diagnose(learner)["effective_rank"] == 9.0
    assert (seen, torch.get_num_threads()) == ([1], CORES)


@pytest.mark.parametrize(("rows", "told"), [(1, False), (2, False), (7, False), (8, True), (9, True)])
def test_a_batch_too_small_to_tell_is_not_called_collapsed(rows: int, told: bool) -> None:
    learner = ocssl.Learner(
        strategy="cla-b", backbone="convnet-w8", image_size=16, stream_batch=16, passes=1, hidden_dim=16, output_dim=16,
        device="cpu",
    )  # fmt: skip
    learner.partial_fit(torch.zeros(rows, 3, 16, 16, dtype=torch.uint8)).flush()
    learner.output.features.backbone.data[:] = 1.0
    signs = diagnosis.diagnose(learner)
    assert ("feature_std" in signs, "effective_rank" in signs) == (told, told)
    assert (diagnosis.collapse(signs) is not None) == told


def test_the_cores_come_back_after_an_error(
    learner: ocssl.Learner, cores: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "effective_rank", lambda features: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        diagnosis.diagnose(learner)
    assert torch.get_num_threads() == CORES


def test_two_threads_at_once_leave_the_cores_as_they_were(
    learner: ocssl.Learner, cores: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one must not take the first one's single core for what the program has."""
    together = threading.Barrier(2)

    def waits(features: torch.Tensor) -> float:
        try:  # where both could be in here at once, the one that came first leaves first
            together.wait(timeout=0.2)
        except threading.BrokenBarrierError:
            return 1.0
        return 2.0

    monkeypatch.setattr(diagnosis, "effective_rank", waits)
    with ThreadPoolExecutor(2) as threads:
        ranks = [signs["effective_rank"] for signs in threads.map(diagnosis.diagnose, [learner, learner])]
    assert ranks == [1.0, 1.0]  # one after the other
    assert torch.get_num_threads() == CORES
