"""Signs of health are read where there is enough to tell."""

from __future__ import annotations

import pytest
import torch

import ocssl
from ocssl import diagnosis
from ocssl.evaluation import collapsed


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
    reason = collapsed(signs.get("feature_std"), signs.get("effective_rank"))
    assert (reason is not None) == told
