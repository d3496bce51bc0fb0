"""A long life: memory and throughput of ``ocssl learn`` over hundreds of thousands of images that drift.

python benchmarks/soak.py                  # 200,000 images, a few minutes on one core
python benchmarks/soak.py --count 20000    # a quick look
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time

import numpy as np
import psutil

from ocssl.data.origin import Item
from ocssl.live import Intervals, learn
from ocssl.live.arrivals import Arrivals

SETTINGS = {
    "backbone": "convnet-w8",
    "image_size": 8,
    "stream_batch": 50,
    "batch": 100,
    "passes": 1,
    "hidden_dim": 32,
    "output_dim": 64,
    "memory_size": 1000,
    "device": "cpu",
}
SAMPLES = 200  # looks at the clock and at the memory


class Drifting(Arrivals):
    """Noise around a colour that turns once per hundred thousand images, with memory and time taken on the way."""

    key = "drifting"

    def __init__(self, count: int) -> None:
        self.count = count
        self.given = 0
        self.looks: list[tuple[int, float, float, int]] = []
        self._process = psutil.Process()
        self._generator = np.random.default_rng(0)

    def take(self, count: int) -> list[Item]:
        if self.given >= len(self.looks) * self.count / SAMPLES:
            memory = self._process.memory_info().rss
            self.looks.append((self.given, time.perf_counter(), time.process_time(), memory))
        count = min(count, self.count - self.given)
        angle = 2 * np.pi * self.given / 100_000 + np.array([0, 2, 4])
        pixels = self._generator.normal(128 + 60 * np.cos(angle), 40, (count, 8, 8, 3)).clip(0, 255).astype(np.uint8)
        self.given += count
        self.over = self.given == self.count
        return [Item(f"{self.given}", image) for image in pixels]

    def done(self, item: Item, *, stamp: str = "", problem: str | None = None) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    options = parser.parse_args()
    arrivals = Drifting(options.count)
    with tempfile.TemporaryDirectory() as folder:
        learn(
            arrivals,
            f"{folder}/state",
            intervals=Intervals(save=10, report=20),
            tell=lambda line: print(line, file=sys.stderr, flush=True),
            **SETTINGS,
        )
    images, wall, cpu, memory = (np.array(column, dtype=float) for column in zip(*arrivals.looks, strict=True))
    settled = images >= options.count / 10
    slope = np.polyfit(images[settled], memory[settled], 1)[0]
    print(f"resident memory: {memory[settled][0] / 1e6:.1f} MB after a tenth, {memory[-1] / 1e6:.1f} MB at the end")
    print(f"slope after a tenth: {slope:.2f} bytes per image, {slope * 1e5 / 1e6:+.3f} MB per 100,000 images")
    tenth = SAMPLES // 10
    for name, clock in (("wall", wall), ("CPU", cpu)):
        rates = [
            (images[end] - images[start]) / (clock[end] - clock[start]) for start, end in ((1, tenth), (-tenth, -1))
        ]
        print(f"images per {name} second: {rates[0]:.0f} in the first tenth, {rates[1]:.0f} in the last, "
              f"ratio {rates[1] / rates[0]:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
