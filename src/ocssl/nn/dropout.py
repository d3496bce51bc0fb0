"""Dropout that draws from the learner's generator, which is saved; torch's own draws from one that is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from ocssl.distributed import current
from ocssl.errors import ConfigError

_GENERATOR: ContextVar[torch.Generator | None] = ContextVar("generator", default=None)


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Let every :class:`Dropout` inside draw from this generator; a step of a learner does so."""
    before = _GENERATOR.set(generator)
    try:
        yield
    finally:
        _GENERATOR.reset(before)


class Dropout(nn.Module):
    """In training, sets numbers to 0 at random and divides the others by 1 − p.

    Args:
        p: probability of a 0.
        whole_samples: draw once for all numbers of a sample, as stochastic depth does in a residual branch.

    >>> layer = Dropout(0.5)
    >>> with drawing_from(torch.Generator().manual_seed(0)):
    ...     layer(torch.ones(6)).tolist()
    [0.0, 2.0, 0.0, 0.0, 0.0, 2.0]
    >>> layer.eval()(torch.ones(2)).tolist()
    [1.0, 1.0]
    """

    def __init__(self, p: float = 0.5, *, whole_samples: bool = False) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ConfigError(f"p of Dropout must be at least 0 and below 1, not {p}")
        self.p, self.whole_samples = p, whole_samples

    def forward(self, x: Tensor) -> Tensor:
        """``(n, …)`` to the same shape."""
        return self.dropped(x) if self.training and self.p else x

    def dropped(self, x: Tensor) -> Tensor:
        """``x`` with a new mask."""
        generator = _GENERATOR.get()
        if generator is None:
            raise ConfigError("Dropout in training mode draws only in a step of a learner; call eval() on the network")
        if not current().single:
            raise ConfigError(f"Dropout draws in one process only, not in a group of {current().size}; set p to 0")
        shape = (len(x), *[1] * (x.ndim - 1)) if self.whole_samples else x.shape
        kept = torch.rand(shape, generator=generator, device=x.device) >= self.p
        return x * kept / (1 - self.p)

    def extra_repr(self) -> str:
        """Its arguments."""
        return f"p={self.p}, whole_samples={self.whole_samples}"
