"""The command line: parses, calls, prints. Every heavy import happens inside the command that needs it."""

from __future__ import annotations

import sys

from ocssl.cli.app import app
from ocssl.common.console import print_warnings
from ocssl.common.signals import Interrupted
from ocssl.errors import OcsslError

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of the ``ocssl`` command.

    A known error is one line on stderr and exit code 2. A stop on request is one line and 128 plus the signal's number.
    """
    print_warnings()
    try:
        app()
    except Interrupted as stopped:
        print(f"ocssl: {stopped}", file=sys.stderr)
        sys.exit(stopped.exit_code)
    except OcsslError as error:
        print(f"ocssl: {error}", file=sys.stderr)
        sys.exit(2)
