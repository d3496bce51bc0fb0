"""Progress of a run: bars on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Self

from ocssl.common.console import duration, open_bars, print_line, short_count
from ocssl.distributed import current

LINE_EVERY = 10.0  # seconds between two plain lines


@dataclass(frozen=True)
class Status:
    """Where a run is.

    Attributes:
        samples, total: position in the stream and its length.
        experience, experiences: number of the present one, from 1, and of all.
        rate: stream images per second.
        probe: the last accuracy, as words.
        preparing: seconds that went into compiling and capturing so far.
    """

    samples: int
    total: int
    experience: int
    experiences: int
    cbp: int
    cbp_planned: int
    rate: float
    loss: float | None
    probe: str | None
    preparing: float = 0.0

    def facts(self) -> str:
        """What a line of progress has beside the position."""
        parts = [f"experience {self.experience}/{self.experiences}"] if self.experiences > 1 else []
        parts += [f"CBP {short_count(self.cbp)}/{short_count(self.cbp_planned)}", f"{self.rate:.0f} img/s"]
        parts += [f"loss {self.loss:.3f}"] if self.loss is not None else []
        parts += [self.probe] if self.probe else []
        parts += [f"prepared in {self.preparing:.0f} s"] if self.preparing >= 1 else []
        return "  ".join(parts)


class Progress(AbstractContextManager["Progress"]):
    """Prints nothing. The base of the others; warnings go through :func:`ocssl.common.console.warn`."""

    def __exit__(self, *error: object) -> None:
        """Leave the terminal as it was."""

    def update(self, status: Status, *, important: bool = False) -> None:
        """Show where the run is."""

    def work(self, what: str, done: int, total: int) -> None:
        """Show how far work besides training is."""

    def info(self, text: str) -> None:
        """Print a line."""


class LineProgress(Progress):
    """Lines on stderr, a few a minute: for logs and pipes."""

    def __init__(self) -> None:
        self._next = 0.0

    def update(self, status: Status, *, important: bool = False) -> None:
        if important or time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_EVERY
            seconds = (status.total - status.samples) / status.rate if status.rate > 0 else 0  # of training alone
            left = f"  {duration(seconds)} left" if seconds else ""
            self.info(f"{status.samples}/{status.total} images  {status.facts()}{left}")

    def work(self, what: str, done: int, total: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_EVERY
            self.info(f"{what}: {done}/{total}")

    def info(self, text: str) -> None:
        print_line(text)


class BarProgress(Progress):
    """Two bars on a terminal: the stream, and work besides training."""

    def __enter__(self) -> Self:
        from rich.progress import TextColumn

        self._stack = ExitStack()
        self._bars = self._stack.enter_context(open_bars(TextColumn("{task.fields[facts]}")))
        self._stream = self._bars.add_task("stream", total=None, facts="", start=False)
        self._work = self._bars.add_task("", total=None, facts="", visible=False)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def update(self, status: Status, *, important: bool = False) -> None:
        self._bars.start_task(self._stream)
        self._bars.update(self._stream, total=status.total, completed=status.samples, facts=status.facts())
        self._bars.update(self._work, visible=False)

    def work(self, what: str, done: int, total: int) -> None:
        self._bars.update(self._work, description=what, total=total, completed=done, visible=done < total)

    def info(self, text: str) -> None:  # called between runs, where there are no bars
        print_line(text)


def make_progress(*, quiet: bool) -> Progress:
    """The kind that fits where standard error goes; in a process group only the main process prints."""
    if quiet or not current().is_main:
        return Progress()
    return BarProgress() if sys.stderr.isatty() else LineProgress()
