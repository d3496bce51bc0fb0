"""A sweep from its first trial to its best configuration, in a folder from which it can be resumed.

The folder holds ``sweep.yaml``, which is written first, ``trials.jsonl``, the runs in ``trials/``, and in the end
``table.md`` and ``best.yaml``.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

from ocssl.common.files import atomic_write, locked, writing
from ocssl.common.signals import Interrupted
from ocssl.engines import Engine, Job
from ocssl.errors import ConfigError
from ocssl.plugins import changed, command
from ocssl.results.render.markdown import to_markdown
from ocssl.results.result import read_result
from ocssl.runs.folder import RunFolder
from ocssl.runs.presets import resolve
from ocssl.sweeps.log import Trial, TrialLog, describe
from ocssl.sweeps.plan import Sweep, read_sweep
from ocssl.sweeps.report import best_yaml, trial_table
from ocssl.sweeps.search import import_optuna, next_trials


def start_sweep(
    sweep: Sweep,
    output: str | Path,
    engine: Engine,
    info: Callable[[str], None] = print,
    *,
    stop_at: float = float("inf"),
) -> TrialLog:
    """Begin a sweep in an empty or new folder and complete it.

    Args:
        info: is called with a line after each run.
        stop_at: time of :func:`time.monotonic` from which on no run is started. What is left waits for
            :func:`resume_sweep`, and so does ``best.yaml``.
    """
    folder = Path(output)
    if folder.exists() and (not folder.is_dir() or any(entry.name[0] != "." for entry in folder.iterdir())):
        hint = f"go on with it ({go_on(folder)}) or " if (folder / "sweep.yaml").exists() else ""
        raise ConfigError(f"'{folder}' exists and is not empty; {hint}choose another --output")
    if sweep.search == "tpe":
        import_optuna()
    with locked(folder):
        with writing(folder):
            atomic_write(folder / "sweep.yaml", sweep.to_yaml())
        return _search(sweep, folder, engine, info, stop_at)


def resume_sweep(
    output: str | Path,
    engine: Engine,
    info: Callable[[str], None] = print,
    *,
    stop_at: float = float("inf"),
) -> TrialLog:
    """Complete a sweep: finished runs stay, unfinished ones are resumed, and what failed is tried again."""
    folder = Path(output)
    sweep = read_started(folder)
    with locked(folder):
        return _search(sweep, folder, engine, info, stop_at)


def read_started(folder: Path) -> Sweep:
    """The sweep that a folder holds."""
    file = folder / "sweep.yaml"
    if not file.is_file():
        raise ConfigError(f"'{folder}' is not a sweep: it has no sweep.yaml")
    return read_sweep(file)


def go_on(folder: Path) -> str:
    """The command that resumes a sweep, ready for a shell."""
    return command("ocssl sweep --resume", folder)


def _search(sweep: Sweep, folder: Path, engine: Engine, info: Callable[[str], None], stop_at: float) -> TrialLog:
    log = TrialLog(folder / "trials.jsonl")
    _check_unchanged(sweep, folder, log)
    begun: dict[str, tuple[Trial, int]] = {}

    def jobs() -> Iterator[Job | None]:
        for trial in next_trials(sweep, log, lambda: -(-engine.max_parallel // len(sweep.seeds))):
            if trial is None:
                yield None
                continue
            runs = _runs(folder, trial)
            for seed in trial.missing:
                name = f"trial {trial.number}, seed {seed}"
                begun[name] = trial, seed
                yield Job(name, sweep.run_settings(trial.values, seed), runs[seed].path)

    def in_time(_: Job | None) -> bool:
        log.out_of_time = time.monotonic() >= stop_at
        return not log.out_of_time

    try:
        for done in engine.run(takewhile(in_time, jobs())):
            trial, seed = begun.pop(done.job.name)
            if done.result is None:
                log.record(trial, seed, reason=done.error)
            else:
                log.record(trial, seed, getattr(done.result, sweep.score), done.result.cbp_spent)
            info(_line(sweep, log, trial, seed))
    except (Interrupted, KeyboardInterrupt) as stopped:  # the latter between two runs
        number = stopped.exit_code - 128 if isinstance(stopped, Interrupted) else signal.SIGINT
        raise Interrupted(f"the sweep was stopped; go on with: {go_on(folder)}", number) from stopped
    best, is_over = log.best(), not log.out_of_time
    with writing(folder):
        atomic_write(folder / "table.md", to_markdown(trial_table(sweep, log)))
        if best is not None and is_over:
            atomic_write(folder / "best.yaml", best_yaml(sweep, log, best))
    if best is None and is_over:
        first = log.trials[0]
        raise ConfigError(f"every configuration failed ({len(log.trials)}), the first because: {first.reason}")
    return log


def _check_unchanged(sweep: Sweep, folder: Path, log: TrialLog) -> None:
    """Refuse a sweep whose file would not have begun the trials in its folder. Further trials may follow them."""
    listed = [] if sweep.search == "tpe" else sweep.listed()  # in any order: a grid may have been widened since
    for trial in log.trials:
        inside = all(name in sweep.space and value in sweep.space[name] for name, value in trial.values.items())
        is_proposed = inside if sweep.search == "tpe" else trial.values in listed
        if not is_proposed or trial.seeds != sweep.seeds or not _is_as_begun(sweep, folder, trial):
            raise ConfigError(
                f"'{folder / 'sweep.yaml'}' was changed since trial {trial.number} ({describe(trial.values)}) began; "
                "change it back, or start another sweep with its own --output"
            )
        for run in _runs(folder, trial).values():
            if sweep.plugins and run.result.exists():
                difference = changed(read_result(run.path).plugins, run.read_config().plugins())
                if difference is not None:
                    raise ConfigError(
                        f"since trial {trial.number} was finished, {difference}; undo that, or start another sweep "
                        "with its own --output"
                    )


def _is_as_begun(sweep: Sweep, folder: Path, trial: Trial) -> bool:
    """Whether the sweep would begin the runs of a trial with the same settings, and score them by the same number."""
    for (seed, run), score in zip(_runs(folder, trial).items(), trial.scores, strict=True):
        settings = sweep.run_settings(trial.values, seed)
        if run.config.exists() and run.read_config().digest() != resolve(settings).digest():
            return False
        if score is not None and run.result.exists() and getattr(read_result(run.path), sweep.score) != score:
            return False
    return True


def _runs(folder: Path, trial: Trial) -> dict[int, RunFolder]:
    return {seed: RunFolder(folder / trial.folder / f"seed{seed}") for seed in trial.seeds}


def _line(sweep: Sweep, log: TrialLog, trial: Trial, seed: int) -> str:
    place = trial.seeds.index(seed)
    ended = f"failed: {trial.reasons[place]}" if trial.reasons[place] else f"{trial.scores[place]:.2f} %"
    over = sum(entry.state != "open" for entry in log.trials)
    total = sweep.trials or len(log.trials)
    return f"trial {trial.number} ({describe(trial.values)}), seed {seed}: {ended} [{over} of {total} over]"
