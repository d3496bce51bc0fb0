"""Frames to learn from, and a learner small enough to learn from them in no time."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from ocssl import Learner
from ocssl.data.dataset import IMAGENET_MEAN, IMAGENET_STD
from ocssl.live import learn
from ocssl.live.seen import SeenIndex

TINY = {
    "strategy": "cla-e",
    "backbone": "convnet-w8",
    "image_size": 8,
    "stream_batch": 4,
    "batch": 8,
    "passes": 1,
    "memory_size": 24,
    "hidden_dim": 16,
    "output_dim": 32,
    "device": "cpu",
}


def tiny_options() -> list[str]:
    """The same for the command line."""
    return [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]


def frame(number: int, height: int = 8, width: int = 8) -> np.ndarray:
    """Random pixels ``(height, width, 3)``."""
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)


def png(number: int) -> bytes:
    """One frame as the content of a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(frame(number)).save(buffer, "PNG")
    return buffer.getvalue()


def write_frame(path: Path, number: int, **size: int) -> Path:
    """One frame as a PNG file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(frame(number, **size)).save(path)
    return path


def write_frames(folder: Path, numbers: range) -> Path:
    """Frames by number: ``00012.png``."""
    for number in numbers:
        write_frame(folder / f"{number:05d}.png", number)
    return folder


def write_tar(path: Path, numbers: range) -> Path:
    with tarfile.open(path, "w") as archive:
        for number in numbers:
            content = png(number)
            member = tarfile.TarInfo(f"{number:05d}.png")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def seen_images(index: SeenIndex, source: str) -> list[tuple[str, str | None]]:
    """Name and problem of every committed image of a source, in order; the problem is None for those used."""
    query = "SELECT CAST(name AS BLOB), problem FROM arrivals WHERE CAST(source AS BLOB) = ? ORDER BY number"
    found = index._file.execute(query, (source.encode(errors="surrogatepass"),))
    return [(name.decode(errors="surrogatepass"), problem) for name, problem in found]


def entries(state: Path, source: str) -> dict[str, str | None]:
    with SeenIndex(state / "ledger.sqlite", 10**9) as index:
        return dict(seen_images(index, source))


def learned(state: Path, source: str) -> list[str]:
    return [name for name, problem in entries(state, source).items() if problem is None]


def refused(state: Path, source: str) -> dict[str, str]:
    return {name: problem for name, problem in entries(state, source).items() if problem is not None}


def by_hand(numbers: list[int]) -> Learner:
    """A learner that got these frames directly."""
    learner = Learner(mean=IMAGENET_MEAN, std=IMAGENET_STD, **TINY)
    return learner.partial_fit(np.stack([frame(number) for number in numbers])).flush()


def assert_alike(first: Learner, second: Learner) -> None:
    assert first.seen == second.seen
    for one, other in zip(first.network.state_dict().values(), second.network.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def quiet_learn(source: object, state: Path, **options: object) -> Learner:
    where = source if isinstance(source, list) else str(source)
    return learn(where, state, **{"info": lambda line: None, **TINY, **options})


def own_network(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    )
