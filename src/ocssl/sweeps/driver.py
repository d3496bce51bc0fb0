"""A sweep from its first trial to its best configuration, in a folder that can be left and gone on with.

==================  ===============================================================================================
``sweep.yaml``      what is searched; written first, so a folder with it is a sweep
``trials.jsonl``    every trial: its values, seeds, scores, CBP, state and folder
``trials/``         the runs, a folder each
``table.md``        the trials, best first
``plot.png``        scores over the setting that matters most
``best.yaml``       the best configuration, for ``ocssl run --config``
==================  ===============================================================================================
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from ocssl.common.files import atomic_write, writing
from ocssl.common.signals import Interrupted
from ocssl.engines import Job
from ocssl.errors import ConfigError
from ocssl.runs.folder import RunFolder
from ocssl.runs.presets import complete
from ocssl.sweeps.machines import Machines
from ocssl.sweeps.plan import Sweep, read_sweep
from ocssl.sweeps.report import best_yaml, markdown
from ocssl.sweeps.search import Adaptive, Listed, Searcher, import_optuna
from ocssl.sweeps.space import Scalar
from ocssl.sweeps.trials import Book, Run, Trial, words
from ocssl.sweeps.tuning import tune

Tell = Callable[[str], None]
"""Takes a line about what happened."""


def start_sweep(sweep: Sweep, output: str | Path, machines: Machines, tell: Tell = print) -> Book:
    """Begin a sweep in an empty or new folder and see it through.

    Nothing is written before everything that it needs was found.
    """
    folder = Path(output)
    if folder.exists() and (not folder.is_dir() or any(entry.name != ".lock" for entry in folder.iterdir())):
        hint = f"go on with it ({_command(folder)}) or " if (folder / "sweep.yaml").exists() else ""
        raise ConfigError(f"'{folder}' exists and is not empty; {hint}choose another --output")
    machines.engine()
    if sweep.search == "adaptive":
        import_optuna()
    with RunFolder(folder).lock():
        with writing(folder):
            atomic_write(folder / "sweep.yaml", sweep.to_yaml())
        return _search(sweep, folder, machines, tell)


def resume_sweep(output: str | Path, machines: Machines, tell: Tell = print) -> Book:
    """Go on with a sweep: what is finished stays, what was begun goes on, and what failed is tried again."""
    folder = Path(output)
    sweep = read_started(folder)
    with RunFolder(folder).lock():
        return _search(sweep, folder, machines, tell)


def read_started(folder: Path) -> Sweep:
    """The sweep that a folder holds."""
    file = folder / "sweep.yaml"
    if not file.is_file():
        raise ConfigError(f"'{folder}' is not a sweep: it has no sweep.yaml")
    return read_sweep(file)


def _command(folder: Path) -> str:
    """What goes on with a sweep, ready for a shell."""
    return f"ocssl sweep --resume {shlex.quote(str(folder))}"


def _search(sweep: Sweep, folder: Path, machines: Machines, tell: Tell) -> Book:
    book = Book(folder / "trials.jsonl")
    _check_unchanged(sweep, folder, book)

    def ended(trial: Trial, seed: int) -> None:
        tell(_line(sweep, book, trial, seed))

    try:
        if sweep.search == "adaptive" and machines.name == "ray":
            tune(sweep, folder, book, machines, ended)
        else:
            _try(sweep, folder, book, machines, ended)
    except (Interrupted, KeyboardInterrupt) as stopped:  # the latter between two runs
        number = stopped.exit_code - 128 if isinstance(stopped, Interrupted) else signal.SIGINT
        raise Interrupted(f"the sweep was stopped; go on with: {_command(folder)}", number) from stopped
    _conclude(sweep, folder, book)
    return book


def _check_unchanged(sweep: Sweep, folder: Path, book: Book) -> None:
    """Refuse a sweep that would not have begun the trials that its folder holds; further ones may follow them."""
    listed = None if sweep.search == "adaptive" else sweep.listed()
    for trial in book.trials:
        expected = trial.seeds == sweep.seeds and _is_proposed(trial, sweep, listed)
        if not expected or not all(_is_as_begun(trial, seed, sweep, folder) for seed in trial.seeds):
            raise ConfigError(
                f"'{folder / 'sweep.yaml'}' was changed since trial {trial.number} ({words(trial.values)}) began; "
                "change it back, or start another sweep with its own --output"
            )


def _is_proposed(trial: Trial, sweep: Sweep, listed: list[dict[str, Scalar]] | None) -> bool:
    if listed is not None:  # at any place: a grid may have been widened since, in any direction
        return trial.values in listed
    same_names = trial.values.keys() == sweep.space.keys()
    return same_names and all(value in sweep.space[name] for name, value in trial.values.items())


def _is_as_begun(trial: Trial, seed: int, sweep: Sweep, folder: Path) -> bool:
    run = RunFolder(folder / trial.folder / f"seed{seed}")
    wanted = complete(sweep.run_settings(trial.values, seed))
    return not run.config.exists() or run.read_config().digest() == wanted.digest()


def _try(sweep: Sweep, folder: Path, book: Book, machines: Machines, ended: Callable[[Trial, int], None]) -> None:
    searcher: Searcher = Adaptive(sweep, book) if sweep.search == "adaptive" else Listed(sweep, book)
    wanted: dict[str, tuple[Trial, int]] = {}

    def jobs() -> Iterator[Job]:
        for trial in searcher.propose():
            for seed, job in trial.jobs(sweep, folder).items():
                wanted[job.name] = trial, seed
                yield job

    for done in machines.engine().run(jobs()):
        trial, seed = wanted.pop(done.job.name)
        book.record(trial, seed, Run.of(done, sweep))
        ended(trial, seed)
        if trial.state != "open":
            searcher.learn(trial)


def _line(sweep: Sweep, book: Book, trial: Trial, seed: int) -> str:
    run = trial.runs[seed]
    ended = f"{run.score:.2f} %" if run.score is not None else f"failed: {run.reason}"
    over = sum(entry.state != "open" for entry in book.trials)
    total = sweep.trials or len(book.trials)
    return f"trial {trial.number} ({words(trial.values)}), seed {seed}: {ended} [{over} of {total} over]"


def _conclude(sweep: Sweep, folder: Path, book: Book) -> None:
    best = book.best()
    with writing(folder):
        atomic_write(folder / "table.md", markdown(sweep, book))
        if best is not None:
            atomic_write(folder / "best.yaml", best_yaml(sweep, book, best))
    if best is None:
        first = book.trials[0]
        raise ConfigError(f"every configuration failed ({len(book.trials)}), the first because: {first.reason}")
