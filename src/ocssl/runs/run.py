"""Starting a run in a new folder, and going on with one that stopped."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from ocssl import checkpoint
from ocssl.build import Networks
from ocssl.common.console import number_of
from ocssl.common.files import now
from ocssl.device import threads
from ocssl.errors import CheckpointError, ConfigError, DataError
from ocssl.learner import Learner
from ocssl.plugins import changed
from ocssl.results.result import Result, read_result
from ocssl.runs.config import RunConfig, merged, parse
from ocssl.runs.data import Schedule, Splits, load_splits, make_schedule
from ocssl.runs.environment import check_environment
from ocssl.runs.folder import RunFolder, open_folder
from ocssl.runs.loop import RunLoop
from ocssl.runs.progress import Progress
from ocssl.runs.state import Provenance, RunState
from ocssl.runs.trackers import Trackers


def start(config: RunConfig, output: str | Path, progress: Progress | None = None) -> Result:
    """Begin a run in an empty or new folder and complete it.

    Nothing is written before everything that the configuration names was found and fits together.
    """
    check_environment()
    folder = open_folder(output)
    folder.check_free()
    trackers = Trackers(config.trackers)
    learner, state = _begin(config)
    splits, schedule = _images(config, learner, state)
    if config.evaluate != "never":
        _check_measurable(config, splits, schedule)
    provenance = Provenance.of(config, splits, schedule)
    with folder.lock():
        folder.create(config)
        folder.note(f"started with {len(schedule)} images in {len(schedule.borders)} experiences")
        loop = RunLoop(config, folder, learner, state, splits, schedule, provenance, trackers, progress or Progress())
        if config.evaluate != "never" and (unknown := _unknown(splits)):
            loop.warn(unknown)
        return loop.complete()


def resume(
    path: str | Path,
    changes: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    *,
    force: bool = False,
) -> Result:
    """Go on with a run from its last checkpoint, or from its start if it has none.

    Other images, another stream or other code of a plugin than those of the checkpoint are refused.

    Args:
        changes: settings to have from now on; only those that affect no number may differ.
        force: go on with them all the same; the result's ``warnings`` name the first difference.
    """
    check_environment()
    folder = open_folder(path)
    config = _with_changes(folder, changes or {})
    trackers = Trackers(config.trackers)
    with folder.lock():
        folder.remove_drafts()
        last = folder.checkpoints.last
        saved, before = _saved_in(last, config, folder) if last else ({}, None)
        with threads(_threads_in(saved)):
            if before is not None and not force:  # the learner may not even fit other code
                _refuse(folder, changed(before.plugins, config.plugins()))
            learner, state = _restore(config, folder, last, saved) if last else _begin(config)
            splits, schedule = _images(config, learner, state)
            provenance = Provenance.of(config, splits, schedule)
            difference = provenance.difference(before) if before is not None else None
            if not force:
                _refuse(folder, difference)
            folder.cut_metrics(saved.get("metrics_bytes", 0))
            folder.note(f"resumed at image {learner.seen}")
            progress = progress or Progress()
            loop = RunLoop(config, folder, learner, state, splits, schedule, provenance, trackers, progress)
            if difference is not None:
                loop.warn(f"at image {learner.seen} the run was resumed with --force, although {difference}")
            return loop.complete()


def read_finished(path: str | Path, changes: Mapping[str, Any]) -> Result | None:
    """The result of a finished run, or None; changes are refused where :func:`resume` would refuse them."""
    folder = RunFolder(path)
    if not folder.result.exists():
        return None
    _with_changes(folder, changes)
    try:
        return read_result(folder.path)
    except DataError as error:
        raise DataError(f"{error}; once it is removed, {folder.go_on} makes it again") from error


def _refuse(folder: RunFolder, difference: str | None) -> None:
    if difference is not None:
        raise ConfigError(
            f"since '{folder.checkpoints.last}' was saved, {difference}; undo that, or go on all the same with: "
            f"{folder.go_on} --force"
        )


def _with_changes(folder: RunFolder, changes: Mapping[str, Any]) -> RunConfig:
    """A run's configuration with changes; :class:`ConfigError` if one of them affects a number."""
    before = folder.read_config()
    old, new = before.to_dict(), merged(before.to_dict(), changes)
    fixed = before.only("experiment", "numbers")
    try:
        after = parse(new)
    except ConfigError:  # a change that the other settings of the run do not fit
        name = next((name for name in changes if name in fixed and old[name] != new[name]), None)
        if name is None:
            raise
    else:
        name, new = before.difference(after), after.to_dict()
        if name is None:
            return after
    raise ConfigError(
        f"'{folder.path}' runs with {name} {old.get(name)}, which a resumed run cannot change to {new.get(name)}; "
        "start another run with its own --output"
    )


def warm_start(learner: Learner, run: str | Path) -> int:
    """Give a new learner the encoder of a run's last checkpoint, and the method's heads where the methods agree.

    The optimiser, the memory and the strategy begin afresh.

    Returns:
        the CBP that went into those networks; the learner's own count goes on from there.
    """
    folder = RunFolder(run)
    folder.read_config()
    last = folder.checkpoints.last
    if last is None:
        raise ConfigError(f"'{run}' has no checkpoint to start from")
    facts, tensors = checkpoint.read(last / "learner", "learner")
    try:
        same_method = (facts["config"] if "config" in facts else facts["parameters"])["method"] == learner.config.method
        heads = checkpoint.sub_state(tensors, "strategy.method.") if same_method else None
        spent = int(facts["budget"]["spent"])
        learner.begin_with(Networks(checkpoint.sub_state(tensors, "encoder."), heads))
    except (KeyError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"the networks of '{run}' do not fit this run's: {reason}") from error
    learner.budget.spent = spent
    return spent


def _begin(config: RunConfig) -> tuple[Learner, RunState]:
    learner, state = Learner(**dict(config.learner)), RunState(started=now())
    if config.init_from is not None:
        state.cbp_before = warm_start(learner, config.init_from)
    return learner, state


def _saved_in(last: Path, config: RunConfig, folder: RunFolder) -> tuple[dict[str, Any], Provenance | None]:
    """What the last checkpoint says of the run."""
    with _hint(folder):
        saved = folder.read_state(last)
        if saved.get("config") not in folder.digests(config):
            raise ConfigError(f"'{folder.config}' was changed since the checkpoint '{last}' was made; change it back")
        return saved, Provenance.from_state(saved)


def _restore(config: RunConfig, folder: RunFolder, last: Path, saved: dict[str, Any]) -> tuple[Learner, RunState]:
    with _hint(folder):
        learner, state = Learner.load(last / "learner", device=config.learner.device), RunState.from_dict(saved)
        if learner.config != config.learner:
            raise CheckpointError(f"'{last / 'learner'}' is the learner of another run")
    return learner, state


@contextlib.contextmanager
def _hint(folder: RunFolder) -> Iterator[None]:
    """Add to an error about the last checkpoint how to go on without it."""
    try:
        yield
    except CheckpointError as error:
        *earlier, last = folder.checkpoints.complete()
        to = f"go on from {earlier[-1].name}" if earlier else "begin again"
        raise CheckpointError(f"{error}; remove '{last}' to {to}") from error


def _threads_in(saved: Mapping[str, Any]) -> int:
    """CPU threads of the run before it stopped, or of this process if the machine has fewer cores."""
    before = saved.get("threads")
    return before if isinstance(before, int) and 1 <= before <= (os.cpu_count() or 1) else torch.get_num_threads()


def _images(config: RunConfig, learner: Learner, state: RunState) -> tuple[Splits, Schedule]:
    """The images and their order; in a process group the main process decodes those that are not yet in the cache."""
    group = learner.train_state.group
    with group.no_timeout(), group.main_first():
        splits = load_splits(config, learner.train_state.device)
    return splits, make_schedule(config, splits.train, spent=state.cbp_before)


def _check_measurable(config: RunConfig, splits: Splits, schedule: Schedule) -> None:
    """Refuse a run whose result would lack the accuracy of an experience."""
    tested = set(splits.test.labels.tolist())
    for number, classes in enumerate(schedule.experiences, start=1):
        if tested.isdisjoint(classes):
            named = f"{config.measure_on} image of experience {number}, classes {', '.join(map(str, classes))}"
            raise DataError(f"{config.dataset} has no {named}; add some, use fewer experiences, or set evaluate=never")


def _unknown(splits: Splits) -> str:
    """A sentence on test images of classes that probes are not trained on; empty where there are none."""
    labels = splits.test.labels
    wrong = labels[~torch.isin(labels, splits.train.labels)]
    if not len(wrong):
        return ""
    names = splits.test.dataset.source.classes
    named = [names[label] if label < len(names) else str(label) for label in wrong.unique().tolist()]
    return (
        f"{len(wrong):,} of {number_of(len(labels), 'test image')} count as wrong in every accuracy, since no training "
        f"image has their class: {', '.join(named[:5])}{' …' * (len(named) > 5)}"
    )
