"""What a run ends with: numbers and, beside them, everything needed to know what they mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ocssl.errors import DataError, unreadable

Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class Curve(BaseModel):
    """Accuracies of one kind of probe along the stream, in percent."""

    final: Percent
    avg: Percent | None
    curve: list[Percent]


class Result(BaseModel):
    """The contents of ``result.json``. Accuracies are in percent, over all classes, on ``config.measure_on``.

    Attributes:
        strategy: its name; ``iid`` for the upper bound.
        method: the objective; None where the strategy brings its own.
        memory: the replay memory; None without replay.
        budget: ``high`` or ``low`` where b_s, b and n_p are the paper's, else ``custom``.
        protocol: ``clean`` or ``authors``; numbers of the two are not comparable.
        final: linear probe after the last experience; None where nothing was measured.
        avg: mean over the probes after each experience; None where only the end was measured.
        curve: the probes after each experience.
        cbp_planned, cbp_spent: cumulative backward passes; those of a run this one started from included.
        train_seconds, eval_seconds: time spent, checkpoints and start-up not counted.
        seconds_at: ``train_seconds`` at the end of each experience: equal steps where the cost is flat.
        prepare_seconds: compiling and capturing, which ``train_seconds`` does not count either.
        knn: the same by k-NN.
        matrix: ``matrix[i][j]``: after experience i, on the classes of experience j.
        forgetting: mean fall of each experience's accuracy from its best.
        references: linear probes to compare with: ``untrained`` (``initial`` for a run that started from another) is
            the encoder before the first image, ``pixels`` no encoder at all.
        borders: samples of the stream at which the curve was measured.
        experiences: the classes of each experience.
        samples: length of the stream.
        fingerprint: of the stream.
        warnings: what looked wrong on the way.
        config: every setting.
        code: the commit or the version that ran.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    strategy: str
    method: str | None
    memory: str | None
    dataset: str
    budget: Literal["high", "low", "custom"]
    protocol: Literal["clean", "authors"]
    seed: int
    final: Percent | None
    avg: Percent | None
    curve: list[Percent]
    cbp_planned: int = Field(ge=0)
    cbp_spent: int = Field(ge=0)
    train_seconds: float = Field(ge=0)
    eval_seconds: float = Field(ge=0)
    seconds_at: list[float] = Field(default_factory=list)
    prepare_seconds: float = Field(default=0, ge=0)
    knn: Curve | None
    matrix: list[list[Percent]]
    forgetting: float | None
    references: dict[str, Percent]
    borders: list[int]
    experiences: list[list[int]]
    samples: int
    fingerprint: str
    warnings: list[str]
    config: dict[str, Any]
    versions: dict[str, str]
    hardware: dict[str, Any]
    code: str
    started: str
    finished: str
    format: Literal[1] = 1

    @property
    def measured_on(self) -> str:
        """Which images the accuracies are of: ``test``, or ``validation`` where settings were to be chosen."""
        return str(self.config.get("measure_on", "test"))

    def to_json(self) -> str:
        """As it stands in the file."""
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"


def read_result(path: str | Path) -> Result:
    """Read a result file, or the one in a run's folder; anything that is not a whole result is refused."""
    place = Path(path)
    file = place / "result.json" if place.is_dir() else place
    try:
        return Result.model_validate_json(file.read_text())
    except FileNotFoundError as error:
        what = "has no result.json; the run is not finished" if place.is_dir() else "does not exist"
        raise DataError(f"'{place}' {what}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(unreadable(file, error)) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise DataError(f"'{file}' is not a complete result: {f'{where}: ' if where else ''}{first['msg']}") from error


def schema() -> dict[str, Any]:
    """The JSON schema of ``result.json``, which is published as ``result.schema.json``."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Result.model_json_schema()}
