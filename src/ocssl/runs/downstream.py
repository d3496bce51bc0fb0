"""A finished run's encoder, measured on any labelled data set."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from safetensors import SafetensorError
from safetensors.torch import load_file

from ocssl.checkpoint import save_tensors
from ocssl.common.files import atomic_write, writing
from ocssl.errors import CheckpointError, DataError
from ocssl.learner import Learner
from ocssl.runs.config import RunConfig, merged, parse
from ocssl.runs.folder import RunFolder
from ocssl.runs.material import Splits, load_splits
from ocssl.runs.measuring import Features, ProbeQueue, extract, frozen
from ocssl.runs.progress import Progress


class TransferResult(BaseModel):
    """What the probes said; accuracies in percent.

    Attributes:
        dataset: what was measured on.
        linear, knn: test accuracy of the linear probe and of k-NN.
        train, validation, test: how many images each part had.
        protocol: of the run.
        features_cached: whether features came from an earlier call.
        feature_seconds, linear_seconds, knn_seconds: time spent.
    """

    dataset: str
    linear: float
    knn: float
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
    reporter: Progress | None = None,
) -> TransferResult:
    """Linear probe and k-NN on a finished run's frozen encoder; kept in the run's folder as ``probes/DATASET.json``.

    Args:
        run: the run's folder.
        dataset: any name or address that :func:`ocssl.data.load` knows; the run's own by default.
        changes: settings to measure with, e.g. ``data_root``, ``device``, ``samples_per_class``. Unless one of them is
            ``measure_on``, test images are measured on, whatever the run's own numbers are of.
        cache: keep the features in the run's folder, and use those kept before.
        reporter: told, too, what could not be kept: a full disk or a colleague's folder costs no number.
    """
    folder, reporter = RunFolder(run), reporter or Progress()
    before = folder.read_config()
    name = dataset or before.dataset
    # A run on a part of its own set says nothing about how much of another to measure on.
    whole = {} if name == before.dataset else {"samples_per_class": None}
    config = parse(merged(before.to_dict(), {"measure_on": "test"} | whole | dict(changes or {})))
    learner = load_encoder(config, folder)
    material = load_splits(config, learner.train_state.device, name)
    bench = ProbeQueue(material, seed=config["seed"], schedule=config.probe)
    with reporter:
        began = time.perf_counter()
        place = folder.path / "features" / f"{_plain(name)}-{_key(folder, material)}.safetensors"
        features = _read(place, learner.train_state.device) if cache else None
        cached = features is not None
        if features is None:
            features = extract(frozen(learner), material, lambda done, total: reporter.work("features", done, total))
            if cache:
                _keep(reporter, lambda: _write(place, features))
        extracted = time.perf_counter()
        bench.add(name, features)
        linear = bench.settle(lambda done, total: reporter.work("probe", done, total))[name]
        probed = time.perf_counter()
        neighbours = bench.knn(features)
        found = TransferResult(
            dataset=name,
            linear=linear.percent,
            knn=neighbours.percent,
            train=len(material.train),
            validation=len(material.validation),
            test=len(material.test),
            protocol=config.protocol,
            features_cached=cached,
            feature_seconds=extracted - began,
            linear_seconds=probed - extracted,
            knn_seconds=time.perf_counter() - probed,
        )
    _keep(reporter, lambda: _record(folder.path / "probes" / f"{_plain(name)}.json", found))
    return found


def load_encoder(config: RunConfig, folder: RunFolder) -> Learner:
    """A learner with a finished run's backbone, for use and not for more training."""
    if not folder.encoder.exists():
        raise DataError(f"'{folder.path}' has no encoder.safetensors; the run is not finished")
    learner = Learner(**config.learner() | {"execution": "eager"})
    try:
        learner.network.load_state_dict(load_file(folder.encoder))
    except (SafetensorError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"'{folder.encoder}' cannot be read as this run's encoder: {reason}") from error
    return learner


def _key(folder: RunFolder, material: Splits) -> str:
    """Changes with the encoder and with the images measured on."""
    digest = hashlib.sha256(folder.encoder.read_bytes())
    for part in material.parts:
        digest.update(part.pool.identity.encode() + part.indices.numpy().tobytes() + part.labels.numpy().tobytes())
    return digest.hexdigest()[:16]


def _read(place: Path, device: torch.device) -> Features | None:
    if not place.exists():
        return None
    try:
        return Features(**{name: tensor.to(device) for name, tensor in load_file(place).items()})
    except (SafetensorError, OSError, TypeError) as error:
        raise CheckpointError(f"the kept features '{place}' cannot be read: {error}; remove them") from error


def _keep(reporter: Progress, write: Callable[[], None]) -> None:
    try:
        write()
    except CheckpointError as error:
        reporter.warn(str(error))


def _record(place: Path, found: TransferResult) -> None:
    with writing(place):
        place.parent.mkdir(exist_ok=True)
        atomic_write(place, json.dumps(found.model_dump(), indent=1) + "\n")


def _write(place: Path, features: Features) -> None:
    draft = place.with_name(f".{place.name}")
    try:
        place.parent.mkdir(exist_ok=True)
        save_tensors({name: tensor.cpu().contiguous() for name, tensor in vars(features).items()}, draft)
        draft.replace(place)
    except (OSError, SafetensorError) as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise CheckpointError(f"could not keep the features in '{place}': {error}") from error


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")
