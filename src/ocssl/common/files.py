"""Files and folders: atomic writes, ownership, locks, names. Every file that ocssl writes goes through this module.

A file is ours only if it says so: each kind that ocssl writes for other programs carries a mark (:data:`MARK`, or a key
``ocssl`` where the kind has keys). :func:`check_output` refuses everything else before any work, and a draft has a name
that ends in twelve random hexadecimal digits, so that no other file is taken for a draft and removed.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ocssl.common.signals import check_waiting
from ocssl.errors import BusyError, CheckpointError, ConfigError, OcsslError, unreadable

MAX_BYTES = 64 * 2**20  # of a file of settings, of a result, of an index
LOOK_EVERY = 0.05  # seconds between two looks at a lock
NAME_BYTES = 120  # of one file name; file systems take 255, and suffixes follow
MARK = "made by ocssl"
"""What text, pictures and archives that ocssl writes carry, so that a later command may replace them."""
CHECKSUM = "checksum"
"""The key of a JSON file's checksum of all its other keys."""
TOKEN = r"[0-9a-f]{12}"
"""The end of the name of every draft, as a regular expression."""

_END_BYTES = 256 * 2**10  # at either end of a file, searched for a mark
_MARK = MARK.encode()
_KINDS: dict[str, tuple[bytes, ...]] = {  # how a file of ours begins, then its marks; all but the first are older ones
    "parquet": (b"PAR1", _MARK),
    "onnx": (b"\x08", b"\n\x05ocssl\x12"),
    "safetensors": (b"", b'{"__metadata__":{"ocssl":'),
    "torchscript": (b"PK", _MARK),
    "torchvision": (b"PK", _MARK),
    "png": (b"\x89PNG", _MARK),
    "svg": (b"<?xml", _MARK),
    "pdf": (b"%PDF", _MARK),
    "html": (b"<!doctype html>", _MARK, b'<a class="skip" href="#tables">Skip to the tables</a>'),
    "markdown": (b"", _MARK, b" results, the newest of ", b"\nlibrary_name: ocssl\n"),
    "latex": (b"%", b"% Input this file into a document with \\usepackage{booktabs}"),
    "json": (b"{", b'\n "ocssl": "'),
}


def ours(path: str | Path, kind: str, columns: str = "") -> bool:
    """Whether a file is of a kind that ocssl writes, and carries its mark.

    Args:
        kind: ``parquet``, ``onnx``, ``png``, …; a ``csv`` has no mark and is known by its columns.
        columns: of a ``csv``, its first line as it is written now; there may be more or fewer, not others.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = atomic_write(f"{folder}/a.md", f"<!-- {MARK} -->")
    ...     ours(page, "markdown"), ours(page, "png")
    (True, False)
    """
    first, *marks = _KINDS.get(kind, (b"",))
    try:
        with regular(path) as handle, open(handle, "rb", closefd=False) as file:
            head = file.read(_END_BYTES)
            file.seek(max(0, os.fstat(handle).st_size - _END_BYTES))
            tail = file.read(_END_BYTES)
    except OSError:
        return False
    if kind == "csv":
        lines = (text.partition("\n")[0].replace(" std", "") for text in (head.decode(errors="replace"), columns))
        old, new = (next(csv.reader([line]), []) for line in lines)
        known = len(old) > 1 or old == [""]  # the latter is the only column of a table without numbers
        return known and old[:1] == new[:1] and ({*old} <= {*new} or {*new} <= {*old})
    return head.startswith(first) and any(mark in head or mark in tail for mark in marks)


def check_output(
    path: str | Path, kind: str, *, inputs: Iterable[str | Path] = (), force: bool = False, columns: str = ""
) -> None:
    """Refuse a file that must not be written, before any work.

    That is a folder, a pipe or a device; a file that is one of the inputs or lies inside one, by device and inode; and,
    unless ``force``, a file with content that is not :func:`ours`. A symbolic link is replaced, and its target stays.

    >>> check_output("a/", "png")
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: 'a/' is a folder; name a file
    """
    place = Path(path)
    try:
        if str(path).endswith(os.sep) or place.name in ("", "..") or place.is_dir():
            raise ConfigError(f"'{path}' is a folder; name a file")
        _check_apart(place, inputs)
        facts = place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OcsslError:
        raise
    except (OSError, ValueError) as error:
        raise ConfigError(not_a_path(path, error)) from error
    if stat.S_ISLNK(facts.st_mode):
        return
    if not stat.S_ISREG(facts.st_mode):
        raise ConfigError(f"'{path}' is not a regular file; choose another output")
    if facts.st_size and not force and not ours(place, kind, columns):
        has_mark = kind in _KINDS or kind == "csv"
        why = f"was not written by ocssl as {kind}" if has_mark else "says nothing of who wrote it"
        raise ConfigError(f"'{path}' exists and {why}; choose another, or add --force")


def _check_apart(path: Path, inputs: Iterable[str | Path]) -> None:
    """Refuse an output that is an input, or lies inside one."""
    known = {}
    for one in inputs:
        with contextlib.suppress(OSError):
            facts = os.stat(one)
            known[facts.st_dev, facts.st_ino] = one
    for place in (path, *(path.parent.resolve() / "_").parents):
        with contextlib.suppress(OSError):
            facts = place.stat()
            if (found := known.get((facts.st_dev, facts.st_ino))) is not None:
                where = "is" if place is path else "lies inside"
                raise ConfigError(f"the output '{path}' {where} the input '{found}'; choose another output")


def not_a_path(path: object, error: Exception) -> str:
    """What to say of a path that the system does not take, or of a file there that it does not let us read.

    >>> not_a_path("a" * 300, OSError(36, "File name too long"))
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…' cannot be a path: File name too long"
    >>> not_a_path("a", PermissionError(13, "Permission denied", "a/b"))
    "cannot read 'a/b': Permission denied"
    """
    if isinstance(error, PermissionError):
        return unreadable(error.filename or path, error)
    text = str(path)
    shown = f"{text[:40]}…" if len(text) > 200 else text
    return f"'{shown}' cannot be a path: {getattr(error, 'strerror', None) or error}"


def atomic_write(path: str | Path, content: str | bytes | Callable[[Path], object]) -> Path:
    """Replace a file in one step: a reader sees the old file or the new one, and a full disk leaves the old one.

    The draft is a new file, never one that is there, nor the target of a link. A link at ``path`` is replaced. The next
    write removes drafts that killed processes left; a draft that a process works on is locked, and stays.

    Args:
        content: the text, the bytes, or a function that writes the draft whose path it is given.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     atomic_write(f"{folder}/a.txt", "text").read_text()
    'text'
    """
    path = Path(path)
    short = os.fsdecode(os.fsencode(path.name)[:NAME_BYTES])
    with _own_draft(path.with_name(f".{short}"), is_folder=callable(content)) as place:
        draft = place / short if callable(content) else place
        if isinstance(content, str):
            draft.write_text(content, encoding="utf-8")
        elif isinstance(content, bytes):
            draft.write_bytes(content)
        else:
            content(draft)
        sync(draft)
        draft.replace(path)
    remove_drafts(path.parent, short)
    return path


@contextlib.contextmanager
def _own_draft(name: Path, is_folder: bool) -> Iterator[Path]:
    """A new file, or a folder for functions that replace the file that they are given; locked until it is gone."""
    while True:
        place = name.with_name(f"{name.name}.{token()}")
        place.mkdir() if is_folder else place.touch(exist_ok=False)
        # Until it is locked, another process may take it for a draft that was left, and remove it.
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW)
            _lock(handle, wait=True)
            if os.path.lexists(place):
                break
            os.close(handle)
    try:
        yield place
    finally:
        _remove(place)
        os.close(handle)


def remove_drafts(folder: Path, name: str) -> None:
    """Remove the drafts of a file that killed processes left."""
    for draft in [entry for entry in folder.iterdir() if is_draft(entry, name)]:
        with contextlib.suppress(OSError):
            handle = os.open(draft, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if _lock(handle, wait=False):
                    _remove(draft)
            finally:
                os.close(handle)


def _lock(handle: int, wait: bool) -> bool:
    """Lock a draft; False where another process has it, or where the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def _remove(draft: Path) -> None:
    with contextlib.suppress(OSError):
        if draft.is_dir():
            shutil.rmtree(draft)
        else:
            draft.unlink()


def token() -> str:
    """The end of a draft's name: no two are alike."""
    return uuid.uuid4().hex[:12]


def is_draft(path: Path, name: str) -> bool:
    """Whether a file is a draft that :func:`atomic_write` made of a file called ``name``."""
    return bool(re.fullmatch(rf"\.{re.escape(name)}\.({TOKEN}|[0-9a-f]{{8}})", path.name)) and not path.is_symlink()


def sync(path: Path) -> None:
    """Wait until a file or a folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_file(path: str | Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a regular file. A pipe, a device, a folder or a longer file is an ``OSError``.

    >>> read_file("/dev/zero")
    Traceback (most recent call last):
    ...
    OSError: [Errno 22] not a regular file: '/dev/zero'
    """
    with regular(path) as handle, open(handle, "rb", closefd=False) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"more than {limit:,} bytes", str(path))
    return content


@contextlib.contextmanager
def regular(path: str | Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """A descriptor of a regular file; anything else is an ``OSError``, and opening it never waits."""
    handle = os.open(path, flags | os.O_NONBLOCK, 0o666)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        yield handle
    finally:
        os.close(handle)


def append(path: str | Path, text: str) -> None:
    """Add text to a regular file, which is made if needed; a link is not followed."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    with regular(path, flags) as handle, open(handle, "a", encoding="utf-8", closefd=False) as file:
        file.write(text)


@contextlib.contextmanager
def writing(path: str | Path, error: type[OcsslError] = CheckpointError, remedy: str = "") -> Iterator[None]:
    """Turn a failed write into an error that names the file, with a remedy behind it.

    >>> with writing("no such folder/a.txt"):
    ...     Path("no such folder/a.txt").write_text("")
    Traceback (most recent call last):
    ...
    ocssl.errors.CheckpointError: cannot write 'no such folder/a.txt': No such file or directory
    """
    try:
        yield
    except OcsslError:
        raise
    except OSError as failure:
        reason = failure.strerror or failure
        if isinstance(failure, FileExistsError):  # a folder cannot be made
            reason = f"'{failure.filename}' is a file, not a folder"
        raise error(f"cannot write '{path}': {reason}{remedy}") from failure


def check_folder(folder: Path, remedy: str) -> None:
    """Refuse a folder that cannot be written, before the work whose outcome it is for; it is made if needed."""
    with writing(folder, ConfigError, remedy):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


@contextlib.contextmanager
def locked(folder: str | Path, wait: float = 0) -> Iterator[None]:
    """Hold a folder, which is made if needed, so that no second process writes there; the lock ends with the process.

    Args:
        wait: seconds to wait for another process to leave; less than 0: as long as it takes.
    """
    folder = Path(folder)
    lock, end = FileLock(folder / ".lock", timeout=0), time.monotonic() + wait
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        while not lock.is_locked:
            try:
                lock.acquire()
            except Timeout as error:
                if wait >= 0 and time.monotonic() >= end:
                    raise BusyError(
                        f"another process is working in '{folder}'; let it end, or name another folder"
                    ) from error
                check_waiting(f"for another process that works in '{folder}'")
                time.sleep(LOOK_EVERY)
    try:
        yield
    finally:
        lock.release()


def slug(text: str, limit: int = NAME_BYTES) -> str:
    """A name that any file system takes: letters, digits, ``-``, ``_``, ``.``, ``=`` and ``,``.

    >>> slug("folder:my images/1"), slug("lr1e+08")
    ('folder-my-images-1', 'lr1e08')
    """
    plain = re.sub(r"[^\w.=,-]", "-", re.sub(r"(?<=\de)\+", "", text))  # 1e+08 is not 1e-08
    return plain.encode(errors="replace")[:limit].decode(errors="ignore")


def now() -> str:
    """The time in UTC, to the second, as files have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Content for a JSON file, with a checksum of itself that :func:`unseal` verifies.

    >>> unseal(seal({"step": 3}))
    {'step': 3}
    >>> unseal(seal({"step": 3}) | {"step": 4})
    Traceback (most recent call last):
    ...
    ValueError: it was changed after it was saved
    """
    plain = json.loads(json.dumps(content))
    return {**plain, CHECKSUM: json_digest(plain)}


def unseal(content: Mapping[str, Any]) -> dict[str, Any]:
    """What was sealed. Content without a checksum, as versions before 0.3 wrote it, is taken as it is."""
    plain = {name: value for name, value in content.items() if name != CHECKSUM}
    if content.get(CHECKSUM, json_digest(plain)) != json_digest(plain):
        raise ValueError("it was changed after it was saved")
    return plain


def json_digest(content: Mapping[str, Any]) -> str:
    """SHA-256 of values by name as JSON, whatever their order."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def sha256(path: Path) -> str:
    """SHA-256 of the content of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_regular(path: str | Path) -> None:
    """Refuse a pipe, a device or a folder before a library opens it and waits; such a path is an ``OSError``.

    >>> require_regular("/dev/zero")
    Traceback (most recent call last):
    ...
    OSError: [Errno 22] not a regular file: '/dev/zero'
    """
    with regular(path):
        pass
