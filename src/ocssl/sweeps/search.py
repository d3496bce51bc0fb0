"""Which trial to run next.

A grid and a random search are listed from the start. TPE proposes each trial from the scores of earlier ones: all but
the last few, whichever of those are over. So a proposal depends on nothing but the sweep, the number of trials at once
and those scores, and an interrupted search proposes the same trials as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

from ocssl.common.console import warn
from ocssl.errors import import_extra
from ocssl.sweeps.log import Trial, TrialLog
from ocssl.sweeps.plan import DRAWS, Sweep
from ocssl.sweeps.space import Range, Scalar, random_values

FAILED = 0.0  # the score that TPE is given for a trial that failed
ASKS = 100  # proposals that TPE makes for a trial before one is drawn at random, if all were tried before


def next_trials(sweep: Sweep, log: TrialLog, at_once: Callable[[], int]) -> Iterator[Trial | None]:
    """Open trials of the log, then new ones, which are added to the log.

    None: TPE cannot propose a trial before an open one is over.

    Args:
        at_once: number of trials that may be open at once. TPE proposes trial n from the scores of trials
            1 … n - at_once, however many later ones are over.
    """
    if sweep.search != "tpe":
        for trial in log.trials:
            trial.reasons = [None for _ in trial.seeds]  # a run that failed gets another chance
        begun = {frozenset(trial.values.items()) for trial in log.trials}
        log.add([values for values in sweep.listed() if frozenset(values.items()) not in begun], sweep.seeds)
    yield from [trial for trial in log.trials if trial.state == "open"]
    while sweep.search == "tpe" and len(log.trials) < (sweep.trials or 0):
        scored = max(0, len(log.trials) + 1 - at_once())
        if any(trial.state == "open" for trial in log.trials[:scored]):
            yield None
        else:
            values = propose(sweep, log.trials, scored)
            if values is None:
                warn(f"every configuration of the space was tried; the search ends with {len(log.trials)} trials")
                return
            yield from log.add([values], sweep.seeds)


def propose(sweep: Sweep, trials: list[Trial], scored: int) -> dict[str, Scalar] | None:
    """The configuration of the next trial of a TPE search, different from all earlier ones; None: none was found.

    Each proposal has a study and a seed of its own, so that no state of a generator needs to survive an interruption.
    The first quarter of the trials, at most ten, is drawn at random.

    Args:
        scored: how many trials have scores; Optuna takes those behind them as running.
    """
    optuna = import_optuna()
    space = {name: _distribution(optuna, entry) for name, entry in sweep.space.items()}
    seed, blind = sweep.seed + len(trials), max(1, min(10, (sweep.trials or 0) // 4))
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=blind)
    )
    for trial in trials:
        known = {"params": trial.values, "distributions": {name: space[name] for name in trial.values}}
        over = {"value": FAILED if trial.score is None else trial.score}
        running = {"state": optuna.trial.TrialState.RUNNING}
        study.add_trial(optuna.trial.create_trial(**known, **(over if trial.number <= scored else running)))
    asked = (study.ask(space).params for _ in range(ASKS))
    tried = [trial.values for trial in trials]
    proposals = map(sweep.reduced, chain(asked, islice(random_values(sweep.space, seed), DRAWS)))
    return next((values for values in proposals if values not in tried), None)


def import_optuna() -> Any:
    """The package; :class:`MissingExtraError` where it is not installed."""
    optuna = import_extra("optuna", "scale", "TPE searches")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _distribution(optuna: Any, entry: tuple[Scalar, ...] | Range) -> Any:
    if not isinstance(entry, Range):
        return optuna.distributions.CategoricalDistribution(entry)
    kind = optuna.distributions.IntDistribution if entry.whole else optuna.distributions.FloatDistribution
    return kind(*entry.ends, log=entry.scale == "log")
