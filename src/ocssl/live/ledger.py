"""Which images were handed out, by name: what makes a restart exact when files come and go in any order.

An SQLite file, so that memory stays bounded however many images there were, and a committed line survives any kill.
Every line has a number; a saved learner knows how many there were, and whatever was written later is forgotten when
learning goes on from that save.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from ocssl.errors import CheckpointError

_TABLE = """
CREATE TABLE IF NOT EXISTS arrivals (
    source TEXT, name TEXT, number INTEGER, stamp TEXT, problem TEXT, PRIMARY KEY (source, name)
) WITHOUT ROWID
"""


class Ledger:
    """Names of the images that were learned from or refused, per source.

    Args:
        path: the file; made if it is not there.
        count: lines that are valid; those written after them are forgotten.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Ledger(f"{folder}/ledger.sqlite") as ledger:
    ...     ledger.add("cam", "1.jpg")
    ...     ledger.add("cam", "2.jpg", stamp="10 bytes", problem="it is broken")
    ...     ledger.holds("cam", "1.jpg", ""), ledger.holds("cam", "2.jpg", "20 bytes"), ledger.count
    (True, False, 2)
    """

    def __init__(self, path: str | Path, count: int = 0) -> None:
        self.path = Path(path)
        self.count = count
        self._waiting: dict[tuple[str, str], tuple[int, str, str | None]] = {}
        with self._telling():
            self._file = sqlite3.connect(self.path)
            self._file.execute(_TABLE)
            self._file.execute("DELETE FROM arrivals WHERE number > ?", (count,))
            self._file.commit()

    def add(self, source: str, name: str, *, stamp: str = "", problem: str | None = None) -> None:
        """Note that an image was used or, with a problem, refused; ``stamp`` changes whenever its file does."""
        self.count += 1
        self._waiting[source, name] = (self.count, stamp, problem)

    def holds(self, source: str, name: str, stamp: str) -> bool:
        """Whether this image is done with. One that was refused is not, once its file has changed."""
        line = self._waiting.get((source, name))
        if line is None:
            with self._telling():
                query = "SELECT number, stamp, problem FROM arrivals WHERE source = ? AND name = ?"
                line = self._file.execute(query, (_to_file(source), _to_file(name))).fetchone()
        return line is not None and (line[2] is None or line[1] == stamp)

    def refused(self, source: str) -> Iterator[tuple[str, str]]:
        """Name and problem of every image of a source that was refused, as far as it is saved."""
        with self._telling():
            query = "SELECT name, problem FROM arrivals WHERE source = ? AND problem NOT NULL ORDER BY number"
            for name, problem in self._file.execute(query, (_to_file(source),)):
                yield _from_file(name), problem

    def learned(self, source: str) -> Iterator[str]:
        """Names of the images of a source that were learned from, in order, as far as they are saved."""
        with self._telling():
            query = "SELECT name FROM arrivals WHERE source = ? AND problem IS NULL ORDER BY number"
            yield from (_from_file(name) for (name,) in self._file.execute(query, (_to_file(source),)))

    def commit(self) -> None:
        """Bring every line safely to disk; after a failure all of them are still known and can be committed later."""
        lines = [(_to_file(source), _to_file(name), *line) for (source, name), line in self._waiting.items()]
        with self._telling(), self._file:
            self._file.executemany("INSERT OR REPLACE INTO arrivals VALUES (?, ?, ?, ?, ?)", lines)
        self._waiting.clear()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _telling(self) -> _Telling:
        return _Telling(self.path)


def _to_file(name: str) -> str | bytes:
    """A name as SQLite takes it: the name of a file that is not UTF-8 holds surrogates and goes as bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return name.encode(errors="surrogatepass")
    return name


def _from_file(name: str | bytes) -> str:
    return name.decode(errors="surrogatepass") if isinstance(name, bytes) else name


class _Telling:
    """Turns what SQLite says into a sentence that names the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, sqlite3.Error):
            raise CheckpointError(f"the ledger '{self._path}' cannot be read or written: {error}") from error
