"""A saved state: a folder with one safetensors file and one JSON file that names it.

The JSON file is the commit: it is replaced in one atomic step after the tensors are on disk under a name of their own.
A process killed at any moment leaves either the earlier state or the new one, never a mixture. Several processes that
write to one folder take turns, and the last state stays. Reading executes nothing from the files.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ocssl.common.files import LOOK_EVERY, TOKEN, atomic_write, is_draft, read_file, seal, sha256, sync, token, unseal
from ocssl.common.signals import check_waiting
from ocssl.errors import CheckpointError

VERSION = 1


def write(path: str | Path, kind: str, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Save a state into the folder ``path``, replacing an earlier one of the same kind.

    Args:
        kind: what is saved, e.g. ``"learner"``; names the JSON file and is checked on reading.
        facts: anything JSON can hold.
        tensors: copied to the CPU as they are.

    >>> import tempfile, torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(f"{folder}/state", "learner", {"step": 3}, {"w": torch.ones(2)})
    ...     read(f"{folder}/state", "learner")
    ({'step': 3}, {'w': tensor([1., 1.])})
    """
    folder = Path(path)
    with _one_writer(folder):
        _replace(folder, kind, facts, tensors)


def _replace(folder: Path, kind: str, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    index = folder / f"{kind}.json"
    check_place(folder, kind)
    data, draft = folder / f"tensors-{token()}.safetensors", folder / f"draft-{token()}"
    try:
        draft.mkdir()
        save_tensors(tensors, draft / data.name)
        sync(draft / data.name)
        (draft / data.name).rename(data)
        envelope = {
            "format": f"ocssl-{kind}",
            "version": VERSION,
            "tensors": {"file": data.name, "bytes": data.stat().st_size, "sha256": sha256(data)},
            "facts": dict(facts),
        }
        atomic_write(index, json.dumps(seal(envelope), indent=1))
        sync(folder)
    except (OSError, SafetensorError, TypeError, ValueError) as error:
        with contextlib.suppress(OSError):
            data.unlink()
        shutil.rmtree(draft, ignore_errors=True)
        kept = "; the earlier state there is untouched" if index.exists() else ""
        raise CheckpointError(f"could not save to '{folder}': {error}{kept}") from error
    _remove_leftovers(folder, kind, data.name)


def remove_leftovers(path: str | Path, kind: str) -> None:
    """Remove what killed saves left in a folder whose state can be read; the next save would do so, too.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(folder, "learner", {}, {})
    ...     (Path(folder) / "draft-0badc0ffee00").mkdir()
    ...     remove_leftovers(folder, "learner")
    ...     len([*Path(folder).iterdir()])
    2
    """
    folder = Path(path)
    with _one_writer(folder):
        _remove_leftovers(folder, kind, json.loads(read_file(folder / f"{kind}.json"))["tensors"]["file"])


def _remove_leftovers(folder: Path, kind: str, tensors: str) -> None:
    """Remove what saves may have left, but for the file of tensors that the index names."""
    for old in _leftovers(folder, kind):
        if old.is_dir():
            shutil.rmtree(old, ignore_errors=True)
        elif old.name != tensors:
            with contextlib.suppress(OSError):
                old.unlink()


def check_place(path: str | Path, kind: str, remedy: str = "choose another place") -> None:
    """Refuse a folder that a state cannot be saved to: it holds files, and no index of ours says what they are.

    >>> check_place("nowhere", "learner")
    """
    folder = Path(path)
    index = folder / f"{kind}.json"
    try:
        known = f'"format": "ocssl-{kind}"'.encode() in read_file(index) if os.path.lexists(index) else False
        free = not folder.exists() or (folder.is_dir() and {*folder.iterdir()} <= {*_leftovers(folder, kind)})
    except OSError as error:
        raise CheckpointError(f"could not save to '{folder}': {error}") from error
    if not (known or free):
        raise CheckpointError(f"'{folder}' exists and is not a saved {kind}; {remedy}")


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file with the permissions of any new file; safetensors alone lets only its owner read it.

    Args:
        tensors: anywhere; several may be in the same memory.
        metadata: text by name, for the file's header.
    """
    path.unlink(missing_ok=True)
    path.touch(exist_ok=False)
    mode = path.stat().st_mode
    save_file(_apart(tensors), path, metadata)
    if path.stat().st_mode != mode:
        path.chmod(stat.S_IMODE(mode))


def read(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The facts and tensors saved in the folder ``path``, whose state may be replaced meanwhile; tensors on the CPU."""
    index = Path(path) / f"{kind}.json"
    while True:
        before = _content(index)
        try:
            return _read(Path(path), kind)
        except CheckpointError:
            if _content(index) == before:
                raise


def _content(index: Path) -> bytes | None:
    """What an index holds; None where it cannot be read."""
    try:
        return read_file(index)
    except OSError:
        return None


def _read(folder: Path, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    index = folder / f"{kind}.json"
    try:
        envelope = json.loads(read_file(index))
        if not isinstance(envelope, dict) or envelope.get("format") != f"ocssl-{kind}":
            raise CheckpointError(f"'{index}' was not written by ocssl as a {kind}")
        if type(envelope["version"]) is not int or not isinstance(envelope["facts"], dict):
            raise ValueError("its index has no version, or no facts by name")
        if envelope["version"] > VERSION:
            raise CheckpointError(
                f"'{folder}' has format version {envelope['version']}, newer than this ocssl knows ({VERSION}); upgrade"
            )
        envelope = unseal(envelope)
        entry = envelope["tensors"]
        data = folder / Path(entry["file"]).name
        if not data.is_file() and data.exists():
            raise CheckpointError(f"'{data}' is not a regular file")
        if data.stat().st_size != entry["bytes"]:
            raise CheckpointError(f"'{data}' is truncated: {data.stat().st_size} of {entry['bytes']} bytes")
        if sha256(data) != entry["sha256"]:
            raise CheckpointError(f"'{data}' is damaged: its checksum differs from the one saved with it")
        return envelope["facts"], load_file(data)
    except FileNotFoundError as error:
        missing = Path(error.filename).name if error.filename else "its file of tensors"  # safetensors names none
        raise CheckpointError(f"'{folder}' is not a saved {kind}: {missing} is missing") from error
    except RecursionError as error:
        raise CheckpointError(f"'{folder}' cannot be read as a saved {kind}: nested too deeply") from error
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"'{folder}' cannot be read as a saved {kind}: {error}") from error
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"'{folder}' cannot be read: {error}") from error


def sub_state(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with ``prefix``, by the rest of their names.

    >>> list(sub_state({"encoder.w": Tensor(), "encoder.b": Tensor(), "step": Tensor()}, "encoder."))
    ['w', 'b']
    """
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, and no two in the same memory (tied weights are), as safetensors requires."""
    apart: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        here = tensor.detach().cpu().contiguous()
        place = here.untyped_storage().data_ptr()
        apart[name] = here.clone() if place in taken else here
        taken.add(place)
    return apart


def _leftovers(folder: Path, kind: str) -> list[Path]:
    """What saves may have left, by names that only they give: tensors, and drafts of both files, also earlier ones."""
    names = re.compile(rf"tensors-{TOKEN}\.safetensors|draft-{TOKEN}(\.json)?")
    entries = folder.iterdir() if folder.is_dir() else ()
    ours = (entry for entry in entries if names.fullmatch(entry.name) or is_draft(entry, f"{kind}.json"))
    return [entry for entry in ours if not entry.is_symlink()]


@contextlib.contextmanager
def _one_writer(folder: Path) -> Iterator[None]:
    """Make the folder if needed, and wait until no other process writes to it; the lock leaves no file."""
    try:
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise CheckpointError(f"could not save to '{folder}': {error}") from error
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                check_waiting(f"for another process that writes to '{folder}'")
                time.sleep(LOOK_EVERY)
            except OSError:  # some network file systems lock no folders
                break
        yield
    finally:
        os.close(descriptor)
