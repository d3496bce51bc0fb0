"""A progress bar on stderr for work that takes its time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(
    what: str, total: int | None, show: bool | None = None, *, start: int = 0, is_bytes: bool = False
) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances the bar by so many steps.

    Args:
        what: a few words on what is going on.
        total: steps in all, None when unknown.
        show: None shows the bar when stderr is a terminal.
        start: steps that were done before.
        is_bytes: the steps are bytes, shown as a download.
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    amount = DownloadColumn() if is_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(what, total=total, completed=start)
        yield lambda steps: bars.advance(task, steps)
