"""A long life: memory and throughput of ``ocssl learn`` over hundreds of thousands of images that drift.

Other work on the machine slows everything down, so the throughput is also told in units of a learner that was born a
moment ago and is given the same work at the same time.

python benchmarks/soak.py                  # 200,000 images, a few minutes on one core
python benchmarks/soak.py --count 20000    # a quick look
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import psutil

from ocssl import Learner
from ocssl.data.reader import Item
from ocssl.live import learn
from ocssl.live.sources import ImageStream

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
LOOKS = 100  # at the clock, at the memory and at the newborn


@dataclass(frozen=True)
class Look:
    """Images so far, seconds that the learner took for them, resident bytes, and a newborn's CPU seconds per image."""

    images: int
    wall: float
    cpu: float
    memory: int
    newborn: float


class Drifting(ImageStream):
    """Noise around a colour that turns once per hundred thousand images; looks at the learner on the way."""

    key = "drifting"

    def __init__(self, count: int) -> None:
        self.count = count
        self.given = 0
        self.looks: list[Look] = []
        self._looking = np.zeros(2)  # wall and CPU seconds that are not the learner's
        self._process = psutil.Process()
        self._generator = np.random.default_rng(0)

    def take(self, count: int) -> list[Item]:
        if self.given >= len(self.looks) * self.count / LOOKS:
            self._look()
        count = min(count, self.count - self.given)
        pixels = self._draw(count)
        self.given += count
        self.exhausted = self.given == self.count
        return [Item(f"{self.given}", image) for image in pixels]

    def ack(self, item: Item, *, stamp: str = "", problem: str | None = None) -> None:
        pass

    def _draw(self, count: int) -> np.ndarray:
        angle = 2 * np.pi * self.given / 100_000 + np.array([0, 2, 4])
        pixels = self._generator.normal(128 + 60 * np.cos(angle), 40, (count, 8, 8, 3))
        return pixels.clip(0, 255).astype(np.uint8)

    def _look(self) -> None:
        before = np.array([time.perf_counter(), time.process_time()])
        memory = self._process.memory_info().rss
        wall, cpu = before - self._looking
        self.looks.append(Look(self.given, wall, cpu, memory, self._newborn()))
        self._looking += np.array([time.perf_counter(), time.process_time()]) - before

    def _newborn(self) -> float:
        learner = Learner(**SETTINGS).partial_fit(self._draw(4 * 50))
        began = time.process_time()
        for _ in range(10):
            learner.partial_fit(self._draw(50))
        return (time.process_time() - began) / 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    options = parser.parse_args()
    arrivals = Drifting(options.count)
    with tempfile.TemporaryDirectory() as folder:
        learn(
            arrivals,
            f"{folder}/state",
            save_every=10,
            report_every=20,
            info=lambda line: print(line, file=sys.stderr, flush=True),
            **SETTINGS,
        )
    tell(arrivals.looks)


def tell(looks: list[Look]) -> None:
    """Slope of the memory after the first tenth, and the last tenth's throughput against the first one's."""
    tenth = LOOKS // 10
    memory = [look.memory / 1e6 for look in looks]
    slope = np.polyfit([look.images for look in looks[tenth:]], memory[tenth:], 1)[0]
    print(f"resident memory: {memory[tenth]:.1f} MB after a tenth, {memory[-1]:.1f} MB at the end")
    print(f"slope after the first tenth: {slope * 1e5:+.3f} MB per 100,000 images")
    # The very first stretch is without replay, and pays for what is set up once.
    first, last = looks[1 : tenth + 1], looks[-tenth:]
    for name, seconds in (
        ("images per wall second", lambda part: part[-1].wall - part[0].wall),
        ("images per CPU second", lambda part: part[-1].cpu - part[0].cpu),
        ("speed of a newborn", lambda part: (part[-1].cpu - part[0].cpu) / np.median([look.newborn for look in part])),
    ):
        rates = [(part[-1].images - part[0].images) / seconds(part) for part in (first, last)]
        told = " and ".join(f"{rate:.4g}" for rate in rates)
        print(f"{name}: {told} in the first and last tenth, ratio {rates[1] / rates[0]:.3f}")


if __name__ == "__main__":
    main()
