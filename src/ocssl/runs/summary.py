"""A run's result from what it measured on the way."""

from __future__ import annotations

from ocssl.common.files import now
from ocssl.evaluation import Accuracy, StreamMetrics
from ocssl.learner import Learner
from ocssl.results.result import Curve, Result
from ocssl.runs import environment, naming
from ocssl.runs.config import RunConfig
from ocssl.runs.presets import is_papers_budget
from ocssl.runs.route import Schedule
from ocssl.runs.state import State


def summarise(config: RunConfig, route: Schedule, learner: Learner, state: State) -> Result:
    """Everything that ``result.json`` holds."""
    moments = [str(number + 1) for number in range(len(route.borders)) if str(number + 1) in state.measured]
    measured = [state.measured[moment] for moment in moments]
    linear = [entry.linear for entry in measured if entry.linear is not None]
    neighbours = [entry.knn for entry in measured if entry.knn is not None]
    curve = _curve(linear, config)
    whole = StreamMetrics.of(linear, route.experiences) if len(linear) == len(route.experiences) else None
    begun = "untrained" if config.init_from is None else "initial"
    references = {begun: "start", "pixels": "pixels"}
    return Result(
        key=naming.key(config),
        label=naming.label(config),
        name=naming.run_name(config),
        overrides=naming.overrides(config),
        dataset=config.dataset,
        budget=config.budget if config.budget and is_papers_budget(config) else "custom",
        final=curve.final if curve else None,
        avg=curve.avg if curve else None,
        curve=curve.curve if curve else [],
        cbp_planned=state.cbp_before + route.cbp,
        cbp_spent=learner.budget.spent,
        train_seconds=state.train_seconds,
        eval_seconds=state.eval_seconds,
        seconds_at=state.seconds_at,
        prepare_seconds=state.prepare_seconds,
        knn=_curve(neighbours, config),
        matrix=[[accuracy.over(classes) for classes in route.experiences] for accuracy in linear],
        forgetting=whole.forgetting if whole and not config.iid else None,
        references={
            name: entry.linear.percent
            for name, moment in references.items()
            if (entry := state.measured.get(moment)) is not None and entry.linear is not None
        },
        borders=[entry.samples for entry in measured],
        experiences=[list(classes) for classes in route.experiences],
        samples=len(route),
        fingerprint=route.fingerprint,
        warnings=state.warnings,
        config=config.to_dict(),
        versions=environment.versions(),
        hardware=environment.hardware(learner.train_state.device),
        code=environment.code(),
        started=state.started,
        finished=now(),
    )


def _curve(accuracies: list[Accuracy], config: RunConfig) -> Curve | None:
    """An average along the stream exists where every experience of a stream was measured."""
    if not accuracies:
        return None
    points = [accuracy.percent for accuracy in accuracies]
    along_the_stream = config.evaluate == "each" and not config.iid
    return Curve(final=points[-1], avg=sum(points) / len(points) if along_the_stream else None, curve=points)
