"""Who may use a learner at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, RLock

from ocssl.errors import ConfigError

FORKED_WAIT = 60.0  # seconds for a lock that a fork copied
REMEDY = "start the process by spawn, or call torch.set_num_threads(1) and load a saved one here"


class LearnerLocks:
    """One call learns at a time; one thread at a time trains the networks, evaluates them or writes them.

    They belong to one process: a lock that was closed at a fork may never be opened in the child.
    """

    def __init__(self) -> None:
        self._learning, self._step = Lock(), RLock()
        self._process = os.getpid()

    @contextmanager
    def learning(self) -> Iterator[None]:
        """While a call cuts the stream; a second one is refused, since both would take the same images."""
        if self._process != os.getpid():
            raise ConfigError(f"this learner was copied by a fork; {REMEDY}")
        if not self._learning.acquire(blocking=False):
            raise ConfigError("this learner is learning in another thread, or in a callback; one call at a time learns")
        try:
            yield
        finally:
            self._learning.release()

    @contextmanager
    def step(self) -> Iterator[None]:
        """During a step, or between two: other threads wait."""
        if not self._step.acquire(timeout=-1 if self._process == os.getpid() else FORKED_WAIT):
            raise ConfigError(f"this learner was learning when a fork copied it; {REMEDY}")
        try:
            yield
        finally:
            self._step.release()
