"""ImageNet-size images from the memory-mapped cache: how busy the GPU is, against the same steps on resident data.

A file of random pixels is written in the cache's own layout and mapped, as a decoded set is. Both runs take the same
steps: once fed from the file through the runner's feed, once from pixels that lie on the device.

    python benchmarks/large.py --folder /scratch --output large.json
    python benchmarks/large.py --device cpu --size 32 --images 400 --backbone convnet-w8 --batch 24   # a rehearsal
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import ocssl
from ocssl.data.dataset import DatasetInfo, MappedDataset
from ocssl.distributed import ProcessGroup
from ocssl.runs.data import DeviceDataset, Prefetcher


class Straight:
    """A route that shows every image once, in a drawn order."""

    def __init__(self, count: int) -> None:
        self._order = torch.randperm(count, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self._order)

    def indices(self, start: int, stop: int) -> Tensor:
        return self._order[start:stop]


def write_pixels(path: Path, count: int, size: int) -> None:
    """Random pixels, row after row."""
    draw = np.random.default_rng(0)
    with path.open("wb") as file:
        for _ in range(count):
            file.write(draw.bytes(3 * size * size))


def seconds(learner: ocssl.Learner, stretches: list[Tensor] | Prefetcher, count: int, stretch: int) -> float:
    """Time to learn from ``count`` images, a stretch at a time."""
    on_gpu = learner.train_state.device.type == "cuda"
    began = time.perf_counter()
    for start in range(0, count, stretch):
        stop = min(start + stretch, count)
        learner.partial_fit(
            stretches.take(start, stop) if isinstance(stretches, Prefetcher) else stretches[0][: stop - start]
        )
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", default="er")
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--batch", type=int, default=138)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--iid", action="store_true", help="every image of every step is new: the hardest to feed")
    parser.add_argument("--folder", type=Path, help="where the file of pixels goes")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()

    stream_batch = arguments.batch if arguments.iid else 10
    learner = ocssl.Learner(
        strategy="finetune" if arguments.iid else arguments.strategy, backbone=arguments.backbone,
        image_size=arguments.size, stream_batch=stream_batch, batch=arguments.batch,
        passes=1 if arguments.iid else arguments.passes, memory_size=500, device=arguments.device,
    )  # fmt: skip
    stretch = 10 * stream_batch
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        file = Path(folder) / "images.u8"
        write_pixels(file, arguments.images, arguments.size)
        labels = torch.zeros(arguments.images, dtype=torch.int64)
        source = MappedDataset(file, arguments.size, DatasetInfo("random"), labels)
        images = DeviceDataset(source, learner.train_state.device, resident=False)
        feed = Prefetcher(images, Straight(arguments.images), ProcessGroup(), ahead=True)  # type: ignore[arg-type]
        resident = [images[torch.arange(stretch)]]
        seconds(learner, resident, 30 * stream_batch, stretch)  # past the warm-up
        bare = seconds(learner, resident, arguments.images, stretch)
        fed = seconds(learner, feed, arguments.images, stretch)
        feed.close()
    busy = bare / fed
    found = {
        "strategy": "iid" if arguments.iid else arguments.strategy, "batch": arguments.batch, "size": arguments.size,
        "images": arguments.images, "resident_seconds": round(bare, 2), "fed_seconds": round(fed, 2),
        "busy": round(busy, 3), "torch": torch.__version__,
    }  # fmt: skip
    print("  ".join(f"{name} {value}" for name, value in found.items()))
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
