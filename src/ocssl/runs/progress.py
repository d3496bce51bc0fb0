"""Where a run is, for people: bars on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ocssl.common.console import duration as clock
from ocssl.common.console import short_count as short

LINE_EVERY = 10.0  # seconds between two plain lines


@dataclass(frozen=True)
class Status:
    """A moment of a run.

    Attributes:
        samples, total: position in the stream and its length.
        experience, experiences: number of the present one, from 1, and of all.
        cbp, cbp_planned: spent and planned.
        rate: stream images per second.
        loss: at the last log point.
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
        """What a line of progress says beside the position."""
        parts = [f"experience {self.experience}/{self.experiences}"] if self.experiences > 1 else []
        parts += [f"CBP {short(self.cbp)}/{short(self.cbp_planned)}", f"{self.rate:.0f} img/s"]
        parts += [f"loss {self.loss:.3f}"] if self.loss is not None else []
        parts += [self.probe] if self.probe else []
        parts += [f"prepared in {self.preparing:.0f} s"] if self.preparing >= 1 else []
        return "  ".join(parts)

    @property
    def seconds_left(self) -> float | None:
        """At the present rate, evaluation not counted."""
        return (self.total - self.samples) / self.rate if self.rate > 0 else None


class Progress(AbstractContextManager["Progress"]):
    """Says nothing but warnings. The base of the others."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""

    def update(self, status: Status, *, important: bool = False) -> None:
        """The run got further."""

    def work(self, what: str, done: int, total: int) -> None:
        """Something besides training is going on and got so far."""

    def say(self, text: str) -> None:
        """Something worth a line happened."""

    def warn(self, text: str) -> None:
        """Something looks wrong."""
        print(f"ocssl: warning: {text}", file=sys.stderr, flush=True)


class SilentProgress(Progress):
    """Says nothing at all: another process speaks."""

    def warn(self, text: str) -> None:
        """Left to the other process."""


class LineProgress(Progress):
    """Lines on stderr, a few a minute: for logs and pipes."""

    def __init__(self) -> None:
        self._next = 0.0

    def update(self, status: Status, *, important: bool = False) -> None:
        """A line now and then, and whenever it matters."""
        if important or time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_EVERY
            left = f"  {clock(status.seconds_left)} left" if status.seconds_left else ""
            self.say(f"{status.samples}/{status.total} images  {status.facts()}{left}")

    def work(self, what: str, done: int, total: int) -> None:
        """As updates: a line now and then."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_EVERY
            self.say(f"{what}: {done}/{total}")

    def say(self, text: str) -> None:
        """Print it."""
        print(text, file=sys.stderr, flush=True)


class BarProgress(Progress):
    """Two bars on a terminal: the stream, and whatever else is going on."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[facts]}"),
            console=Console(stderr=True),
        )
        self._stream = self._bars.add_task("stream", total=None, facts="", start=False)
        self._work = self._bars.add_task("", total=None, facts="", visible=False)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""
        self._bars.stop()

    def update(self, status: Status, *, important: bool = False) -> None:
        """Move the first bar."""
        self._bars.start_task(self._stream)
        self._bars.update(self._stream, total=status.total, completed=status.samples, facts=status.facts())
        self._bars.update(self._work, visible=False)

    def work(self, what: str, done: int, total: int) -> None:
        """Move the second bar."""
        self._bars.update(self._work, description=what, total=total, completed=done, visible=done < total)

    def say(self, text: str) -> None:
        """Print it above the bars."""
        self._bars.console.print(text, highlight=False, markup=False)

    def warn(self, text: str) -> None:
        """Print it above the bars, to be seen."""
        self._bars.console.print(f"warning: {text}", style="bold yellow", highlight=False, markup=False)


def make_progress(*, quiet: bool) -> Progress:
    """The one that fits where standard error goes; in a group of processes the first one speaks for all."""
    from ocssl.distributed import current

    if not current().is_main:
        return SilentProgress()
    if quiet:
        return Progress()
    return BarProgress() if sys.stderr.isatty() else LineProgress()
