"""The folder of a run, which can be killed at any moment and resumed from there.

=======================  =====================================================================================
``config.yaml``          every setting; written first, so a folder with it is a run
``metrics.jsonl``        one JSON object per line; no times in it, so that equal runs have equal bytes
``log.txt``              what happened when
``checkpoints/``         numbered folders, each complete or absent
``encoder.safetensors``  the backbone's weights, once the run is over
``result.json``          the numbers, written last
=======================  =====================================================================================
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from ocssl.checkpoint import save_tensors
from ocssl.common.checkpoints import CheckpointFolder, MetricsFile
from ocssl.common.files import append, atomic_write, is_draft, locked, not_a_path, now, writing
from ocssl.common.yaml import from_file
from ocssl.distributed import current
from ocssl.errors import CheckpointError, ConfigError
from ocssl.learner import Learner
from ocssl.plugins import command
from ocssl.runs import format1
from ocssl.runs.config import RunConfig, take_plugins


class RunFolder:
    """Names and guards the files of a run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.metrics = MetricsFile(self.path / "metrics.jsonl")
        self.log = self.path / "log.txt"
        self.checkpoints = CheckpointFolder(self.path / "checkpoints")
        self.encoder = self.path / "encoder.safetensors"
        self.result = self.path / "result.json"

    @property
    def go_on(self) -> str:
        """The command that goes on with the run, ready for a shell."""
        return command("ocssl run --resume", self.path)

    def check_free(self) -> None:
        """Refuse a folder that holds a run or anything else."""
        if self.config.exists() and self.result.exists():
            raise ConfigError(f"'{self.path}' holds a finished run; choose another --output")
        if self.config.exists():
            raise ConfigError(
                f"'{self.path}' holds another run; go on with it ({self.go_on}) or choose another --output"
            )
        try:
            if self.path.exists() and (not self.path.is_dir() or any(self._foreign_files())):
                raise ConfigError(f"'{self.path}' exists and is not empty; choose another --output")
        except OSError as error:
            raise ConfigError(not_a_path(self.path, error)) from error

    def create(self, config: RunConfig) -> None:
        """Begin a run here."""
        self.check_free()
        with writing(self.path):
            self.checkpoints.path.mkdir(parents=True, exist_ok=True)
            atomic_write(self.config, config.to_yaml())

    def read_config(self) -> RunConfig:
        """The configuration of the run that is here."""
        if not os.path.lexists(self.path):
            raise ConfigError(f"there is no folder '{self.path}'")
        if not self.config.is_file():
            raise ConfigError(f"'{self.path}' is not a run: it has no config.yaml")
        if not (stored := from_file(self.config)):
            raise ConfigError(f"'{self.config}' has no settings; restore the file")
        settings = take_plugins(stored, self.config)
        try:
            return format1.upgrade_config(settings)
        except ConfigError as error:
            raise ConfigError(f"'{self.config}': {error}") from error

    def digests(self, config: RunConfig) -> set[str]:
        """What a checkpoint of this run may have as the digest of its configuration: this version's, or that of 0.1."""
        stored = from_file(self.config)
        return {config.digest()} | ({format1.digest(stored)} if "iid" in stored else set())

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """A lock against a second process, released however this one ends."""
        return locked(self.path)

    def note(self, text: str) -> None:
        """Add a line to the log."""
        with writing(self.log):
            append(self.log, f"{now()} {text}\n")

    # ------------------------------------------------------------------ metrics

    def append(self, line: Mapping[str, Any]) -> None:
        """Add a line of metrics."""
        self.metrics.append(line)

    def cut_metrics(self, length: int) -> None:
        """Forget the metrics that were written after a checkpoint."""
        if (size := self.metrics.size) < length:
            raise CheckpointError(
                f"'{self.metrics.path}' has {size} bytes, but the checkpoint was made with {length}; put the file "
                "back, or start the run anew in another folder"
            )
        self.metrics.truncate(length)

    # ------------------------------------------------------------------ checkpoints

    def save(self, learner: Learner, state: Mapping[str, Any], keep: int) -> Path:
        """Write a checkpoint of the learner and the run's own state; it appears complete or not at all."""
        state = {**state, "metrics_bytes": self.metrics.sync()}
        return self.checkpoints.save(lambda draft: learner.save(draft / "learner"), state, keep)

    def write_encoder(self, weights: Mapping[str, Tensor]) -> None:
        """The backbone's weights as other programs load them."""
        write_tensors(weights, self.encoder)

    def write_result(self, text: str) -> None:
        """The last file of a run: with it, the run is over."""
        with writing(self.result):
            atomic_write(self.result, text)

    def remove_drafts(self) -> None:
        """Throw away what a killed process left half written."""
        self.checkpoints.remove_drafts()

    def read_state(self, checkpoint: Path) -> dict[str, Any]:
        """The run's own state in a checkpoint."""
        state = self.checkpoints.read_state(checkpoint)
        size = state.get("metrics_bytes")
        if type(size) is not int or size < 0:
            raise CheckpointError(f"'{checkpoint}' cannot be read as a checkpoint: its state.json is not that of a run")
        return state

    def _foreign_files(self) -> Iterator[Path]:
        """Files that were not left by a run killed before it wrote its configuration: drafts of it, an empty lock."""
        for path in self.path.iterdir():
            if path.name == "checkpoints":
                yield from self.checkpoints.foreign() or self.checkpoints.complete()
            elif not is_draft(path, self.config.name) and (path.name != ".lock" or path.lstat().st_size):
                yield path


class ReadOnlyFolder(RunFolder):
    """The folder as the other processes of a group have it: they read, and leave the writing to the first."""

    def _left_to_the_first(self, *_: Any, **__: Any) -> None: ...

    check_free = create = remove_drafts = _left_to_the_first
    note = append = cut_metrics = write_encoder = write_result = _left_to_the_first

    def lock(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def save(self, learner: Learner, state: Mapping[str, Any], keep: int) -> Path:
        learner.save(self.path)  # every process of a group calls this; the first one writes
        return self.path


def write_tensors(tensors: Mapping[str, Tensor], place: Path) -> None:
    """Write a safetensors file, in a folder that is made if needed."""
    try:
        with writing(place):
            place.parent.mkdir(exist_ok=True)
            atomic_write(place, lambda draft: save_tensors(tensors, draft))
    except SafetensorError as error:
        raise CheckpointError(f"cannot write '{place}': {error}") from error


def open_folder(path: str | Path) -> RunFolder:
    """The folder of a run for this process, in a group or alone."""
    return RunFolder(path) if current().is_main else ReadOnlyFolder(path)
