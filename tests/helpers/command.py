"""The real command, started a hundred times for the price of one import of torch.

A server process imports everything once and forks for each command. A fork runs ``ocssl.cli.main`` with its own
arguments, working folder and output files, exactly as the console script does, and can be killed like any process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]

TINY = {
    "dataset": "shapes",
    "image_size": 8,
    "samples_per_class": 20,
    "experiences": 3,
    "backbone": "convnet-w8",
    "hidden_dim": 16,
    "output_dim": 32,
    "stream_batch": 4,
    "batch": 8,
    "passes": 1,
    "memory_size": 24,
    "probe": {"max_epochs": 4},
    "log_every": 5,
    "checkpoint_minutes": 0,
    "device": "cpu",
}
"""A run of 81 steps that takes seconds on one core."""
SHORT = TINY | {"samples_per_class": 10, "experiences": 2, "stream_batch": 8, "batch": 16}


def as_options(settings: dict[str, object]) -> list[str]:
    """Settings as ``--set`` options."""
    return [word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value)}")]


@contextmanager
def command_server() -> Iterator[subprocess.Popen[str]]:
    """The process that forks for each command."""
    environment = {**os.environ, "COLUMNS": "100"}
    server = subprocess.Popen(
        [sys.executable, "-m", "helpers.forking"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=TESTS,
    )
    yield server
    assert server.stdin
    server.stdin.close()
    server.wait(timeout=30)


@dataclass
class Process:
    """A command in progress.

    Attributes:
        peak: of its resident memory, in bytes; known when it has ended.
    """

    pid: int
    folder: Path
    ask: Callable[[dict[str, object]], dict[str, int]]
    peak: int = 0

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Exit code; negative: the signal that ended it."""
        reply = self.ask({"wait": self.pid})
        self.peak = reply["peak"]
        return reply["code"]

    @property
    def out(self) -> str:
        return (self.folder / "stdout").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "stderr").read_text()


class Command:
    """``ocssl`` with arguments."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._count = 0

    def _ask(self, request: dict[str, object]) -> dict[str, int]:
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    @property
    def folder(self) -> Path:
        """Where commands run."""
        return self._folder

    def start(self, *arguments: object, **conditions: object) -> Process:
        """Begin a command.

        Args:
            conditions: ``die_at_sync=n``: the process kills itself at its n-th fsync; ``largest_file=n``: no file may
                grow beyond n bytes, as on a full disk; ``hidden=[…]``: packages that seem not to be installed;
                ``modules={name: source}``: packages that seem to be.
        """
        self._count += 1
        folder = self._folder / f"process-{self._count}"
        folder.mkdir()
        request = {"arguments": [str(word) for word in arguments], "folder": str(folder), **conditions}
        return Process(self._ask(request)["pid"], folder, self._ask)

    def __call__(self, *arguments: object, **conditions: object) -> tuple[int, str, str]:
        """Run a command to its end: exit code, standard output, standard error."""
        process = self.start(*arguments, **conditions)
        return process.wait(), process.out, process.err


def refused(ocssl: Command, *arguments: object, **conditions: object) -> str:
    """The one line that a refused command prints."""
    code, out, err = ocssl(*arguments, **conditions)
    assert (code, out) == (2, ""), err
    assert err.startswith("ocssl: ")
    assert len(err.splitlines()) == 1, err
    return err


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
