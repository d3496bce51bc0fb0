"""What a run knows besides its learner, and what a checkpoint therefore keeps beside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ocssl.errors import CheckpointError
from ocssl.evaluation import Accuracy


@dataclass
class Measured:
    """What the probes said of the encoder at one moment."""

    samples: int
    linear: Accuracy | None = None
    knn: Accuracy | None = None


@dataclass
class State:
    """Everything about a run that its learner and its configuration do not tell.

    Attributes:
        started: when.
        cbp_before: CBP that went into the networks before this run.
        finished: how many experiences are over, measured and done with.
        measured: by moment: ``start``, or the number of the experience that had just ended, from 1.
        prepare_seconds, train_seconds, eval_seconds: so far.
        seconds_at: what ``train_seconds`` was at the end of each experience.
        warnings: so far, in order.
        collapsed: whether the last warning about collapse still holds.
    """

    started: str
    cbp_before: int = 0
    finished: int = 0
    measured: dict[str, Measured] = field(default_factory=dict)
    prepare_seconds: float = 0.0
    train_seconds: float = 0.0
    eval_seconds: float = 0.0
    seconds_at: list[float] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    collapsed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> State:
        """From what :meth:`to_dict` gave, ignoring what else was saved with it."""
        try:
            known = {entry.name: saved[entry.name] for entry in fields(cls)}
            known["measured"] = {name: _measured(entry) for name, entry in saved["measured"].items()}
            return cls(**known)
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"the checkpoint's state does not fit this version of ocssl: {error!r}") from error


def _measured(entry: dict[str, Any]) -> Measured:
    def accuracy(counts: dict[str, list[int]] | None) -> Accuracy | None:
        return None if counts is None else Accuracy(tuple(counts["correct"]), tuple(counts["total"]))

    return Measured(entry["samples"], accuracy(entry["linear"]), accuracy(entry["knn"]))
