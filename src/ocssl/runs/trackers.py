"""Metrics sent elsewhere, through optional extras: TensorBoard, Weights & Biases, MLflow.

The run's folder always has everything; a tracker gets a copy. Each is imported when a run asks for it, before anything
is written, so that a missing package is found at the start. One that fails later is left out with a warning, and the
run goes on. A resumed run goes on under the name it had there.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping

from ocssl.common.files import NAME_BYTES, atomic_write, read_file
from ocssl.distributed import current
from ocssl.errors import import_extra
from ocssl.runs.config import RunConfig
from ocssl.runs.folder import RunFolder


class Tracker(ABC):
    """Takes numbers by name."""

    @abstractmethod
    def begin(self, config: RunConfig, folder: RunFolder) -> None:
        """The run starts or goes on."""

    @abstractmethod
    def log(self, numbers: Mapping[str, float], samples: int) -> None:
        """Numbers at a position of the stream."""

    @abstractmethod
    def end(self, summary: Mapping[str, float]) -> None:
        """The run is over, or stops for now (with an empty summary)."""


class TensorBoardTracker(Tracker):
    """Event files in the run's folder."""

    def __init__(self) -> None:
        self._tensorboard = import_extra(
            "torch.utils.tensorboard", "tensorboard", "TensorBoard logs", package="tensorboard"
        )

    def begin(self, config: RunConfig, folder: RunFolder) -> None:
        # Events that a killed run wrote after its last checkpoint are hidden by the ones written now.
        self._writer = self._tensorboard.SummaryWriter(str(folder.path / "tensorboard"))
        self._writer.add_text("config", f"```\n{config.to_yaml()}```")

    def log(self, numbers: Mapping[str, float], samples: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, samples)

    def end(self, summary: Mapping[str, float]) -> None:
        for name, value in summary.items():
            self._writer.add_scalar(f"result/{name}", value)
        self._writer.close()


class WandbTracker(Tracker):
    """A W&B run, named after the folder."""

    def __init__(self) -> None:
        self._wandb = import_extra("wandb", "wandb", "Weights & Biases logs")

    def begin(self, config: RunConfig, folder: RunFolder) -> None:
        self._run = self._wandb.init(
            project="ocssl",
            name=folder.path.resolve().name,
            config=config.to_dict(),
            dir=str(folder.path),
            id=remembered(folder, "wandb", config.digest()[:8] + uuid.uuid4().hex[:8]),
            resume="allow",
        )

    def log(self, numbers: Mapping[str, float], samples: int) -> None:
        self._run.log({**numbers, "samples": samples})

    def end(self, summary: Mapping[str, float]) -> None:
        self._run.summary.update(dict(summary))
        self._run.finish()


class MLflowTracker(Tracker):
    """An MLflow run, named after the folder."""

    def __init__(self) -> None:
        self._mlflow = import_extra("mlflow", "mlflow", "MLflow logs")

    def begin(self, config: RunConfig, folder: RunFolder) -> None:
        self._mlflow.set_experiment("ocssl")
        known = recall(folder, "mlflow")
        if known is not None:
            self._mlflow.start_run(run_id=known)
            return
        run = self._mlflow.start_run(run_name=folder.path.resolve().name)
        remembered(folder, "mlflow", run.info.run_id)
        self._mlflow.log_params(config.to_dict())

    def log(self, numbers: Mapping[str, float], samples: int) -> None:
        self._mlflow.log_metrics(dict(numbers), step=samples)

    def end(self, summary: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(summary))
        self._mlflow.end_run()


def recall(folder: RunFolder, tracker: str) -> str | None:
    """The name under which a tracker knows this run already."""
    note = folder.path / f"{tracker}-run.txt"
    return read_file(note, NAME_BYTES).decode().strip() if note.exists() else None


def remembered(folder: RunFolder, tracker: str, name: str) -> str:
    """That name; the given one, kept for a resumed run, if there is none yet."""
    if known := recall(folder, tracker):
        return known
    atomic_write(folder.path / f"{tracker}-run.txt", name + "\n")
    return name


KINDS: dict[str, type[Tracker]] = {"tensorboard": TensorBoardTracker, "wandb": WandbTracker, "mlflow": MLflowTracker}
"""By the name that the setting ``trackers`` has for them."""


class Trackers:
    """The trackers of a run, by name; see :class:`Tracker`. In a process group only the main process has any."""

    def __init__(self, names: Iterable[str]) -> None:
        self._all = {name: KINDS[name]() for name in names if current().is_main}

    def begin(self, config: RunConfig, folder: RunFolder, warn: Callable[[str], None]) -> None:
        """The run starts or goes on. A tracker that fails is warned of and left out from then on."""
        self._warn = warn
        self._each(lambda tracker: tracker.begin(config, folder))

    def log(self, numbers: Mapping[str, float], samples: int) -> None:
        """Numbers at a position of the stream."""
        self._each(lambda tracker: tracker.log(numbers, samples))

    def end(self, summary: Mapping[str, float]) -> None:
        """The run is over, or stops for now."""
        self._each(lambda tracker: tracker.end(summary))

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._all.items()):
            try:
                call(tracker)
            except Exception as error:  # whatever a foreign package may raise
                del self._all[name]
                self._warn(f"{name} failed and is left out from here on: {str(error)[:200]}")
