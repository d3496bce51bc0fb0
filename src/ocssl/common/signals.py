"""Requests to stop: SIGINT and SIGTERM are noted, and the work ends at the next safe point."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType

from ocssl.errors import OcsslError


class Interrupted(OcsslError):
    """Work stopped on request, with everything saved; ``exit_code`` is what the command line ends with."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


class StopRequest:
    """Catches SIGINT and SIGTERM while it is open; a second SIGINT interrupts at once.

    >>> with StopRequest() as stop:
    ...     stop.pending
    False
    """

    def __init__(self) -> None:
        self.pending = False
        self.number = 0
        self._before: dict[int, object] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.number:  # later signals change nothing: the work is stopping already
            self.pending, self.number = True, number
