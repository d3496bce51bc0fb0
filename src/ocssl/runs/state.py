"""The state of a run besides its learner, where its numbers come from, and its result."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError

from ocssl.common.files import now
from ocssl.distributed import current
from ocssl.errors import CheckpointError, first_misfit
from ocssl.evaluation import Accuracy, StreamMetrics
from ocssl.learner import Learner
from ocssl.plugins import Plugin, changed
from ocssl.results.result import Curve, Result
from ocssl.runs import environment
from ocssl.runs.config import RunConfig
from ocssl.runs.data import Schedule, Splits
from ocssl.runs.naming import names_of
from ocssl.runs.presets import is_papers_budget
from ocssl.runs.probes import ENCODERLESS

START = "start"


def _not_negative(found: Accuracy) -> Accuracy:
    if min((*found.correct, *found.total), default=0) < 0:
        raise ValueError("a count is negative")
    return found


Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Counts = Annotated[Accuracy, AfterValidator(_not_negative)]


@dataclass
class Measurement:
    """Probes of the encoder at one evaluation point; None: not measured, or not yet."""

    samples: Count
    linear: Counts | None
    knn: Counts | None


@dataclass
class RunState:
    """Everything about a run that its learner and its configuration do not hold; saved with each checkpoint.

    Attributes:
        cbp_before: CBP that went into the networks before this run.
        finished: how many experiences are over and measured.
        measured: by evaluation point: ``start``, the number of the experience that had just ended, or a floor that
            needs no encoder.
        seconds_at: what ``train_seconds`` was at the end of each experience.
        collapsed: whether the last warning about collapse still holds.
    """

    started: str
    cbp_before: Count = 0
    finished: Count = 0
    measured: dict[str, Measurement] = field(default_factory=dict)
    prepare_seconds: Seconds = 0.0
    train_seconds: Seconds = 0.0
    eval_seconds: Seconds = 0.0
    seconds_at: list[Seconds] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    collapsed: bool = False

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> RunState:
        """From a checkpoint, ignoring what else was saved with it."""
        try:
            known = {entry.name: saved[entry.name] for entry in fields(cls)}
            return TypeAdapter(cls).validate_json(json.dumps(known), strict=True)
        except ValidationError as error:
            raise CheckpointError(f"the checkpoint's state does not fit: {first_misfit(error)}") from error
        except (KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"the checkpoint's state does not fit this version of ocssl: {error!r}") from error


class Provenance(BaseModel):
    """What a run must find unchanged when it is resumed; saved with each checkpoint, and in the result.

    Attributes:
        fingerprint: of the order of the stream.
        images: number of images by split.
        pixels: digest of images and labels by split.
    """

    fingerprint: str
    images: dict[str, int]
    pixels: dict[str, str]
    plugins: list[Plugin]

    @classmethod
    def of(cls, config: RunConfig, splits: Splits, schedule: Schedule) -> Provenance:
        """Of a run that is about to begin or go on; reads every image once.

        In a process group the main process reads large sets, and the others find their digests in the cache.
        """
        sets = splits.sources
        with current().no_timeout(), current().main_first():
            pixels = {split: images.digest() for split, images in sets.items()}
        return cls(
            fingerprint=schedule.fingerprint,
            images={split: len(images) for split, images in sets.items()},
            pixels=pixels,
            plugins=config.plugins(),
        )

    @classmethod
    def from_state(cls, saved: dict[str, Any]) -> Provenance | None:
        """That of a checkpoint; None for one of an earlier version, which does not say."""
        if saved.get("provenance") is None:
            return None
        try:
            return cls.model_validate(saved["provenance"])
        except ValidationError as error:
            raise CheckpointError("the checkpoint's provenance does not fit this version of ocssl") from error

    def difference(self, before: Provenance) -> str | None:
        """The first thing that is not as before, as a clause; None where all is."""
        if code := changed(before.plugins, self.plugins):
            return code
        for split, count in self.images.items():
            if count != before.images.get(split):
                return f"the number of {split} images changed from {before.images.get(split)} to {count}"
        for split, digest in self.pixels.items():
            if digest != before.pixels.get(split):
                return f"the pixels or labels of the {split} images changed"
        return "the order of the stream changed" if self.fingerprint != before.fingerprint else None


def make_result(
    config: RunConfig, schedule: Schedule, learner: Learner, state: RunState, provenance: Provenance
) -> Result:
    """Everything that ``result.json`` holds."""
    points = [str(number + 1) for number in range(len(schedule.borders)) if str(number + 1) in state.measured]
    measured = [state.measured[point] for point in points]
    linear = _metrics([entry.linear for entry in measured if entry.linear is not None], schedule)
    neighbours = _metrics([entry.knn for entry in measured if entry.knn is not None], schedule)
    named = {"untrained" if config.init_from is None else "initial": START} | {name: name for name in ENCODERLESS}
    floors = {name: state.measured[point] for name, point in named.items() if point in state.measured}
    return Result(
        **names_of(config, provenance.plugins),
        dataset=config.dataset,
        budget=config.budget if config.budget and is_papers_budget(config) else "custom",
        final=linear.final if linear else None,
        avg=_avg(linear, config),
        curve=list(linear.curve) if linear else [],
        cbp_planned=state.cbp_before + schedule.cbp,
        cbp_spent=learner.budget.spent,
        train_seconds=state.train_seconds,
        eval_seconds=state.eval_seconds,
        seconds_at=state.seconds_at,
        prepare_seconds=state.prepare_seconds,
        knn=Curve(final=neighbours.final, avg=_avg(neighbours, config), curve=list(neighbours.curve))
        if neighbours
        else None,
        matrix=[list(row) for row in linear.matrix] if linear else [],
        forgetting=linear.forgetting if linear and not config.iid else None,
        references={name: entry.linear.percent for name, entry in floors.items() if entry.linear is not None},
        knn_references={name: entry.knn.percent for name, entry in floors.items() if entry.knn is not None},
        borders=[entry.samples for entry in measured],
        experiences=[list(classes) for classes in schedule.experiences],
        samples=len(schedule),
        fingerprint=provenance.fingerprint,
        pixels=provenance.pixels,
        plugins=provenance.plugins,
        warnings=state.warnings,
        config=config.to_dict(),
        backbone_settings=[*config.learner.parts().backbone.model_fields],
        versions=environment.versions(),
        hardware=environment.hardware(learner.train_state.device),
        code=environment.revision(),
        started=state.started,
        finished=now(),
    )


def _metrics(accuracies: list[Accuracy], schedule: Schedule) -> StreamMetrics | None:
    return StreamMetrics.of(accuracies, schedule.experiences) if accuracies else None


def _avg(metrics: StreamMetrics | None, config: RunConfig) -> float | None:
    """An average along the stream exists where every experience of an online stream was measured."""
    return metrics.avg if metrics and config.evaluate == "each" and not config.iid else None
