"""A sweep from its first trial to its best configuration, in a folder from which it can be resumed.

The folder holds ``sweep.yaml``, which is written first, ``trials.jsonl``, the runs in ``trials/``, and in the end
``table.md`` and ``best.yaml``.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from ocssl.common.files import atomic_write, check_folder, locked, writing
from ocssl.common.signals import Interrupted
from ocssl.engines import Engine, Job, JobResult
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


def run_sweeps(
    sweeps: Mapping[Path, Sweep],
    engine: Engine,
    info: Callable[[str], None],
    *,
    stop_at: float = float("inf"),
) -> dict[Path, TrialLog]:
    """Begin or resume sweeps, one after another, with the engine's workers shared between them.

    In one that is resumed, finished runs stay and unfinished ones are resumed. What failed is tried again, but not by
    TPE, whose proposals depend on it.

    Args:
        sweeps: by folder. One that has a ``sweep.yaml`` is resumed; any other must be empty or new.
        info: is called with a line after each run.
        stop_at: time of :func:`time.monotonic` from which on no run is started. What is left waits until the sweep is
            resumed, and so does ``best.yaml``.
    """
    new = [folder for folder in sweeps if not (folder / "sweep.yaml").exists()]
    for folder in new:
        if folder.exists() and not (folder.is_dir() and all(file.name[0] == "." for file in folder.iterdir())):
            raise ConfigError(f"'{folder}' exists and is not empty; choose another --output")
    if any(sweep.search == "tpe" for sweep in sweeps.values()):
        import_optuna()
    with ExitStack() as locks:
        for folder in sweeps:
            check_folder(folder, "; choose another --output" if folder in new else "")
            locks.enter_context(locked(folder))
        for folder in new:
            with writing(folder):
                atomic_write(folder / "sweep.yaml", sweeps[folder].to_yaml())
        differ = len({folder.name for folder in sweeps}) == len(sweeps)
        prefixes = {folder: f"{folder.name if differ else folder}, " for folder in sweeps if len(sweeps) > 1}
        searches = [_Search(sweep, folder, prefixes.get(folder, "")) for folder, sweep in sweeps.items()]
        _run(searches, engine, info, stop_at)
        return {search.folder: search.log for search in searches}


def read_started(folder: Path) -> Sweep:
    """The sweep that a folder holds."""
    file = folder / "sweep.yaml"
    if not file.is_file():
        raise ConfigError(f"'{folder}' is not a sweep: it has no sweep.yaml")
    return read_sweep(file)


def go_on(folder: Path) -> str:
    """The command that resumes a sweep, ready for a shell."""
    return command("ocssl sweep --resume", folder)


class _Search:
    """A sweep under way.

    Args:
        prefix: of the names of its runs, which tells them from those of sweeps beside it.
    """

    def __init__(self, sweep: Sweep, folder: Path, prefix: str) -> None:
        self.folder = folder
        self.log = TrialLog(folder / "trials.jsonl")
        self._sweep = sweep
        self._prefix = prefix
        self._begun: dict[str, tuple[Trial, int]] = {}
        _check_unchanged(sweep, folder, self.log)

    @property
    def total(self) -> int:
        """How many runs are left; fewer if a search finds no further configuration."""
        trials = self._sweep.trials or len(self._sweep.listed())
        return trials * len(self._sweep.seeds) - sum(len(t.seeds) for t in self.log.trials if t.state == "done")

    def jobs(self, engine: Engine) -> Iterator[Job | None]:
        """A run for each seed that a trial lacks."""
        for trial in next_trials(self._sweep, self.log, lambda: -(-engine.max_parallel // len(self._sweep.seeds))):
            if trial is None:
                yield None
                continue
            runs = _runs(self.folder, trial)
            for seed in trial.missing:
                name = f"{self._prefix}trial {trial.number}, seed {seed}"
                self._begun[name] = trial, seed
                yield Job(name, self._sweep.run_settings(trial.values, seed), runs[seed].path)

    def record(self, done: JobResult) -> str:
        """Note how a run ended, and say so in a line."""
        trial, seed = self._begun.pop(done.job.name)
        if done.result is None:
            self.log.record(trial, seed, reason=done.error)
        else:
            self.log.record(trial, seed, getattr(done.result, self._sweep.score), done.result.cbp_spent)
        return self._prefix + _line(self._sweep, self.log, trial, seed)

    def end(self) -> None:
        """Write the table and, if every trial is over, the best configuration; raise if all of them failed."""
        if not self.log.trials:
            return
        best, is_over = self.log.best(), not self.log.out_of_time
        with writing(self.folder):
            atomic_write(self.folder / "table.md", to_markdown(trial_table(self._sweep, self.log)))
            if best is not None and is_over:
                atomic_write(self.folder / "best.yaml", best_yaml(self._sweep, self.log, best))
        if best is None and is_over:
            first = self.log.trials[0]
            many = len(self.log.trials)
            raise ConfigError(f"{self._prefix}every configuration failed ({many}), the first because: {first.reason}")


def _run(searches: list[_Search], engine: Engine, info: Callable[[str], None], stop_at: float) -> None:
    owners: dict[str, _Search] = {}

    def jobs() -> Iterator[Job | None]:
        for search in searches:
            for job in search.jobs(engine):
                search.log.out_of_time = time.monotonic() >= stop_at
                if search.log.out_of_time:
                    break
                if job is not None:
                    owners[job.name] = search
                yield job

    try:
        for done in engine.run(jobs(), sum(search.total for search in searches)):
            info(owners[done.job.name].record(done))
    except (Interrupted, KeyboardInterrupt) as stopped:  # the latter between two runs
        number = stopped.number if isinstance(stopped, Interrupted) else signal.SIGINT
        commands = "; ".join(go_on(search.folder) for search in searches)
        raise Interrupted(f"the sweep was stopped; go on with: {commands}", number) from stopped
    failures: list[ConfigError] = []
    for search in searches:
        try:
            search.end()
        except ConfigError as error:
            failures.append(error)
    if failures:
        raise failures[0]


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
