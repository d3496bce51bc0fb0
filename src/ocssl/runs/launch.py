"""Starting a run in a new folder, and going on with one that stopped."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ocssl.common.files import now
from ocssl.data.cache import cache_root
from ocssl.device import threads
from ocssl.distributed import current
from ocssl.errors import CheckpointError, ConfigError, DataError
from ocssl.learner import Learner
from ocssl.results.result import Result
from ocssl.runs.config import RESUMABLE, RunConfig, merged, parse
from ocssl.runs.environment import runs_at_once
from ocssl.runs.folder import RunFolder, open_folder
from ocssl.runs.initial import warm_start
from ocssl.runs.material import Splits, load_splits
from ocssl.runs.progress import Progress
from ocssl.runs.route import Schedule, make_schedule
from ocssl.runs.runner import Run
from ocssl.runs.state import State
from ocssl.runs.trackers import Loggers


def start(config: RunConfig, output: str | Path, reporter: Progress | None = None) -> Result:
    """Begin a run in an empty or new folder and see it through.

    Nothing is written before everything that the configuration names was found and fits together.
    """
    _heed_environment()
    folder = open_folder(output)
    folder.check_free()
    trackers = _trackers(config)
    learner = Learner(**config.learner())
    state = State(started=now())
    if config.init_from is not None:
        state.cbp_before = warm_start(learner, config.init_from)
    material = _material(config, learner)
    route = make_schedule(config, material.train, views=learner.budget.views, spent=state.cbp_before)
    if config.evaluate != "never":
        _check_measurable(config, material, route)
    with folder.lock():
        folder.create(config)
        folder.note(f"started with {len(route)} images in {len(route.borders)} experiences")
        return Run(config, folder, learner, state, material, route, trackers, reporter or Progress()).complete()


def resume(path: str | Path, changes: Mapping[str, Any] | None = None, reporter: Progress | None = None) -> Result:
    """Go on with a run from its last checkpoint, or from its start if it has none.

    Args:
        changes: settings to have from now on; only those that decide no number may differ.
    """
    _heed_environment()
    folder = open_folder(path)
    config = with_changes(folder, changes or {})
    trackers = _trackers(config)
    with folder.lock(), threads(_threads_of(folder)):
        folder.remove_drafts()
        learner, state = _restore(config, folder)
        material = _material(config, learner)
        route = make_schedule(config, material.train, views=learner.budget.views, spent=state.cbp_before)
        folder.note(f"resumed at image {learner.seen}")
        return Run(config, folder, learner, state, material, route, trackers, reporter or Progress()).complete()


def _threads_of(folder: RunFolder) -> int:
    """How many threads an operation took before the stop, or takes here if the machine has fewer cores."""
    checkpoints, here = folder.list_checkpoints(), torch.get_num_threads()
    with _way_out(checkpoints):
        before = folder.read_state(checkpoints[-1]).get("threads") if checkpoints else None
    return before if isinstance(before, int) and 1 <= before <= (os.cpu_count() or 1) else here


def _heed_environment() -> None:
    """Refuse what it says wrongly before anything is trained, and let compiled kernels outlive the run."""
    runs_at_once()
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_root() / "compiled"))


def _material(config: RunConfig, learner: Learner) -> Splits:
    """The images; in a group the first process decodes those that are not yet in the cache, for everybody."""
    group = learner.train_state.group
    with group.at_length(), group.leader_first():
        return load_splits(config, learner.train_state.device)


def _check_measurable(config: RunConfig, material: Splits, route: Schedule) -> None:
    """Refuse a run whose numbers, hours later, would lack those of an experience."""
    tested = set(material.test.labels.tolist())
    for number, classes in enumerate(route.experiences, start=1):
        if tested.isdisjoint(classes):
            named = f"{config.measure_on} image of experience {number}, classes {', '.join(map(str, classes))}"
            raise DataError(f"{config.dataset} has no {named}; add some, use fewer experiences, or set evaluate=never")


def _trackers(config: RunConfig) -> Loggers:
    return Loggers(config if current().leads else config.model_copy(update={"trackers": []}))


def with_changes(folder: RunFolder, changes: Mapping[str, Any]) -> RunConfig:
    """A run's configuration with changes; :class:`ConfigError` if one of them would decide a number."""
    before = folder.read_config()
    after = parse(merged(before.to_dict(), changes))
    if after.digest() != before.digest():
        old, new = before.to_dict(), after.to_dict()
        name = next(name for name in new if new[name] != old[name] and name not in RESUMABLE)
        raise ConfigError(
            f"'{folder.path}' runs with {name} {old[name]}, which a resumed run cannot change to {new[name]}; "
            "start another run with its own --output"
        )
    return after


def _restore(config: RunConfig, folder: RunFolder) -> tuple[Learner, State]:
    checkpoints = folder.list_checkpoints()
    if not checkpoints:
        folder.cut_metrics(0)
        learner, state = Learner(**config.learner()), State(started=now())
        if config.init_from is not None:
            state.cbp_before = warm_start(learner, config.init_from)
        return learner, state
    latest = checkpoints[-1]
    with _way_out(checkpoints):
        saved = folder.read_state(latest)
        if saved.get("config") != config.digest():
            raise ConfigError(f"'{folder.config}' was changed since the checkpoint '{latest}' was made; change it back")
        learner, state = Learner.load(latest / "learner", device=config["device"]), State.from_dict(saved)
        if json.dumps(learner.get_params(), sort_keys=True) != json.dumps(config.learner(), sort_keys=True):
            raise CheckpointError(f"'{latest / 'learner'}' is the learner of another run")
    folder.cut_metrics(saved["metrics_bytes"])
    return learner, state


@contextlib.contextmanager
def _way_out(checkpoints: Sequence[Path]) -> Iterator[None]:
    """Say, beside what is wrong with the last checkpoint, how to go on without it."""
    try:
        yield
    except CheckpointError as error:
        to = f"go on from {checkpoints[-2].name}" if len(checkpoints) > 1 else "begin again"
        raise CheckpointError(f"{error}; remove '{checkpoints[-1]}' to {to}") from error
