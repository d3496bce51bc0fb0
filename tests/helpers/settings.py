"""Settings of a learner that trains in no time, whatever its network and image size."""

from __future__ import annotations

from typing import Any

TINY: dict[str, Any] = {
    "stream_batch": 4,
    "batch": 8,
    "passes": 1,
    "hidden_dim": 8,
    "output_dim": 8,
    "memory_size": 16,
    "device": "cpu",
}


def tiny_flags() -> list[str]:
    """The same for the command line."""
    return [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", str(value))]
