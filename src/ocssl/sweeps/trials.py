"""The trials of a sweep, and the book that is kept of them.

The book is a file that is replaced as a whole whenever something happened: a reader finds every trial in it once. It
holds no times and no number of attempts, so that a disturbed sweep ends with the same bytes as an undisturbed one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ocssl.common.files import atomic_write, writing
from ocssl.engines import Done, Job
from ocssl.engines.attempt import Outcome
from ocssl.errors import CheckpointError
from ocssl.sweeps.plan import Sweep
from ocssl.sweeps.space import Scalar


@dataclass(frozen=True)
class Run:
    """How one run of a trial ended.

    Attributes:
        score: in percent, on validation images; None where it failed.
        cbp: spent.
        reason: why it failed.
    """

    score: float | None
    cbp: int | None
    reason: str | None

    @classmethod
    def of(cls, done: Done | Outcome, sweep: Sweep) -> Run:
        """From what an engine, or one attempt, says."""
        result = done.result
        if result is None:
            return cls(None, None, done.error)
        return cls(result.final if sweep.score == "final" else result.avg, result.cbp_spent, None)


@dataclass
class Trial:
    """A configuration that was tried, with each of the seeds.

    Attributes:
        number: from 1, in the order of proposal.
        values: of the settings that vary.
        seeds: that it is to run with.
        runs: that are over, by seed.
    """

    number: int
    values: dict[str, Scalar]
    seeds: list[int]
    runs: dict[int, Run] = field(default_factory=dict)

    @property
    def state(self) -> Literal["open", "done", "failed"]:
        """One run that failed fails its trial."""
        if len(self.runs) < len(self.seeds):
            return "open"
        return "failed" if self.reason else "done"

    @property
    def reason(self) -> str | None:
        """Why it failed: what the first seed says that did."""
        reasons = (self.runs[seed].reason for seed in self.seeds if seed in self.runs)
        return next((reason for reason in reasons if reason), None)

    @property
    def scores(self) -> list[float]:
        """Of the runs that succeeded, in the order of the seeds."""
        found = (self.runs[seed].score for seed in self.seeds if seed in self.runs)
        return [score for score in found if score is not None]

    @property
    def score(self) -> float | None:
        """Mean over the seeds; None unless every one of them succeeded."""
        return sum(self.scores) / len(self.scores) if self.state == "done" else None

    @property
    def folder(self) -> Path:
        """Where its runs are, seen from the sweep's folder."""
        words = (f"{name}={short(value)}" for name, value in self.values.items())
        plain = ",".join(words).translate(str.maketrans("/: ", "---"))
        return Path("trials") / f"{self.number:03d}-{plain}"[:120]

    def jobs(self, sweep: Sweep, output: Path) -> dict[int, Job]:
        """Its runs that are not over, as an engine takes them, by seed."""
        place = output / self.folder
        return {
            seed: Job(f"trial {self.number}, seed {seed}", sweep.run_settings(self.values, seed), place / f"seed{seed}")
            for seed in self.seeds
            if seed not in self.runs
        }

    def to_dict(self) -> dict[str, Any]:
        """As a line of the book has it."""
        runs = [self.runs.get(seed) for seed in self.seeds]
        return {
            "trial": self.number,
            "values": self.values,
            "state": self.state,
            "score": self.score,
            "seeds": self.seeds,
            "scores": [run and run.score for run in runs],
            "cbp": [run and run.cbp for run in runs],
            "reasons": [run and run.reason for run in runs],
            "folder": str(self.folder),
        }

    @classmethod
    def from_dict(cls, line: Mapping[str, Any]) -> Trial:
        """From a line of the book."""
        runs = zip(line["seeds"], line["scores"], line["cbp"], line["reasons"], strict=True)
        found = {seed: Run(score, cbp, reason) for seed, score, cbp, reason in runs if cbp or reason}
        return cls(line["trial"], line["values"], line["seeds"], found)


class Book:
    """Every trial of a sweep, on disk at any moment.

    Args:
        path: the file; what it holds already is read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.trials: list[Trial] = []
        if path.exists():
            try:
                self.trials = [Trial.from_dict(json.loads(line)) for line in path.read_text().splitlines()]
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise CheckpointError(f"'{path}' is not a list of trials: {error!r}") from error

    def add(self, values: Mapping[str, Scalar], seeds: list[int]) -> Trial:
        """Note that a configuration is going to be tried."""
        trial = Trial(len(self.trials) + 1, dict(values), seeds)
        self.trials.append(trial)
        self._write()
        return trial

    def record(self, trial: Trial, seed: int, run: Run) -> None:
        """Note how a run of a trial ended."""
        trial.runs[seed] = run
        self._write()

    def best(self) -> Trial | None:
        """The trial with the highest score, the earliest of equals; failed ones never win."""
        done = [trial for trial in self.trials if trial.score is not None]
        return max(done, key=lambda trial: (trial.score, -trial.number), default=None)

    def _write(self) -> None:
        lines = (json.dumps(trial.to_dict()) + "\n" for trial in self.trials)
        with writing(self._path):
            atomic_write(self._path, "".join(lines))


def short(value: Scalar) -> str:
    """A value in a few characters.

    >>> short(0.30000000000000004), short(12), short("fifo")
    ('0.3', '12', 'fifo')
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def words(values: Mapping[str, Scalar]) -> str:
    """Values in a sentence.

    >>> words({"lr": 0.1, "memory": "fifo"})
    'lr 0.1, memory fifo'
    """
    return ", ".join(f"{name} {short(value)}" for name, value in values.items())
