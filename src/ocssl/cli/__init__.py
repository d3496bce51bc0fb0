"""The command line: parses, calls, prints. Every heavy import happens inside the command that needs it."""

from __future__ import annotations

import sys

from ocssl.cli.app import app
from ocssl.common.console import print_warnings
from ocssl.common.signals import Interrupted
from ocssl.errors import OcsslError

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of the ``ocssl`` command: a known error is one line on stderr and exit code 2.

    Work that stopped on request ends with 128 and the number of the signal.
    """
    print_warnings()
    try:
        app()
    except OcsslError as error:
        print(f"ocssl: {error}", file=sys.stderr)
        sys.exit(error.exit_code if isinstance(error, Interrupted) else 2)
