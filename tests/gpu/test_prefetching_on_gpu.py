"""Images read ahead by a thread that uses the device while the learner captures its steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import ocssl
from ocssl.data.dataset import DatasetInfo, MappedDataset
from ocssl.distributed import ProcessGroup
from ocssl.runs import data as run_data

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

COUNT, SIZE = 600, 32


class Backwards:
    """A schedule through the images from the last to the first."""

    def __len__(self) -> int:
        return COUNT

    def indices(self, start: int, stop: int) -> torch.Tensor:
        return torch.arange(COUNT - 1 - start, COUNT - 1 - stop, -1)


def test_a_learner_that_reads_ahead_from_disk_learns_what_it_learns_from_resident_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (COUNT, 3, SIZE, SIZE), dtype=np.uint8)
    pixels.tofile(tmp_path / "images.u8")
    source = MappedDataset(tmp_path / "images.u8", SIZE, DatasetInfo("random"), torch.zeros(COUNT, dtype=torch.int64))
    device = torch.device("cuda")
    monkeypatch.setattr(run_data, "BLOCK_BYTES", 10 * 3 * SIZE * SIZE)  # so that a block is on its way at every moment
    encoders = {}
    for resident in (True, False):
        dataset = run_data.DeviceDataset(source, device, resident=resident)
        images = run_data.Prefetcher(dataset, Backwards(), ProcessGroup())  # type: ignore[arg-type]
        learner = ocssl.Learner(
            strategy="er", backbone="resnet18-w16", batch=30, passes=2, lr=0.01, memory_size=64, hidden_dim=64,
            output_dim=128, device="cuda", execution="graph", precision="fp32",
        )  # fmt: skip
        for start in range(0, COUNT, 20):
            learner.partial_fit(images.take(start, start + 20))
        images.close()
        encoders[resident] = learner.encode(torch.from_numpy(pixels[:50]))
    torch.testing.assert_close(encoders[False], encoders[True], rtol=1e-4, atol=1e-4)
