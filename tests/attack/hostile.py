"""Hostile inputs for the real command line: each ends in time, with one line and exit code 2."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from helpers.command import Command

SECONDS = 60  # on an idle machine a command takes one; a busy one has time
PEAK = 1 << 30  # bytes of resident memory; a command takes about a third, whatever it is given
LEARN = "--backbone convnet-w4 --batch 20 --passes 1 --set hidden_dim=8 --set output_dim=8 --set memory_size=20"
LEARN += " --image-size 16 --device cpu -q"


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    def refused(self, *words: str) -> None:
        """Exit code 2, and one line that has these words."""
        assert "Traceback" not in self.err, self.err
        assert self.code == 2, (self.code, self.out, self.err)
        assert len(self.err.strip().splitlines()) == 1, self.err
        assert self.err.startswith("ocssl: ")
        assert len(self.err) < 2000
        for word in words:
            assert word in self.err

    def went_well(self, *words: str) -> None:
        """Exit code 0, and output that has these words."""
        assert self.code == 0, (self.code, self.out, self.err)
        for word in words:
            assert word in self.out


class Hostile:
    """``ocssl`` in a folder, with an image cache below it and a deadline."""

    def __init__(self, server: Any, folder: Path) -> None:
        self._command = Command(server, folder)
        self.folder = folder

    def __call__(self, *words: object, fault: str = "") -> Ended:
        """Run to the end; ``fault`` is Python that the process executes first."""
        own_cache = f"import os; os.environ['OCSSL_CACHE'] = {str(self.folder / 'cache')!r}"
        modules = {"own_cache": own_cache, **({"fault": fault} if fault else {})}
        process = self._command.start(*words, modules=modules)
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        code = process.wait()
        timer.cancel()
        assert code != -9, f"ocssl {' '.join(map(str, words))[:200]} did not end"
        assert process.peak < PEAK
        return Ended(code, process.out, process.err)


Make = Callable[[Path], Hostile]
"""Makes the command line for a folder."""


def sampled(cases: Mapping[str, Any], every: int = 10) -> list[Any]:
    """Parameters of which one in ten runs with the usual tests, and the others with ``make test-attack``."""
    return [
        pytest.param(case, id=name, marks=() if number % every == 0 else pytest.mark.attack)
        for number, (name, case) in enumerate(cases.items())
    ]


def png(image: Image.Image | None = None) -> bytes:
    buffer = io.BytesIO()
    (image or Image.new("RGB", (16, 16))).save(buffer, "PNG")
    return buffer.getvalue()


def images(folder: Path, count: int = 20) -> Path:
    """Random images of 16×16, ``000.png`` …"""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(count):
        pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        (folder / f"{number:03d}.png").write_bytes(png(Image.fromarray(pixels)))
    return folder


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def folder(path: Path) -> None:
    path.mkdir()


NO_FILES = {"fifo": fifo, "device": device, "loop": loop, "folder": folder}
"""What can be where a file is expected."""
