"""The trials of a sweep and the file that holds them.

The file is replaced as a whole after every change, so a reader finds each trial in it once. It holds no times and no
number of attempts, so that a disturbed sweep ends with the same bytes as an undisturbed one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ocssl.common.console import short_value
from ocssl.common.files import atomic_write, read_file, slug, writing
from ocssl.errors import CheckpointError, first_misfit
from ocssl.sweeps.space import Scalar


class Trial(BaseModel):
    """A configuration that is tried with each of the seeds: a line of the file.

    Scores, CBP and reasons are in the order of the seeds.

    Attributes:
        number: from 1, in the order of proposal; ``trial`` in the file.
        values: of the settings that vary and that this configuration reads.
        scores: of its runs, in percent, on validation images; None where a run failed or is not over.
        cbp: spent by its runs; None where a run failed or is not over.
        reasons: why runs failed; None where a run succeeded or is not over.
        folder: of its runs, relative to the folder of the sweep.
    """

    model_config = ConfigDict(strict=True)

    number: Annotated[int, Field(ge=1, alias="trial")]
    values: dict[str, Scalar]
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    scores: list[Annotated[float, Field(allow_inf_nan=False)] | None]
    cbp: list[Annotated[int, Field(ge=0)] | None]
    reasons: list[str | None]
    folder: Annotated[str, Field(pattern=r"^trials/[^/]+$")]

    @classmethod
    def new(cls, number: int, values: Mapping[str, Scalar], seeds: list[int]) -> Trial:
        """A trial none of whose runs is over.

        >>> Trial.new(1, {"lr": 0.3}, [0, 1]).folder
        'trials/001-lr=0.3'
        """
        plain = ",".join(f"{name}={short_value(value)}" for name, value in values.items())
        unknown = dict.fromkeys(("scores", "cbp", "reasons"), [None] * len(seeds))
        folder = f"trials/{slug(f'{number:03d}-{plain}')}"
        return cls.model_validate({"trial": number, "values": values, "seeds": seeds, **unknown, "folder": folder})

    @model_validator(mode="after")
    def _has_one_of_each_by_seed(self) -> Trial:
        if not len(self.seeds) == len(self.scores) == len(self.cbp) == len(self.reasons):
            raise ValueError("seeds, scores, cbp and reasons are not of one length")
        if self.folder == "trials/..":
            raise ValueError("folder leads outside")
        return self

    @property
    def missing(self) -> list[int]:
        """Seeds whose runs are not over."""
        runs = zip(self.seeds, self.scores, self.reasons, strict=True)
        return [seed for seed, score, reason in runs if score is None and reason is None]

    @property
    def reason(self) -> str | None:
        """Why it failed: the reason of the first seed that did."""
        return next(filter(None, self.reasons), None)

    @property
    def state(self) -> Literal["open", "done", "failed"]:
        """A trial fails when one of its runs does."""
        return "open" if self.missing else "failed" if self.reason else "done"

    @property
    def score(self) -> float | None:
        """Mean over the seeds; None unless every run succeeded."""
        found = [score for score in self.scores if score is not None]
        return sum(found) / len(found) if self.state == "done" else None


class TrialLog:
    """Every trial of a sweep, at any moment on disk in ``trials.jsonl``, which is read if it exists.

    Attributes:
        out_of_time: whether the search ended before its last trial.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.trials: list[Trial] = []
        self.out_of_time = False
        try:
            lines = read_file(path).splitlines() if os.path.lexists(path) else []
            for number, line in enumerate(lines, 1):
                trial = Trial.model_validate_json(line)
                if trial.number != number:
                    raise ValueError(f"line {number} is of trial {trial.number}")
                self.trials.append(trial)
        except ValidationError as error:
            raise CheckpointError(f"'{path}' is not a list of trials: line {number}: {first_misfit(error)}") from error
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"'{path}' is not a list of trials: {error}") from error

    def add(self, configurations: Iterable[Mapping[str, Scalar]], seeds: list[int]) -> list[Trial]:
        """Append a trial for each configuration."""
        first = len(self.trials) + 1
        added = [Trial.new(number, values, seeds) for number, values in enumerate(configurations, first)]
        self.trials += added
        self._write()
        return added

    def record(
        self, trial: Trial, seed: int, score: float | None = None, cbp: int | None = None, reason: str | None = None
    ) -> None:
        """Store how a run of a trial ended."""
        place = trial.seeds.index(seed)
        trial.scores[place], trial.cbp[place], trial.reasons[place] = score, cbp, reason
        self._write()

    @property
    def failed(self) -> int:
        """How many trials failed."""
        return sum(trial.state == "failed" for trial in self.trials)

    def best(self) -> Trial | None:
        """The trial with the highest score, the earliest of equals."""
        done = [trial for trial in self.trials if trial.score is not None]
        return max(done, key=lambda trial: (trial.score, -trial.number), default=None)

    def _write(self) -> None:
        lines = [
            {**trial.model_dump(by_alias=True), "state": trial.state, "score": trial.score} for trial in self.trials
        ]
        with writing(self._path):
            atomic_write(self._path, "".join(json.dumps(line) + "\n" for line in lines))


def describe(values: Mapping[str, Scalar]) -> str:
    """Values in a sentence.

    >>> describe({"lr": 0.1, "memory": "fifo"})
    'lr 0.1, memory fifo'
    """
    return ", ".join(f"{name} {short_value(value)}" for name, value in values.items())
