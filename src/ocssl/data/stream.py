"""The stream itself: index minibatches with borders, a place to start from, and a fingerprint."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from ocssl.data.shuffle import Indices
from ocssl.errors import ConfigError

Last = Literal["drop", "carry"]


@dataclass(frozen=True)
class Minibatch:
    """One minibatch and its place in the stream.

    Attributes:
        indices: int64 ``(n,)``, positions in the source.
        seen: samples of the stream up to and including this minibatch.
        experience: number of the experience its last sample belongs to.
        ends: experiences that are over once this minibatch is; usually none or one.
    """

    indices: Tensor
    seen: int
    experience: int
    ends: tuple[int, ...]


class Stream:
    """Minibatches of indices, experience after experience.

    Iterating yields int64 index tensors; :meth:`minibatches` yields them with their place. Indices are drawn one
    experience at a time, so a stream of many epochs takes the memory of one.

    Args:
        sizes: samples in each experience.
        draw: the indices of experience ``e``, int64 of length ``sizes[e]``; the same ones each time it is asked.
        batch: samples per minibatch.
        last: what becomes of an experience's incomplete last minibatch. ``"drop"``: its samples never arrive.
            ``"carry"``: it is filled up from the next experience, and only the very last one may be short.

    >>> stream = Stream.from_groups([np.array([5, 6, 7]), np.array([1, 2, 3])], batch=2, last="carry")
    >>> [batch.tolist() for batch in stream]
    [[5, 6], [7, 1], [2, 3]]
    >>> [batch.tolist() for batch in stream.starting_at(2)]
    [[7, 1], [2, 3]]
    """

    def __init__(self, sizes: Sequence[int], draw: Callable[[int], Indices], batch: int, last: Last) -> None:
        if batch < 1:
            raise ConfigError(f"a minibatch needs at least one sample, not {batch}")
        if last not in get_args(Last):
            raise ConfigError(f"last must be 'drop' or 'carry', not {last!r}")
        self.batch = batch
        self.last = last
        self.start = 0
        self._draw = draw
        self._kept = tuple(size - size % batch if last == "drop" else size for size in sizes)
        self.borders = tuple(accumulate(self._kept))

    @classmethod
    def from_groups(cls, groups: Sequence[Indices], batch: int, last: Last) -> Stream:
        """A stream of the given experiences."""
        return cls([len(group) for group in groups], lambda number: groups[number], batch, last)

    def __len__(self) -> int:
        """Number of samples of the whole stream, wherever this iteration starts."""
        return self.borders[-1] if self.borders else 0

    @property
    def experiences(self) -> int:
        """Number of experiences."""
        return len(self.borders)

    def experience_at(self, sample: int) -> int:
        """The experience that the stream's ``sample``-th sample (from 0) belongs to."""
        if not 0 <= sample < len(self):
            raise ConfigError(f"the stream has samples 0 to {len(self) - 1}, not {sample}")
        return bisect_right(self.borders, sample)

    def starting_at(self, sample: int) -> Stream:
        """The same stream without its first ``sample`` samples.

        Minibatches keep their limits: where ``sample`` lies inside one, the rest of that minibatch comes first.
        """
        if not 0 <= sample <= len(self):
            raise ConfigError(f"a stream of {len(self)} samples cannot start at sample {sample}")
        later = copy(self)
        later.start = sample
        return later

    def indices(self, experience: int) -> Tensor:
        """All indices of one experience, int64, in their order of arrival and whatever the start."""
        return torch.from_numpy(self._draw(experience)[: self._kept[experience]].copy())

    def __iter__(self) -> Iterator[Tensor]:
        return (minibatch.indices for minibatch in self.minibatches())

    def minibatches(self) -> Iterator[Minibatch]:
        """The minibatches from ``start`` on, each with its place in the stream."""
        upcoming = self._from_start()
        pending = np.empty(0, dtype=np.int64)
        begin = self.start
        over = bisect_right(self.borders, begin) if begin else 0
        while begin < len(self):
            end = min(begin - begin % self.batch + self.batch, len(self))
            while len(pending) < end - begin:
                pending = np.concatenate([pending, next(upcoming)])
            indices, pending = pending[: end - begin], pending[end - begin :]
            already_over, over = over, bisect_right(self.borders, end)
            yield Minibatch(
                torch.from_numpy(indices), end, self.experience_at(end - 1), tuple(range(already_over, over))
            )
            begin = end

    def fingerprint(self) -> str:
        """SHA-256 over the stream's indices, borders and minibatch size, in hexadecimal; the start does not matter."""
        digest = hashlib.sha256(f"{self.batch} {self.borders}".encode())
        for number in range(self.experiences):
            digest.update(self.indices(number).numpy().astype("<i8").tobytes())
        return digest.hexdigest()

    def _from_start(self) -> Iterator[Indices]:
        """What is left of each experience after ``start``."""
        begin = 0
        for number, border in enumerate(self.borders):
            if border > self.start:
                yield self._draw(number)[max(self.start - begin, 0) : self._kept[number]]
            begin = border
