"""What is known of a state: its life so far, and how good its encoder is on labelled images."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ocssl import checkpoint, data
from ocssl.common.checkpoints import CheckpointFolder, MetricsFile
from ocssl.common.console import number_of, warn
from ocssl.common.files import read_file
from ocssl.data.dataset import first_per_class
from ocssl.data.layout import NoSplit
from ocssl.errors import CheckpointError, ConfigError, DataError, unreadable
from ocssl.evaluation import extract, knn_probe, linear_probe
from ocssl.evaluation.quality import colour_histogram, raw_pixels
from ocssl.export.encoder import FrozenEncoder, load
from ocssl.live.gate import KIND, Quality
from ocssl.live.seen import count_images
from ocssl.live.start import network_name
from ocssl.live.summary import summary, verdict

_Found = TypeVar("_Found")

HELD_OUT = 4  # one image in so many is tested on, where a data set has no test images
CHOOSING = 5  # one labelled image in so many chooses the strength of the linear probe


def is_state(path: str | Path) -> bool:
    """Whether a folder is the state of a live learner, saved at least once.

    >>> is_state("nowhere")
    False
    """
    saved = CheckpointFolder(Path(path) / "checkpoints").last
    return saved is not None and (saved / "learner").is_dir() and not (Path(path) / "config.yaml").exists()


def life(path: str | Path) -> Iterator[tuple[str, str]]:
    """Facts of a state by name, in the order in which they are shown; the last ones, without a name, are a table."""
    folder = Path(path)

    def read(saved: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], int]:
        learner, gate = (_facts(saved / kind / f"{kind}.json") for kind in ("learner", KIND))
        return learner, gate, CheckpointFolder(folder).read_state(saved)["place"], _pending(saved / "learner")

    learner, gate, place, pending = _of_last(folder, read)
    settings = learner["config"]
    parts = ", ".join(str(settings[name]) for name in ("strategy", "method", "memory", "optimizer") if settings[name])
    yield "learner", f"{network_name(settings)}, {parts}"
    side, pixels = settings["image_size"], settings.get("pixel_range")
    values = "pixel_range unset" if pixels is None else f"pixel_range {pixels[0]:g} to {pixels[1]:g}"
    yield "images", f"{side}×{side}, fit {settings.get('fit', 'crop')}, {values}"
    for source, taken in place["positions"].items():
        learned, refused = count_images(folder / "ledger.sqlite", place["noted"], source, taken)
        yield "source", f"{source}: {number_of(learned, 'image')}{f', {refused:,} refused' if refused else ''}"
    cost = learner["budget"]
    waits = f" ({pending:,} more {'waits' if pending == 1 else 'wait'} for the next ones)" if pending else ""
    yield (
        "learned",
        f"from {number_of(learner['seen'], 'image')}{waits}, {number_of(cost['steps'], 'step')}, CBP {cost['spent']:,}",
    )
    back = (
        f"; learning went back {number_of(gate['halvings'], 'time')}, each with half of it" if gate["halvings"] else ""
    )
    yield "lr", f"{settings['lr']:g}{back}"
    encoder = _facts(folder / "encoder" / "encoder.json")
    yield "encoder", f"version {encoder['version']}, learned from {number_of(encoder['seen'], 'image')}"
    kept = gate["sample"]
    yield "kept", f"{-(-kept['count'] // kept['every']):,} of {number_of(kept['count'], 'image')}, for measuring"
    if gate["quality"] is not None:
        quality = Quality(**gate["quality"])
        pretrained, heads_only = settings.get("weights") is not None, not cost["spent"]
        for line in (*summary(quality), verdict(quality, pretrained=pretrained, heads_only=heads_only)):
            yield "", line


def settings_of(path: str | Path) -> dict[str, Any]:
    """Every setting of a state's learner."""
    settings: dict[str, Any] = _of_last(path, lambda saved: _facts(saved / "learner" / "learner.json"))["config"]
    return settings


def along(path: str | Path) -> dict[str, list[float]]:
    """Numbers of every check so far by name, images seen as ``seen``."""
    found: dict[int, dict[str, Any]] = {}
    for line in MetricsFile(Path(path) / "metrics.jsonl").read():
        if isinstance(quality := line.get("quality"), dict):
            found[quality["seen"]] = quality
    names = ("seen", "order", "in_time", "published", "start", "pixels", "colours", "rank", "rank_start", "agreement")
    return {name: [check[name] for check in found.values()] for name in names}


@dataclass(frozen=True)
class Probed:
    """Accuracies of one kind of features in percent."""

    features: str
    knn: float
    linear: float
    test: int
    """Images that the accuracies are of."""


def probe_state(
    path: str | Path, dataset: str, *, root: str | Path | None = None, samples_per_class: int | None = None
) -> Iterator[Probed]:
    """k-NN and a linear probe on labelled images, for the encoder before and after, and for both yardsticks.

    Args:
        dataset: a name or an address such as ``folder:PATH``, with a folder per class. Where it has no test images, one
            image in four is held out.
        samples_per_class: most labelled images of a class to learn from; None: all.
    """
    now = load(Path(path) / "encoder")
    train, test = _labelled(dataset, now, root, samples_per_class)
    kinds: dict[str, Callable[[Tensor], Any]] = {
        "at the start": _start(Path(path), now).transform,
        "published encoder": now.transform,
        "raw pixels": raw_pixels,
        "colours": colour_histogram,
    }
    (images, labels), (others, truth) = train, test
    part = torch.arange(len(labels)) % CHOOSING == CHOOSING - 1
    for name, encode in kinds.items():
        known, asked = extract(encode, images), extract(encode, others)
        centre = known.mean(0)
        knn = knn_probe(known - centre, labels, asked - centre, truth, k=20).percent
        linear = linear_probe(known[~part], labels[~part], known[part], labels[part], asked, truth, seed=0).accuracy
        yield Probed(name, knn, linear, len(truth))


def _labelled(
    dataset: str, encoder: FrozenEncoder, root: str | Path | None, most: int | None
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Images and labels to learn from, and to test on, as an encoder takes them; a warning counts unusable ones."""
    if most is not None and most < 1:
        raise ConfigError(f"samples_per_class must be at least 1, not {most}")

    def load_split(split: str) -> data.Dataset:
        found = data.load(
            dataset,
            split=split,
            root=root,
            image_size=encoder.image_size,
            fit=encoder.fit,
            pixel_range=encoder.pixel_range,
            on_bad_image="skip",
        )
        if found.skipped:
            first = found.skipped[0]
            warn(f"left out {number_of(len(found.skipped), 'unusable image')}, {first.name} for one: {first.reason}")
        if found.labels is None:
            raise DataError(f"the {split} split of '{dataset}' has no labels; put its images into a folder per class")
        return found

    train = load_split("train")
    kept = torch.arange(len(train))
    try:
        test = load_split("test")
        asked = torch.arange(len(test))
    except NoSplit:
        held = kept % HELD_OUT == HELD_OUT - 1
        test, kept, asked = train, kept[~held], kept[held]
    labels = torch.as_tensor(train.labels)
    kept = kept[first_per_class(labels[kept], most)]
    count = len(labels[kept].unique())
    if len(kept) < CHOOSING or count < 2 or not len(asked):
        images = f"{number_of(len(kept), 'image')} of {number_of(count, 'label')}"
        raise DataError(
            f"'{dataset}' leaves {images} to learn from and {len(asked):,} to test on; give at least {CHOOSING} images "
            "of 2 labels to learn from, and 1 to test on"
        )
    return (train.images(kept), labels[kept]), (test.images(asked), torch.as_tensor(test.labels)[asked])


def _start(path: Path, like: FrozenEncoder) -> FrozenEncoder:
    """The encoder at the start of a state."""
    facts, tensors = _of_last(path, lambda saved: checkpoint.read(saved / KIND, KIND))
    start = copy.deepcopy(like)
    start.backbone.load_state_dict(checkpoint.sub_state(tensors, f"encoder{facts['roles']['start']}."))
    return start


def _of_last(path: str | Path, read: Callable[[Path], _Found]) -> _Found:
    """What ``read`` finds in the last checkpoint of a state; a learner at work may replace that meanwhile."""
    while True:
        saved = _last(path)
        try:
            return read(saved)
        except CheckpointError:
            if _last(path) == saved:
                raise


def _last(path: str | Path) -> Path:
    return CheckpointFolder(Path(path) / "checkpoints").complete()[-1]


def _pending(learner: Path) -> int:
    """Images of a saved learner that wait for a full minibatch, from the head of its file of tensors."""
    try:
        with safe_open(next(learner.glob("*.safetensors"), learner), "pt") as file:
            return int(file.get_slice("pending").get_shape()[0])
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"'{learner}' cannot be read as a saved learner: {error}") from error


def _facts(index: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads(read_file(index))["facts"]
        return facts
    except OSError as error:
        older = index.stem == KIND and isinstance(error, FileNotFoundError)
        raise CheckpointError(
            f"{unreadable(index, error)}{'; the state is of an earlier version' if older else ''}"
        ) from error
    except ValueError as error:
        raise CheckpointError(f"'{index}' is damaged: {error}") from error
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"'{index}' does not fit this version of ocssl: {error}") from error
