"""Processes that train together, started as torchrun starts them, but with their ids at hand."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch.multiprocessing


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun tells each process, and one thread for each."""
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {**os.environ, **{name: str(value) for name, value in told.items()}, "OMP_NUM_THREADS": "1"}


def start(words: Sequence[object], size: int, **variables: str) -> list[subprocess.Popen[str]]:
    """``python WORDS`` in ``size`` processes of one group."""
    port, command = free_port(), [sys.executable, *map(str, words)]
    return [
        subprocess.Popen(
            command,
            env={**environment(rank, size, port), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def together(work: Callable[[Path], None], size: int, folder: Path) -> None:
    """Call ``work(folder)`` in each process of a group of that size."""
    torch.multiprocessing.spawn(_member, (size, free_port(), work, folder), nprocs=size)


def _member(rank: int, size: int, port: int, work: Callable[[Path], None], folder: Path) -> None:
    from ocssl.distributed import process_group

    os.environ |= environment(rank, size, port)
    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)
    with process_group():
        work(folder)


def free_port() -> int:
    """One that nobody listened on just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
