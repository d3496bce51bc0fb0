"""Which images were taken, by name: a restart is exact although files come and go in any order.

The index is an SQLite file: memory stays bounded, and what is committed survives any kill. Entries are numbered. A
checkpoint stores how many there were; entries that are newer than the checkpoint are removed on restart.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from ocssl.errors import CheckpointError

FOLDER, PATHS = "folder:", "paths"  # sources of which every image is in the index
_TABLE = """
CREATE TABLE IF NOT EXISTS arrivals (
    source TEXT, name TEXT, number INTEGER, stamp TEXT, problem TEXT, PRIMARY KEY (source, name)
) WITHOUT ROWID
"""


class SeenIndex:
    """Names of the images that were learned from or refused, per source; entries beyond ``size`` are removed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, SeenIndex(f"{folder}/seen.sqlite") as index:
    ...     index.add("cam", "1.jpg")
    ...     index.add("cam", "2.jpg", stamp="10 bytes", problem="it is broken")
    ...     index.has("cam", "1.jpg", lambda: ""), index.has("cam", "2.jpg", lambda: "20 bytes"), index.size
    (True, False, 2)
    """

    def __init__(self, path: str | Path, size: int = 0) -> None:
        self.path = Path(path)
        self.size = size
        self._uncommitted: dict[tuple[str, str], tuple[int, str, str | None]] = {}
        with _naming(self.path):
            self._file = sqlite3.connect(self.path)
            self._file.execute(_TABLE)
            self._file.execute("DELETE FROM arrivals WHERE number > ?", (size,))
            self._file.commit()

    def add(self, source: str, name: str, *, stamp: str = "", problem: str | None = None) -> None:
        """Add an image that was used or, with a problem, refused.

        Args:
            stamp: changes whenever the image's file does.
        """
        self.size += 1
        self._uncommitted[source, name] = (self.size, stamp, problem)

    def has(self, source: str, name: str, stamp: Callable[[], str]) -> bool:
        """Whether an image is finished: it was used, or it was refused and its file has not changed since.

        Args:
            stamp: gives that of the file as it is now; asked for where the image was refused.
        """
        entry = self._uncommitted.get((source, name))
        if entry is None:
            with _naming(self.path):
                query = "SELECT number, stamp, problem FROM arrivals WHERE source = ? AND name = ?"
                entry = self._file.execute(query, (_encode(source), _encode(name))).fetchone()
        return entry is not None and (entry[2] is None or entry[1] == stamp())

    def commit(self) -> None:
        """Write every entry to disk; after a failure all of them are still known and can be committed later."""
        rows = [(_encode(source), _encode(name), *entry) for (source, name), entry in self._uncommitted.items()]
        with _naming(self.path), self._file:
            self._file.executemany("INSERT OR REPLACE INTO arrivals VALUES (?, ?, ?, ?, ?)", rows)
        self._uncommitted.clear()

    def __enter__(self) -> SeenIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def count_images(path: str | Path, size: int, source: str, taken: int) -> tuple[int, int]:
    """How many images of a source were learned from, and how many are refused; nothing in the index changes.

    Args:
        taken: images of the source that were used or refused; a file that was refused and tried again counts twice. A
            source with a fixed order has only its refused images in the index, so the others follow from this number.
    """
    query = "SELECT COUNT(*), COUNT(problem) FROM arrivals WHERE source = ? AND number <= ?"
    with (
        _naming(path),
        contextlib.closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=rw", uri=True)) as file,
    ):
        entries, refused = file.execute(query, (_encode(source), size)).fetchone()
    by_name = source == PATHS or source.startswith(FOLDER)
    return (entries if by_name else taken) - refused, refused


@contextlib.contextmanager
def _naming(path: str | Path) -> Iterator[None]:
    """Turn a failure of SQLite into an error that names the index."""
    try:
        yield
    except sqlite3.Error as error:
        raise CheckpointError(f"the index of images '{path}' cannot be read or written: {error}") from error


def _encode(name: str) -> str | bytes:
    """A name as SQLite takes it: a file name that is not UTF-8 holds surrogates and is stored as bytes."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return name.encode(errors="surrogatepass")
    return name
