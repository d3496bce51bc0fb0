"""Adaptive search on a Ray cluster: Ray Tune runs the trials, and Optuna is its searcher."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ocssl.common.signals import Interrupted
from ocssl.engines.attempt import attempt
from ocssl.engines.cluster import connected, gpus_of_a_run, import_ray, like_the_driver, room
from ocssl.sweeps.machines import Machines
from ocssl.sweeps.plan import Sweep
from ocssl.sweeps.search import distributions, sampler, value_of
from ocssl.sweeps.trials import Book, Run, Trial

NUMBER = "trial"  # travels with the values that Optuna proposes


def tune(sweep: Sweep, folder: Path, book: Book, machines: Machines, ended: Callable[[Trial, int], None]) -> None:
    """See an adaptive search through."""
    import_ray()
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    from ray import tune as ray_tune

    output = folder.resolve()
    over = [trial for trial in book.trials if trial.state != "open"]
    begun = [trial for trial in book.trials if trial.state == "open"]
    left = (sweep.trials or 0) - len(over)
    if left == 0:
        return
    with connected(machines.workers, machines.address):
        gpus = gpus_of_a_run(machines.gpus_per_run)
        searcher = _searcher(sweep, book, begun)
        for trial in over:
            searcher.add_evaluated_point(trial.values, value_of(trial))
        ray_tune.Tuner(
            ray_tune.with_resources(_trainable(sweep, output), {"cpu": 1, "gpu": gpus}),
            tune_config=ray_tune.TuneConfig(
                metric="score",
                mode="max",
                search_alg=searcher,
                num_samples=left,
                max_concurrent_trials=room(gpus),
                reuse_actors=True,
            ),
            run_config=ray_tune.RunConfig(
                name=".tune",
                storage_path=str(output),
                verbose=0,
                failure_config=ray_tune.FailureConfig(max_failures=machines.retries),
                callbacks=[_recorder(book, ended)],
            ),
        ).fit()
    if len(book.trials) < (sweep.trials or 0) or any(trial.state == "open" for trial in book.trials):
        raise Interrupted("stopped", signal.SIGINT)


def _searcher(sweep: Sweep, book: Book, begun: list[Trial]) -> Any:
    from ray.tune.search.optuna import OptunaSearch

    class Numbered(OptunaSearch):  # type: ignore[misc]
        """Optuna's searcher, whose proposals are in the book before they begin."""

        def suggest(self, trial_id: str) -> dict[str, Any] | None:
            values = super().suggest(trial_id)
            if values is None:
                return None
            trial = waiting.popleft() if waiting else book.add(values, sweep.seeds)
            return {**values, NUMBER: trial.number}

        def save(self, checkpoint_path: str) -> None:
            """Nothing: the book is what a resumed sweep reads."""

    waiting = deque(begun)
    return Numbered(
        space=distributions(sweep.space),
        metric="score",
        mode="max",
        sampler=sampler(sweep, len(book.trials)),
        points_to_evaluate=[trial.values for trial in begun] or None,
    )


def _trainable(sweep: Sweep, output: Path) -> Callable[[dict[str, Any]], None]:
    """What Tune runs for a trial: each of its seeds, in the trial's own folder."""
    settle_in = like_the_driver()

    def trainable(proposal: dict[str, Any]) -> None:
        from ray import tune as ray_tune

        settle_in()
        values = {name: value for name, value in proposal.items() if name != NUMBER}
        trial = Trial(proposal[NUMBER], values, sweep.seeds)
        for seed, job in trial.jobs(sweep, output).items():
            outcome = attempt(job)
            if outcome.again:
                raise RuntimeError(outcome.error)  # Tune starts the trial again
            trial.runs[seed] = Run.of(outcome, sweep)
        ray_tune.report({"score": value_of(trial), "runs": {seed: asdict(run) for seed, run in trial.runs.items()}})

    return trainable


def _recorder(book: Book, ended: Callable[[Trial, int], None]) -> Any:
    from ray.tune import Callback

    class Recorder(Callback):  # type: ignore[misc]
        """Writes into the book how trials ended."""

        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            ours = book.trials[trial.config[NUMBER] - 1]
            for seed, run in trial.last_result["runs"].items():
                book.record(ours, seed, Run(**run))
                ended(ours, seed)

        def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            ours = book.trials[trial.config[NUMBER] - 1]
            for seed in ours.seeds:
                if seed not in ours.runs:
                    book.record(ours, seed, Run(None, None, "its worker died at every attempt"))
                    ended(ours, seed)

    return Recorder()
