"""The command line: parses, calls, prints. What takes time to import is imported inside the command that needs it."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
import warnings

from ocssl.cli.app import app, command
from ocssl.common.console import print_warnings
from ocssl.common.files import not_a_path
from ocssl.common.signals import Interrupted
from ocssl.errors import OcsslError

__all__ = ["app", "command", "main"]

REFUSED, FAULT, UNREAD = 2, 70, 141
"""Exit codes: what was asked for cannot be done; a fault of ocssl itself, or of a plugin; nobody reads the output."""
DEBUG = "OCSSL_DEBUG"


def main() -> None:
    """Entry point of the ``ocssl`` command.

    Whatever goes wrong is one line on stderr and an exit code of its own; ``docs/runs.md`` lists them.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")  # bars and dashes that such a terminal cannot show
    print_warnings()
    # Pillow's warning of a large image, which is refused by name anyway.
    warnings.filterwarnings("ignore", r"Image size \(\d+ pixels\) exceeds limit")
    sys.exit(_call())


def _call() -> int:
    if sys.stdout is None:
        return _say("cannot write to standard output: it is closed", REFUSED)
    try:
        os.getcwd()  # torch cannot be imported without one; on x86 a library of its ends the process
    except FileNotFoundError:
        return _say("the working folder was deleted; change to one that is there", REFUSED)
    code = 0
    try:
        command()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else _say(str(end.code), REFUSED)
        if code == 130:
            _say("stopped", code)
        if isinstance(end.__context__, BrokenPipeError):  # for which rich and Typer exit with 1
            code = UNREAD
    except Interrupted as stopped:
        code = _say(str(stopped), stopped.exit_code)
    except OcsslError as error:
        code = _say(str(error), REFUSED)
    except OSError as error:  # which no other part of ocssl has put into words
        if (lost := _flush(error)) is not None:
            return lost
        _trace()
        code = _say(not_a_path(error.filename, error) if error.filename else str(error), REFUSED)
    except MemoryError:
        _trace()
        code = _say("there is not enough memory for this; choose smaller batches or images", REFUSED)
    except Exception as error:
        _trace()
        code = _say(_fault(error), FAULT)
    lost = _flush()
    return code if lost is None else lost


def _fault(error: Exception) -> str:
    """What went wrong, and where, if it was in a plugin. A call that does not fit a plugin's part is in neither."""
    from ocssl.plugins import raised_in, registered

    what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    if (place := raised_in(error)) is not None:
        return f"{what}, in {place}; {DEBUG}=1 prints the traceback"
    if plugins := ", ".join(f"'{module}'" for module in registered()):
        return (
            f"this is a fault of plugin {plugins}, or of ocssl ({what}); compare the part's methods and their "
            f"parameters with those of its base class; {DEBUG}=1 prints the traceback"
        )
    return (
        f"this is a fault of ocssl ({what}); please report it to the project's issue tracker with what {DEBUG}=1 prints"
    )


def _say(text: str, code: int) -> int:
    print(f"ocssl: {text}", file=sys.stderr)
    return code


def _trace() -> None:
    if os.environ.get(DEBUG) not in (None, "", "0"):
        traceback.print_exc()


def _flush(earlier: OSError | None = None) -> int | None:
    """Write what is left of the output: the exit code where that fails or an earlier write failed, None otherwise."""
    try:
        if earlier is not None and earlier.filename is None and earlier.errno in (errno.ENOSPC, errno.EBADF, errno.EIO):
            raise earlier
        sys.stdout.flush()
    except OSError as error:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - so that Python does not try again when it exits
        if isinstance(error, BrokenPipeError):  # the reader closed the pipe
            return UNREAD
        return _say(f"cannot write to standard output: {error.strerror}", REFUSED)
    return None
