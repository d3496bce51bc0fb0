"""How steps are run. Strategies do not know; eager execution is the reference."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from ocssl.batch import Outcome
from ocssl.settings import choice
from ocssl.step import Machine, arrive, depart, train_step

EXECUTIONS = ("auto", "eager")


class Executor(Protocol):
    """Runs the three parts of a minibatch's way through the machine."""

    def arrive(self, stream: Tensor) -> None:
        """Before the passes."""

    def step(self, stream: Tensor) -> Outcome:
        """One pass."""

    def depart(self, stream: Tensor, outcome: Outcome) -> None:
        """After the passes."""


class Eager:
    """Operation by operation, as the functions of :mod:`ocssl.step` say."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def arrive(self, stream: Tensor) -> None:
        """Before the passes."""
        arrive(self.machine, stream)

    def step(self, stream: Tensor) -> Outcome:
        """One pass."""
        return train_step(self.machine, stream)

    def depart(self, stream: Tensor, outcome: Outcome) -> None:
        """After the passes."""
        depart(self.machine, stream, outcome)


def make_executor(name: str, machine: Machine) -> Executor:
    """The executor of that name; ``auto`` is the fastest that the machine's device allows."""
    choice("execution", name, EXECUTIONS)
    return Eager(machine)
