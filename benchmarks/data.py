"""What the cache of decoded images costs and brings: memory while preparing and streaming, speed against decoding.

python benchmarks/data.py                # 20,000 JPEGs of 224×224, about 4 GB of scratch space
python benchmarks/data.py --count 2000   # a quick look
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
from PIL import Image

from ocssl import data
from ocssl.imaging import decode

STREAM_BATCH = 10


class MemoryWatch:
    """Peak growth of this process's resident memory while the watch runs, sampled every few milliseconds."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._stop = threading.Event()
        self.start_bytes = self.peak_bytes = self._process.memory_info().rss

    @property
    def growth_megabytes(self) -> float:
        return (self.peak_bytes - self.start_bytes) / 1e6

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(0.005):
            self.peak_bytes = max(self.peak_bytes, self._process.memory_info().rss)


def write_jpegs(folder: Path, count: int, size: int) -> None:
    """Smooth random pictures, which compress about as photographs do."""

    def write(number: int) -> None:
        coarse = np.random.default_rng(number).integers(0, 256, (size // 8, size // 8, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC)
        picture.save(folder / f"class{number % 20:02d}" / f"{number:06d}.jpg", quality=90)

    for label in range(20):
        (folder / f"class{label:02d}").mkdir(parents=True)
    with ThreadPoolExecutor() as pool:
        list(pool.map(write, range(count)))


def seconds_to_decode(files: list[Path], size: int, workers: int) -> float:
    """Seconds per image to read and decode files, in minibatches as a stream would ask for them."""
    with ThreadPoolExecutor(workers) as pool:
        begin = time.perf_counter()
        for start in range(0, len(files), STREAM_BATCH):
            np.stack(list(pool.map(lambda file: decode(file, size), files[start : start + STREAM_BATCH])))
        return (time.perf_counter() - begin) / len(files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=224)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["OCSSL_CACHE"] = f"{scratch}/cache"
        folder = Path(scratch) / "jpegs"
        print(f"writing {options.count} JPEGs of {options.size}×{options.size}", flush=True)
        write_jpegs(folder, options.count, options.size)

        watch = MemoryWatch()
        with watch.running():
            begin = time.perf_counter()
            source = data.load(f"folder:{folder}", image_size=options.size)
            prepare_seconds = time.perf_counter() - begin
            prepare_growth = watch.growth_megabytes

            assert source.labels is not None
            stream = data.streams.class_incremental(source.labels, experiences=20, stream_batch=STREAM_BATCH)
            begin = time.perf_counter()
            for indices in stream:
                source.images(indices)
            stream_seconds = (time.perf_counter() - begin) / len(stream)

        begin = time.perf_counter()
        data.load(f"folder:{folder}", image_size=options.size)
        reopen_seconds = time.perf_counter() - begin
        names = source.column("name")
        sample = [folder / names[index] for indices in stream for index in indices.tolist()][:2000]
        cores = os.cpu_count() or 1
        decode_one, decode_all = (seconds_to_decode(sample, options.size, workers) for workers in (1, cores))

    pixels = options.count * 3 * options.size**2
    print(f"cache                      {pixels / 1e9:8.2f} GB")
    print(f"prepare                    {prepare_seconds:8.1f} s   ({options.count / prepare_seconds:.0f} images/s)")
    print(f"open again                 {reopen_seconds:8.2f} s")
    print(f"stream from the cache      {1e6 * stream_seconds:8.1f} µs per image")
    for workers, seconds in ((1, decode_one), (cores, decode_all)):
        ratio = seconds / stream_seconds
        print(f"decode with {workers:2d} threads     {1e6 * seconds:8.1f} µs per image, {ratio:.0f} times as long")
    print(f"memory growth, preparing   {prepare_growth:8.0f} MB")
    print(f"memory growth, both        {watch.growth_megabytes:8.0f} MB")


if __name__ == "__main__":
    main()
