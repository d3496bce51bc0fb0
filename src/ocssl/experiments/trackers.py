"""Metrics sent elsewhere, through optional extras: TensorBoard, Weights & Biases, MLflow.

The run's folder always has everything; a tracker gets a copy. Each is imported when a run asks for it, before anything
is written, so that a missing package stops nothing half-way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from ocssl.errors import missing_extra
from ocssl.experiments.config import RunConfig
from ocssl.experiments.folder import RunFolder


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


class TensorBoard(Tracker):
    """Event files in the run's folder."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise missing_extra("tensorboard", "tensorboard", "TensorBoard logs") from error
        self._make = SummaryWriter

    def begin(self, config: RunConfig, folder: RunFolder) -> None:
        # Events that a killed run wrote after its last checkpoint are hidden by the ones written now.
        self._writer = self._make(str(folder.path / "tensorboard"))
        self._writer.add_text("config", f"```\n{config.to_yaml()}```")

    def log(self, numbers: Mapping[str, float], samples: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, samples)

    def end(self, summary: Mapping[str, float]) -> None:
        for name, value in summary.items():
            self._writer.add_scalar(f"result/{name}", value)
        self._writer.close()


class WeightsAndBiases(Tracker):
    """A W&B run, named after the folder."""

    def __init__(self) -> None:
        try:
            import wandb
        except ImportError as error:
            raise missing_extra("wandb", "wandb", "Weights & Biases logs") from error
        self._wandb: Any = wandb

    def begin(self, config: RunConfig, folder: RunFolder) -> None:
        name = folder.path.resolve().name
        self._run = self._wandb.init(
            project="ocssl", name=name, config=config.to_dict(), dir=str(folder.path), resume="allow"
        )

    def log(self, numbers: Mapping[str, float], samples: int) -> None:
        self._run.log({**numbers, "samples": samples})

    def end(self, summary: Mapping[str, float]) -> None:
        self._run.summary.update(dict(summary))
        self._run.finish()


class MLflow(Tracker):
    """An MLflow run, named after the folder."""

    def __init__(self) -> None:
        try:
            import mlflow
        except ImportError as error:
            raise missing_extra("mlflow", "mlflow", "MLflow logs") from error
        self._mlflow: Any = mlflow

    def begin(self, config: RunConfig, folder: RunFolder) -> None:
        self._mlflow.set_experiment("ocssl")
        self._mlflow.start_run(run_name=folder.path.resolve().name)
        self._mlflow.log_params(config.to_dict())

    def log(self, numbers: Mapping[str, float], samples: int) -> None:
        self._mlflow.log_metrics(dict(numbers), step=samples)

    def end(self, summary: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(summary))
        self._mlflow.end_run()


KINDS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "mlflow": MLflow}
"""By the name that the setting ``trackers`` has for them."""


def make_trackers(config: RunConfig) -> list[Tracker]:
    """Those that the configuration asks for."""
    return [KINDS[name]() for name in config.trackers]
