"""Too little memory, told in a sentence: what for, and what would help."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from ocssl.errors import ShortageError

_SIGNS = ("DefaultCPUAllocator", "ALLOC_FAILED")  # torch's own on a CPU; cuBLAS and cuDNN, which want workspaces


@contextlib.contextmanager
def enough_memory(device: torch.device, purpose: str, remedy: str) -> Iterator[None]:
    """Turn an allocator's report into a :class:`ShortageError`; every other error passes.

    >>> with enough_memory(torch.device("cpu"), "a petabyte", "ask for less"):
    ...     torch.empty(1 << 50, dtype=torch.uint8)
    Traceback (most recent call last):
    ...
    ocssl.errors.ShortageError: cpu has too little memory left for a petabyte; ask for less
    """
    try:
        yield
    except RuntimeError as error:
        if not _lacks_memory(error):
            raise
        raise ShortageError(f"{device} has too little memory left for {purpose}; {remedy}") from error


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether it, or what it came of, is about memory: a capture that fails complains of having been broken off."""
    while error is not None:
        if isinstance(error, torch.cuda.OutOfMemoryError) or any(sign in str(error) for sign in _SIGNS):
            return True
        error = error.__cause__ or error.__context__
    return False
