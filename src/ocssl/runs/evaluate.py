"""Probes of an encoder, during a run and on other data sets.

On a CPU a probe is trained as soon as its features are there. On a GPU several probes take hardly longer than one, so
features wait until a checkpoint or the end of the run needs them, or until they take too much memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ocssl.common.console import number_of, warn
from ocssl.common.files import atomic_write, slug, writing
from ocssl.data import authors
from ocssl.device import oom_guard
from ocssl.errors import CheckpointError, DataError
from ocssl.evaluation import Accuracy, extract_parts, knn_probe, linear_probes
from ocssl.evaluation.quality import colour_histogram, raw_pixels
from ocssl.learner import Learner
from ocssl.runs.config import RunConfig
from ocssl.runs.data import Splits, load_splits
from ocssl.runs.folder import RunFolder, write_tensors
from ocssl.runs.progress import Progress

QUEUE_BYTES = 640 << 20  # of features that wait on a GPU for their probes, which stack a copy: 11 of CIFAR-100

OnProgress = Callable[[int, int], None]


class SplitFeatures(NamedTuple):
    """Frozen features of the three splits of a data set, ``(n, d)`` each."""

    train: Tensor
    validation: Tensor
    test: Tensor

    @property
    def bytes(self) -> int:
        """Their size in memory."""
        return sum(part.nbytes for part in self)


def encoder_of(learner: Learner, config: RunConfig) -> Callable[[Tensor], Tensor]:
    """The learner's backbone, as the run measures it, as a function that takes all images it is given at once."""
    full, crops = config.full_precision, config.eval_crops
    return lambda images: learner.encode(images, batch=len(images), crops=crops, full_precision=full)


ENCODERLESS: dict[str, Callable[[Tensor], Tensor]] = {
    "pixels": raw_pixels,
    "histogram": partial(colour_histogram, levels=8),
}
"""Floors that need no encoder: functions from uint8 images ``(n, 3, s, s)`` to ``(n, d)``, by evaluation point."""


class ProbeQueue:
    """Extracts features, and keeps them until their linear probes are trained.

    Args:
        splits: what is measured on.
        config: its seed decides the order of the probes' minibatches, and ``config.probe`` how they are trained.
    """

    def __init__(self, splits: Splits, config: RunConfig) -> None:
        self.splits = splits
        self._config = config
        self._waiting: dict[str, SplitFeatures] = {}

    def extract(self, encode: Callable[[Tensor], Tensor], progress: OnProgress) -> SplitFeatures:
        """Features of every image, by a function from uint8 ``(n, 3, s, s)`` to ``(n, d)``, as the run measures."""
        full = self._config.full_precision
        return SplitFeatures(*extract_parts(encode, self.splits.subsets, full_precision=full, progress=progress))

    def add(self, name: str, features: SplitFeatures) -> None:
        """Let features wait for their probe under a name."""
        self._waiting[name] = features

    @property
    def full(self) -> bool:
        """Whether the probes should be trained now: always on a CPU, on a GPU when the features take much memory."""
        waiting = list(self._waiting.values())
        return any(not f.train.is_cuda for f in waiting) or sum(f.bytes for f in waiting) > QUEUE_BYTES

    def clear(self) -> list[str]:
        """Drop all features that wait; their names."""
        names, self._waiting = list(self._waiting), {}
        return names

    def run(self, progress: OnProgress) -> dict[str, Accuracy]:
        """Train the probes of all features that wait, and drop these: test accuracies by name."""
        if not self._waiting:
            return {}
        encoders, splits = list(self._waiting.values()), self.splits
        torch.cuda.empty_cache()  # what training and extraction left behind is in pieces too small for a stack
        purpose = f"the probes of {number_of(len(encoders), 'encoder')}"
        with oom_guard(encoders[0].train.device, purpose, "free the device"):
            results = linear_probes(
                [features.train for features in encoders],
                splits.train.labels,
                [features.validation for features in encoders],
                splits.validation.labels,
                [features.test for features in encoders],
                splits.test.labels,
                seed=self._config.learner.seed,
                classes=splits.classes,
                schedule=self._config.probe,
                progress=progress,
            )
        found = {name: result.test for name, result in zip(self._waiting, results, strict=True)}
        self._waiting = {}
        del encoders
        torch.cuda.empty_cache()
        return found

    def knn(self, features: SplitFeatures) -> Accuracy:
        """Test accuracy of k-NN."""
        train, test = self.splits.train, self.splits.test
        return knn_probe(features.train, train.labels, features.test, test.labels, classes=self.splits.classes)


# ---------------------------------------------------------------------- other data sets


class TransferResult(BaseModel):
    """Probes of a finished run's encoder on a data set; accuracies in percent.

    Attributes:
        dataset: what was measured on.
        linear, knn: test accuracy of the linear probe and of k-NN.
        crops: of each image, whose features were averaged.
        train, validation, test: how many images each split had.
        protocol: of the run.
        features_cached: whether features came from an earlier call.
        feature_seconds, linear_seconds, knn_seconds: time spent.
    """

    dataset: str
    linear: float
    knn: float
    crops: int
    train: int
    validation: int
    test: int
    protocol: str
    features_cached: bool
    feature_seconds: float
    linear_seconds: float
    knn_seconds: float


def evaluate_on(
    run: str | Path,
    dataset: str | None = None,
    *,
    changes: Mapping[str, Any] | None = None,
    cache: bool = True,
    progress: Progress | None = None,
) -> TransferResult:
    """Linear probe and k-NN on a finished run's frozen encoder; kept in the run's folder as ``probes/DATASET.json``.

    What cannot be kept, on a full disk or in a read-only folder, is warned of and costs no number.

    Args:
        run: the run's folder.
        dataset: any name or address that :func:`ocssl.data.load` knows; the run's own by default.
        changes: settings to measure with, e.g. ``data_root``, ``device``, ``samples_per_class``. Unless one of them is
            ``measure_on``, test images are measured on.
        cache: keep the features in the run's folder, and use those kept before.
    """
    folder, progress = RunFolder(run), progress or Progress()
    config = _measuring_config(folder.read_config(), dataset, changes or {})
    learner = load_encoder(config, folder)
    splits = load_splits(config, learner.train_state.device)
    queue = ProbeQueue(splits, config)
    with progress:
        began = time.perf_counter()
        kept = _features_file(folder, splits, config) if cache else None
        features = _read_features(kept, learner.train_state.device) if kept else None
        cached = features is not None
        if features is None:
            features = queue.extract(encoder_of(learner, config), partial(progress.work, "features"))
            if kept:
                with _warn_if_not_written():
                    write_tensors(features._asdict(), kept)
        extracted = time.perf_counter()
        queue.add(config.dataset, features)
        linear = queue.run(partial(progress.work, "probe"))[config.dataset]
        probed = time.perf_counter()
        neighbours = queue.knn(features)
        found = TransferResult(
            dataset=config.dataset,
            linear=linear.percent,
            knn=neighbours.percent,
            crops=config.eval_crops,
            train=len(splits.train),
            validation=len(splits.validation),
            test=len(splits.test),
            protocol=config.protocol,
            features_cached=cached,
            feature_seconds=extracted - began,
            linear_seconds=probed - extracted,
            knn_seconds=time.perf_counter() - probed,
        )
    file = slug(found.dataset) + (f"-{found.crops}-crops" if found.crops > 1 else "")
    place = folder.path / "probes" / f"{file}.json"
    with _warn_if_not_written(), writing(place):
        place.parent.mkdir(exist_ok=True)
        atomic_write(place, json.dumps(found.model_dump(), indent=1) + "\n")
    return found


def _measuring_config(run: RunConfig, dataset: str | None, changes: Mapping[str, Any]) -> RunConfig:
    """A run's configuration for measuring its encoder, on another data set if one is named."""
    usual: dict[str, Any] = {"measure_on": "test"}
    if dataset and dataset != run.dataset:
        # A run on a part of its own set does not decide how much of another set is measured on.
        usual |= {"dataset": dataset, "samples_per_class": None}
        if run.protocol == "authors" and dataset in authors.NORMALISATION:
            usual["mean"], usual["std"] = authors.NORMALISATION[dataset]
    return run.change(**{**usual, **changes})


def load_encoder(config: RunConfig, folder: RunFolder) -> Learner:
    """A learner with a finished run's backbone, for use and not for more training."""
    if not folder.encoder.exists():
        raise DataError(f"'{folder.path}' has no encoder.safetensors; the run is not finished")
    if not folder.encoder.is_file():
        raise DataError(f"'{folder.encoder}' is not a regular file")
    learner = Learner(**dict(config.learner) | {"execution": "eager"})
    try:
        learner.network.load_state_dict(load_file(folder.encoder))
    except (SafetensorError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"'{folder.encoder}' cannot be read as this run's encoder: {reason}") from error
    return learner


def _features_file(folder: RunFolder, splits: Splits, config: RunConfig) -> Path:
    """Its name changes with the encoder, the images measured on, their normalisation, their crops and the precision."""
    digest = hashlib.sha256(folder.encoder.read_bytes())
    settings, device = config.learner.to_dict(), splits.train.dataset.device.type  # which decides precision=auto
    known = [settings.get(name) for name in ("mean", "std", "precision")]
    digest.update(repr([*known, config.full_precision, device, config.eval_crops]).encode())
    for subset in splits.subsets:
        images = subset.dataset.source
        digest.update((images.info.identity or images.digest()).encode())  # drawn images come from no files
        digest.update(subset.indices.numpy().tobytes() + subset.labels.numpy().tobytes())
    return folder.path / "features" / f"{slug(config.dataset)}-{digest.hexdigest()[:16]}.safetensors"


def _read_features(place: Path, device: torch.device) -> SplitFeatures | None:
    if not place.is_file():
        return None
    try:
        return SplitFeatures(**{name: tensor.to(device) for name, tensor in load_file(place).items()})
    except (SafetensorError, OSError, TypeError) as error:
        raise CheckpointError(f"the cached features '{place}' cannot be read: {error}; remove them") from error


@contextlib.contextmanager
def _warn_if_not_written() -> Iterator[None]:
    """For files that no number needs: one that cannot be written is warned of."""
    try:
        yield
    except CheckpointError as error:
        warn(str(error))
