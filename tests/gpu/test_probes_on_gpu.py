"""Probes whose epochs are captured, against the same epochs run one kernel at a time and against the processor's."""

from __future__ import annotations

import pytest
import torch

from ocssl.evaluation import linear_probes, probes

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def material(device: str) -> list[object]:
    """Three encoders' features of the same noisy clouds; the last minibatch of an epoch is incomplete."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(7, 20, generator=generator)
    found: list[object] = []
    for count in (700, 300, 400):
        labels = torch.randint(7, (count,), generator=generator)
        noise = torch.randn(3, count, 20, generator=generator)
        found += [(centres[labels] + 1.4 * noise).to(device), labels.to(device)]
    return found


def test_captured_probes_are_those_that_were_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = linear_probes(*material("cuda"), seed=3)  # type: ignore[arg-type]
    monkeypatch.setattr(probes, "_Replayed", lambda work: work)
    plain = linear_probes(*material("cuda"), seed=3)  # type: ignore[arg-type]
    for one, other in zip(captured, plain, strict=True):
        assert one.epochs == other.epochs
        assert one.test == other.test
        torch.testing.assert_close(one.weight, other.weight, rtol=1e-5, atol=1e-5)


def test_probes_on_a_gpu_score_what_the_processor_scores() -> None:
    for one, other in zip(
        linear_probes(*material("cuda"), seed=3),  # type: ignore[arg-type]
        linear_probes(*material("cpu"), seed=3),  # type: ignore[arg-type]
        strict=True,
    ):
        assert one.accuracy == pytest.approx(other.accuracy, abs=1)
