"""The device: which one, whether what is asked of it fits, and how many CPU threads an operation takes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

from ocssl.distributed import current
from ocssl.errors import ConfigError, DeviceError, OutOfMemoryError

_SIGNS = ("DefaultCPUAllocator", "ALLOC_FAILED")  # torch's own on a CPU; cuBLAS and cuDNN, which want workspaces


def pick_device(name: str) -> torch.device:
    """The device of that name; ``auto`` is a CUDA device where there is one, in a group each process its own.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda") if current().single else torch.device("cuda", current().local_rank)
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise DeviceError(
            f"device '{name}' cannot be used: names are like cpu, cuda and cuda:1; 'auto' takes one that can"
        ) from error
    try:
        torch.zeros((), device=device).item()
    except (RuntimeError, AssertionError) as error:
        reason = "not with this torch" if isinstance(error, NotImplementedError) else str(error).split("\n")[0]
        raise DeviceError(f"device '{name}' cannot be used: {reason}; 'auto' takes one that can") from error
    return device


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Let every operation of the program take ``count`` cores, and as many as before afterwards.

    The number decides the last bits of sums, too.

    >>> with threads(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def oom_guard(device: torch.device, purpose: str, remedy: str) -> Iterator[None]:
    """Turn an allocator's report into a :class:`OutOfMemoryError`; every other error passes.

    >>> with oom_guard(torch.device("cpu"), "a petabyte", "ask for less"):
    ...     torch.empty(1 << 50, dtype=torch.uint8)
    Traceback (most recent call last):
    ...
    ocssl.errors.OutOfMemoryError: cpu has too little memory left for a petabyte; ask for less
    """
    try:
        yield
    except RuntimeError as error:
        if not _lacks_memory(error):
            raise
        raise OutOfMemoryError(f"{device} has too little memory left for {purpose}; {remedy}") from error


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether it, or what it came of, is about memory: a capture that fails complains of having been broken off."""
    while error is not None:
        if isinstance(error, torch.cuda.OutOfMemoryError) or any(sign in str(error) for sign in _SIGNS):
            return True
        error = error.__cause__ or error.__context__
    return False


def check_fits(device: torch.device, size: int, setting: str) -> None:
    """Refuse a setting that asks for more bytes than a device has in all: a system may grant them, and kill later.

    >>> check_fits(torch.device("cpu"), 1 << 60, "memory_size 1,000,000")    # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: memory_size 1,000,000 takes 1,152,921,505 GB, and cpu has ... GB; choose a smaller one
    """
    total = _whole_memory(device)
    if total is not None and size > total:
        needed, there = (f"{number / 1e9:,.0f} GB" for number in (size, total))
        raise ConfigError(f"{setting} takes {needed}, and {device} has {there}; choose a smaller one")


def _whole_memory(device: torch.device) -> int | None:
    """Bytes of memory that a device has; None where that is unknown."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if device.type == "cpu" and "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None
