"""Requests to stop: SIGINT, SIGTERM and SIGHUP are noted, and the work ends at the next safe point."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

from ocssl.errors import OcsslError

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AT_ONCE = 1.0  # seconds within which several signals are one request
NOTED = "\nStopping once the work in hand is saved. Ctrl-C again stops at once and drops what is not saved.\n"
PATIENCE = 3.0  # seconds that a wait for another process may go on after a request to stop


class Interrupted(OcsslError):
    """Work stopped on request, by the signal ``number``, with everything saved."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number
        self.exit_code = 128 + number  # of the command line


class StopRequest:
    """Catches SIGINT, SIGTERM and SIGHUP while it is open.

    A second Ctrl-C, or the same signal again, ends at once if it comes a second later or more. Another kind changes
    nothing: a closing terminal sends several. SIGHUP stays ignored where it is, as under ``nohup``. A request that
    comes when the work is done ends it all the same with :class:`Interrupted`, so that a series of runs ends. One that
    comes before the work fails is handed to the :class:`StopRequest` around it.

    >>> with StopRequest() as stop:
    ...     stop.pending
    False
    """

    def __init__(self) -> None:
        self.pending = False
        self.number = 0
        self.since = 0.0
        self._before: dict[int, object] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            for number in NUMBERS[:-1] if ignored else NUMBERS:
                self._before[number] = signal.signal(number, self._note)
            if _open:
                self._take_over(_open[-1])  # it came before the inner work began
            _open.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self in _open:
            _open.remove(self)
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        if kind is None and self.number and self._before:
            raise Interrupted("stopped; what had begun is complete", self.number)
        if _open and self._before:
            _open[-1]._take_over(self)  # work that failed does not end a series; the request does

    def _take_over(self, other: StopRequest) -> None:
        """Note a request that another one caught."""
        if other.number and not self.number:
            self.pending, self.number, self.since = True, other.number, other.since

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.number:
            self.pending, self.number, self.since = True, number, now
            if number == signal.SIGINT:
                _acknowledge()
        elif number in (signal.SIGINT, self.number) and now - self.since > AT_ONCE:
            os._exit(128 + number)  # nothing is half written: every write ends with a rename


def _acknowledge() -> None:
    """Tell a terminal that Ctrl-C was noted; what print writes must not begin inside of another print."""
    with suppress(AttributeError, OSError, ValueError):  # no standard error, or a closed one
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), NOTED.encode())


_open: list[StopRequest] = []


def check_waiting(what: str) -> None:
    """Call this again and again while waiting for another process: it ends the wait seconds after a request to stop.

    >>> check_waiting("for a lock")
    """
    check_stop(f"stopped while it waited {what}; the last save stays", PATIENCE)


def check_stop(message: str, patience: float = 0.0) -> None:
    """Call this again and again in work that may be dropped: it ends after a request to stop, some seconds later."""
    for stop in _open:
        if stop.number and time.monotonic() - stop.since >= patience:
            raise Interrupted(message, stop.number)
