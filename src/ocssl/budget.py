"""Cumulative Backward Passes (CBP): views × batch, summed over steps.

>>> plan(samples=45_000, stream_batch=10, batch=138, passes=3)
Plan(cbp=3726000, steps=13500, iid_epochs=42)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from ocssl.common.console import shown
from ocssl.errors import ConfigError

MAX_COUNT = 10**18  # of each count


@dataclass(frozen=True)
class Plan:
    """What a stream will cost: ``cbp`` in total, in ``steps`` steps; ``iid_epochs`` is the i.i.d. run of equal cost."""

    cbp: int
    steps: int
    iid_epochs: int


def plan(samples: int, stream_batch: int, batch: int, passes: int, views: int | Fraction = 2) -> Plan:
    """The paper's arithmetic for a stream of ``samples`` images.

    Args:
        samples: images in the stream (N).
        stream_batch: images per stream minibatch (b_s); an incomplete last one is not counted.
        batch: images one step trains on (b).
        passes: training steps per stream minibatch (n_p).
        views: backward passes of each image in a step: its augmented views (n_v), and small crops by their pixels.

    >>> plan(samples=45_000, stream_batch=10, batch=30, passes=1).cbp
    270000
    """
    for name, value in locals().copy().items():
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, not {value}")
        if value > MAX_COUNT:
            raise ConfigError(f"{name} must be at most 10**18, not {shown(value)}")
    steps = passes * (samples // stream_batch)
    return Plan(cbp=steps * math.ceil(views * batch), steps=steps, iid_epochs=-(-passes * batch // stream_batch))


@dataclass
class Budget:
    """Counts what a learner really spends.

    >>> budget = Budget()
    >>> budget.charge(20)
    >>> budget.spent, budget.steps
    (20, 1)
    """

    spent: int = 0
    steps: int = 0

    def charge(self, cbp: int) -> None:
        """Count one training step with ``cbp`` backward passes."""
        self.spent += cbp
        self.steps += 1
