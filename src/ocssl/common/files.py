"""Files and folders: atomic writes, locks, names. Every file that ocssl writes is written through this module."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from ocssl.errors import CheckpointError, ConfigError, OcsslError

MOST_BYTES = 64 * 2**20  # of a file of settings, of a result, of an index
NAME_BYTES = 120  # of one file name; file systems take 255, and suffixes follow


def atomic_write(path: str | Path, content: str | bytes | Callable[[Path], object]) -> Path:
    """Replace a file in one step: a reader sees the old file or the new one, and a full disk leaves the old one.

    Args:
        content: the text, the bytes, or a function that writes the draft whose path it is given.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     atomic_write(f"{folder}/a.txt", "text").read_text()
    'text'
    """
    path = Path(path)
    draft = path.with_name(f".{path.name[:NAME_BYTES]}.{uuid.uuid4().hex[:8]}")
    try:
        if isinstance(content, str):
            draft.write_text(content, encoding="utf-8")
        elif isinstance(content, bytes):
            draft.write_bytes(content)
        else:
            content(draft)
        sync(draft)
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    return path


def sync(path: Path) -> None:
    """Wait until a file or a folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_file(path: str | Path, limit: int = MOST_BYTES) -> bytes:
    """The content of a regular file. A pipe, a device, a folder or a longer file is an ``OSError``.

    >>> read_file("/dev/zero")
    Traceback (most recent call last):
    ...
    OSError: [Errno 22] not a regular file: '/dev/zero'
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            kind = errno.EISDIR if stat.S_ISDIR(facts.st_mode) else errno.EINVAL
            raise OSError(kind, os.strerror(kind) if kind == errno.EISDIR else "not a regular file", str(path))
        with open(handle, "rb", closefd=False) as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise OSError(errno.EFBIG, f"more than {limit:,} bytes", str(path))
        return content
    finally:
        os.close(handle)


@contextlib.contextmanager
def writing(path: str | Path, error: type[OcsslError] = CheckpointError) -> Iterator[None]:
    """Turn a failed write into an error that names the file.

    >>> with writing("no such folder/a.txt"):
    ...     Path("no such folder/a.txt").write_text("")
    Traceback (most recent call last):
    ...
    ocssl.errors.CheckpointError: cannot write 'no such folder/a.txt': No such file or directory
    """
    try:
        yield
    except OSError as failure:
        if isinstance(failure, OcsslError | Timeout):
            raise
        raise error(f"cannot write '{path}': {failure.strerror or failure}") from failure


@contextlib.contextmanager
def locked(folder: str | Path, wait: float = 0) -> Iterator[None]:
    """Hold a folder, which is made if needed, so that no second process writes there; the lock ends with the process.

    Args:
        wait: seconds to wait for another process to leave.
    """
    folder = Path(folder)
    lock = FileLock(folder / ".lock", timeout=wait)
    try:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
    except Timeout as error:
        raise ConfigError(f"another process is working in '{folder}'") from error
    try:
        yield
    finally:
        lock.release()


def slug(text: str, limit: int = NAME_BYTES) -> str:
    """A name that any file system takes: letters, digits, ``-``, ``_``, ``.``, ``=`` and ``,``.

    >>> slug("folder:my images/1")
    'folder-my-images-1'
    """
    plain = re.sub(r"[^\w.=,-]", "-", text)
    return plain.encode(errors="replace")[:limit].decode(errors="ignore")


def now() -> str:
    """The time in UTC, to the second, as files have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def require_regular(path: str | Path) -> None:
    """Refuse a pipe, a device or a folder before a library opens it and waits; such a path is an ``OSError``.

    >>> require_regular("/dev/zero")
    Traceback (most recent call last):
    ...
    OSError: [Errno 22] not a regular file: '/dev/zero'
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
