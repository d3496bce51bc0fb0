"""What people see while work goes on: warnings, lines, progress bars, numbers in few characters.

Warnings go through the logger ``ocssl``. The command line prints them with :func:`print_warnings`; a program that uses
ocssl as a library configures the logger as it likes.
"""

from __future__ import annotations

import logging
import reprlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import ProgressColumn

log = logging.getLogger("ocssl")


def warn(text: str) -> None:
    """Warn: one sentence to the logger ``ocssl``."""
    log.warning(text)


@lru_cache(maxsize=1024)
def warn_once(text: str) -> None:
    """Warn of what comes again and again, such as a folder that is listed each second, the first time only."""
    warn(text)


def print_line(line: str) -> None:
    """Print a line on stderr. One that cannot be printed (a full disk, a closed pipe) does not stop the work."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


class _ToStderr(logging.Handler):
    """Prints each record as one line on stderr, above the bars where there are any."""

    def emit(self, record: logging.LogRecord) -> None:
        level = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        line = f"ocssl: {level}{record.getMessage()}"
        if _open_bars:
            _open_bars[-1].console.print(line, style="bold yellow", highlight=False, markup=False, soft_wrap=True)
        else:
            print_line(line)


_open_bars: list[Bars] = []


def print_warnings() -> None:
    """Print warnings on stderr, as the command line does; a second call changes nothing."""
    if not any(isinstance(handler, _ToStderr) for handler in log.handlers):
        log.addHandler(_ToStderr())
        log.propagate = False


def make_bars(*columns: ProgressColumn, is_bytes: bool = False) -> Bars:
    """Progress bars for stderr, which are not drawn yet; further columns stand behind the time that is left."""
    from rich import progress
    from rich.console import Console

    what, bar = progress.TextColumn("{task.description}"), progress.BarColumn(bar_width=24)
    amount = progress.DownloadColumn() if is_bytes else progress.MofNCompleteColumn()
    usual = (what, bar, amount, progress.TimeRemainingColumn())
    return progress.Progress(*usual, *columns, console=Console(stderr=True))


@contextmanager
def open_bars(*columns: ProgressColumn, is_bytes: bool = False) -> Iterator[Bars]:
    """Bars of :func:`make_bars` on stderr; warnings are printed above them."""
    with make_bars(*columns, is_bytes=is_bytes) as bars, _warnings_above(bars):
        yield bars


@contextmanager
def drawn_for_now(bars: Bars) -> Iterator[None]:
    """Draw bars while this is open, then take them off the terminal; warnings are printed above them."""
    from rich.live import Live

    with Live(get_renderable=bars.get_renderable, console=bars.console, transient=True), _warnings_above(bars):
        yield


@contextmanager
def _warnings_above(bars: Bars) -> Iterator[None]:
    _open_bars.append(bars)
    try:
        yield
    finally:
        _open_bars.remove(bars)


@contextmanager
def progress_bar(
    what: str, total: int | None, show: bool | None = None, *, start: int = 0, is_bytes: bool = False
) -> Iterator[Callable[[int], None]]:
    """One bar on stderr; yields a function that advances it by so many steps.

    Args:
        show: None shows the bar when stderr is a terminal.
        start: steps that were done before.
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda steps: None
        return
    with open_bars(is_bytes=is_bytes) as bars:
        task = bars.add_task(what, total=total, completed=start)
        yield lambda steps: bars.advance(task, steps)


def number_of(count: int, thing: str) -> str:
    """A count with its noun.

    >>> number_of(1, "image"), number_of(2, "image")
    ('1 image', '2 images')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def short_count(count: int) -> str:
    """A large count in four characters or so.

    >>> short_count(3_726_000), short_count(999_700), short_count(270_000), short_count(960)
    ('3.73M', '1.00M', '270k', '960')
    """
    if count >= 999_500:
        return f"{count / 1e6:.2f}M"
    return f"{count / 1e3:.0f}k" if count >= 10_000 else str(count)


def short_value(value: object) -> str:
    """A setting's value in a few characters.

    >>> short_value(0.30000000000000004), short_value(12), short_value("fifo"), short_value(True)
    ('0.3', '12', 'fifo', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def percent(value: float | None) -> str:
    """An accuracy with two digits; a dash where there is none.

    >>> percent(43.127), percent(None)
    ('43.13', '–')
    """
    return "–" if value is None else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """A duration as minutes and seconds, with hours where there are any.

    >>> duration(59.6), duration(3725)
    ('1:00', '1:02:05')
    """
    minutes, rest = divmod(round(seconds or 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class _Shown(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if abs(x) < 10**40 else f"a number of {x.bit_length():,} bits"


def shown(value: object) -> str:
    """The ``repr`` of a value for a message, cut where it is long or deep.

    >>> shown([0.1, "a"]), len(shown(["x" * 1000] * 1000)) < 1000
    ("[0.1, 'a']", True)
    """
    return _repr.repr(value)


_repr = _Shown()
_repr.maxlevel, _repr.maxstring, _repr.maxother = 3, 80, 200
_repr.maxlist = _repr.maxtuple = _repr.maxdict = _repr.maxset = 8
