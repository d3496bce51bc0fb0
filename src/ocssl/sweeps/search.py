"""Which configuration to try next.

A searcher hands out trials one at a time and is told how each ended. What it proposes depends on nothing but the sweep,
the number of the trial and the trials that are over, so that an interrupted search goes on as it would have.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from ocssl.errors import missing_extra
from ocssl.sweeps.plan import Sweep
from ocssl.sweeps.space import Range, Space
from ocssl.sweeps.trials import Book, Trial

FAILED = 0.0  # what a searcher is told of a configuration that failed: no accuracy at all


class Searcher(Protocol):
    """Proposes trials."""

    def propose(self) -> Iterator[Trial]:
        """Trials that are not over, as long as there are any."""
        ...

    def learn(self, trial: Trial) -> None:
        """A trial is over."""
        ...


class Listed:
    """Grid and random search: every trial is known from the start."""

    def __init__(self, sweep: Sweep, book: Book) -> None:
        begun = [trial.values for trial in book.trials]
        for values in sweep.listed():
            if values not in begun:
                book.add(values, sweep.seeds)
        self._book = book

    def propose(self) -> Iterator[Trial]:
        """Each that is not done; runs that failed get another chance."""
        for trial in self._book.trials:
            trial.runs = {seed: run for seed, run in trial.runs.items() if run.score is not None}
            if trial.state == "open":
                yield trial

    def learn(self, trial: Trial) -> None:
        """Nothing to learn from it."""


class Adaptive:
    """Optuna proposes, and is told how it went."""

    def __init__(self, sweep: Sweep, book: Book) -> None:
        self._sweep = sweep
        self._book = book
        self._optuna = import_optuna()
        self._study = self._optuna.create_study(direction="maximize")
        self._space = distributions(sweep.space)
        self._asked: dict[int, Any] = {}

    def propose(self) -> Iterator[Trial]:
        """First what was begun, then what Optuna wants to see."""
        for trial in self._book.trials:
            if trial.state == "open":
                self._study.enqueue_trial(trial.values)
                self._asked[trial.number] = self._study.ask(self._space)
                yield trial
            else:
                self._study.add_trial(
                    self._optuna.trial.create_trial(
                        params=trial.values, distributions=self._space, value=value_of(trial)
                    )
                )
        while len(self._book.trials) < (self._sweep.trials or 0):
            self._study.sampler = sampler(self._sweep, len(self._book.trials))
            asked = self._study.ask(self._space)
            trial = self._book.add(asked.params, self._sweep.seeds)
            self._asked[trial.number] = asked
            yield trial

    def learn(self, trial: Trial) -> None:
        """Tell Optuna."""
        self._study.tell(self._asked.pop(trial.number), value_of(trial))


def sampler(sweep: Sweep, begun: int) -> Any:
    """What proposes once so many trials have begun.

    A sampler of its own for each number, so that no state of a generator needs to survive an interruption. It draws at
    random at first: a quarter of the trials, at most ten.
    """
    blind = max(1, min(10, (sweep.trials or 0) // 4))
    return import_optuna().samplers.TPESampler(seed=sweep.seed + begun, n_startup_trials=blind)


def value_of(trial: Trial) -> float:
    """What a searcher is told of a trial that is over."""
    return FAILED if trial.score is None else trial.score


def import_optuna() -> Any:
    """The package, or how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise missing_extra("optuna", "scale", "adaptive searches") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def distributions(space: Space) -> dict[str, Any]:
    """A space as Optuna knows it."""
    optuna = import_optuna().distributions

    def one(entry: Any) -> Any:
        if not isinstance(entry, Range):
            return optuna.CategoricalDistribution(entry.options)
        log = entry.scale == "log"
        if entry.whole:
            return optuna.IntDistribution(int(entry.low), int(entry.high), log=log)
        return optuna.FloatDistribution(entry.low, entry.high, log=log)

    return {name: one(entry) for name, entry in space.items()}
