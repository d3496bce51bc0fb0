"""The encoder of a finished run, measured on any data set."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from safetensors import SafetensorError
from safetensors.torch import load_file

from ocssl.common.console import warn
from ocssl.common.files import atomic_write, slug, writing
from ocssl.data import authors
from ocssl.errors import CheckpointError, DataError
from ocssl.learner import Learner
from ocssl.results.names import file_part
from ocssl.runs.config import RunConfig
from ocssl.runs.data import Splits, load_splits
from ocssl.runs.folder import RunFolder, write_tensors
from ocssl.runs.probes import ProbeQueue, SplitFeatures, encoder_of
from ocssl.runs.progress import Progress


class TransferResult(BaseModel):
    """Probes of a finished run's encoder on a data set; accuracies in percent.

    Attributes:
        linear, knn: test accuracy of the linear probe and of k-NN.
        crops: of each image, whose features were averaged.
        train, validation, test: how many images each split had.
        features_cached: whether features came from an earlier call.
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
    file = file_part(found.dataset) + (f"-{found.crops}-crops" if found.crops > 1 else "")
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
    """Its name changes with what features depend on: encoder, plugins, images, normalisation, crops, precision."""
    digest = hashlib.sha256(folder.encoder.read_bytes())
    settings, device = config.learner.to_dict(), splits.train.dataset.device.type  # which decides precision=auto
    known = [settings.get(name) for name in ("mean", "std", "precision")]
    code = [plugin.digest for plugin in config.plugins()]
    digest.update(repr([*known, config.full_precision, device, config.eval_crops, *code]).encode())
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
