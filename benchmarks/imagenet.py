"""ImageNet100 rehearsed on a stand-in of the same layout, and what the real set will take.

The stand-in has the customary hundred classes as ILSVRC folders of drawn JPEGs. Decoding, cache and activations are
measured on it. Times of training steps need a GPU: give the one that ``benchmarks/large.py`` measured there.

    python benchmarks/imagenet.py --stand-in data/imagenet --train 10 --test 2   # only draw
    python benchmarks/imagenet.py --step-seconds 0.0284 --output benchmarks/measured/imagenet.json
    ocssl paper run high-simsiam --dataset imagenet100 --data-root data          # what is rehearsed
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from ocssl import data
from ocssl.data.formats.imagenet import customary_classes
from ocssl.nn.resnet import ResNet18
from ocssl.results.published import hyperparameter_lines
from ocssl.strategies.base import REPLAY_BATCH

SIDES = (500, 375)  # of a usual photograph of ILSVRC
TRAIN, TEST = 126_689, 5_000  # images of the hundred classes
HELD_OUT, STREAM_BATCH, MEMORY = 0.1, 10, 2_000
SIZE, VIEWS = 224, 2


def draw(folder: Path, train: int, test: int, seed: int = 0) -> None:
    """Write ``train`` and ``test`` JPEGs of each class: small noise enlarged, which compresses as photographs do."""
    chance = np.random.default_rng(seed)
    for split, each in (("train", train), ("val", test)):
        for synset in customary_classes():
            place = folder / split / synset
            place.mkdir(parents=True, exist_ok=True)
            for number in range(each):
                patch = chance.integers(0, 256, (24, 32, 3), dtype=np.uint8)
                image = Image.fromarray(patch).resize(SIDES, Image.Resampling.BICUBIC)
                image.save(place / f"{synset}_{number}.JPEG", quality=90)


def saved_bytes(images: int = 2) -> int:
    """Bytes that ResNet-18 keeps for the backward pass of an image in float32, without its weights."""
    network = ResNet18(image_size=SIZE)
    weights = {parameter.data_ptr() for parameter in network.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        network(torch.zeros(images, 3, SIZE, SIZE))
    return sum(kept.values()) // images


def measure(root: Path, train: int, test: int) -> dict[str, float]:
    """Times and sizes of the stand-in on this machine."""
    draw(root / "imagenet", train, test)
    os.environ["OCSSL_CACHE"] = str(root / "cache")
    began = time.perf_counter()
    dataset = data.load("imagenet100", root=root, progress=False)
    decoded = time.perf_counter() - began
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0))
    began = time.perf_counter()
    for rows in order.split(STREAM_BATCH):
        dataset.images(rows)
    gathered = time.perf_counter() - began
    return {
        "images": len(dataset),
        "decoded_per_second": len(dataset) / decoded,
        "gathered_per_second": len(dataset) / gathered,
        "bytes_per_image": 3 * SIZE * SIZE,
        "saved_bytes_per_view_fp32": saved_bytes(),
        "cores": os.cpu_count() or 1,
    }


def estimate(found: dict[str, float], seconds_per_step: float | None) -> dict[str, Any]:
    """What the real set takes: the high budget, one run."""
    batch = STREAM_BATCH + REPLAY_BATCH
    (paper,) = hyperparameter_lines("high", "cla-e", "simsiam", "imagenet100")
    steps = int(paper["n_p"]) * (int(TRAIN * (1 - HELD_OUT)) // STREAM_BATCH)
    half = found["saved_bytes_per_view_fp32"] / 2  # kept in bf16
    return {
        "cache_gb": (TRAIN + TEST) * found["bytes_per_image"] / 1e9,
        "decoding_minutes_here": (TRAIN + TEST) / found["decoded_per_second"] / 60,
        "device_gb_for_resident_images": TRAIN * found["bytes_per_image"] / 1e9,
        "replay_memory_gb": (MEMORY + STREAM_BATCH) * found["bytes_per_image"] / 1e9,
        "activations_gb": VIEWS * batch * half / 1e9,
        "steps": steps,
        "training_minutes": "to be measured on a GPU" if seconds_per_step is None else steps * seconds_per_step / 60,
        "probes": "to be measured on a GPU",
    }


def main() -> None:
    """Draw, or draw, measure and estimate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stand-in", type=Path, help="only draw the stand-in into this folder")
    parser.add_argument("--train", type=int, default=10, help="training images of each class")
    parser.add_argument("--test", type=int, default=2, help="test images of each class")
    parser.add_argument("--step-seconds", type=float, help="of a training step, as measured on a GPU")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    if given.stand_in is not None:
        draw(given.stand_in, given.train, given.test)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), given.train, given.test)
    text = json.dumps({"measured": found, "estimated": estimate(found, given.step_seconds)}, indent=1)
    print(text)
    if given.output is not None:
        given.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
