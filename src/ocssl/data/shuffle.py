"""Permutations that never change.

Random generators may draw differently in their next release; a published stream may not. Here an order is a sort by
64-bit keys read off SHAKE-256, a fixed standard, so the same seed means the same order on every machine, in every
version of Python, numpy and torch.

>>> permutation(6, "example", 0).tolist()
[3, 2, 1, 5, 4, 0]
>>> permutation(6, "example", 1).tolist()
[5, 3, 1, 4, 0, 2]
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def permutation(count: int, purpose: str, *seeds: int) -> Indices:
    """A permutation of ``0 … count-1`` that depends on the purpose and the seeds alone.

    Args:
        count: how many elements to permute.
        purpose: what the order is for; two purposes with one seed give unrelated orders.
        seeds: any integers.

    Returns:
        int64 array of shape ``(count,)``.
    """
    origin = "/".join([purpose, *map(str, seeds)]).encode()
    keys = np.frombuffer(hashlib.shake_256(origin).digest(8 * count), dtype="<u8")
    return np.argsort(keys, kind="stable").astype(np.int64)
