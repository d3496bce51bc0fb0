"""What every stream has: index minibatches with borders, any start, a fingerprint; and orders that never change."""

from __future__ import annotations

import hashlib
import inspect
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ocssl import options
from ocssl.errors import ConfigError, InputError
from ocssl.options import setting
from ocssl.registry import Registry

Indices = npt.NDArray[np.int64]
Last = Literal["drop", "carry"]


def permutation(count: int, purpose: str, *seeds: int) -> Indices:
    """A permutation of ``0 … count-1``, int64 ``(count,)``, that depends on the purpose and the seeds alone.

    The order is a sort by 64-bit keys from SHAKE-256, a fixed standard, so it is the same on every machine and in every
    version of Python, numpy and torch. Random generators may draw differently in their next release.

    Args:
        purpose: what the order is for; two purposes with one seed give unrelated orders.

    >>> permutation(6, "example", 0).tolist()
    [3, 2, 1, 5, 4, 0]
    >>> permutation(6, "example", 1).tolist()
    [5, 3, 1, 4, 0, 2]
    """
    key = "/".join([purpose, *map(str, seeds)]).encode()
    keys = np.frombuffer(hashlib.shake_256(key).digest(8 * count), dtype="<u8")
    return np.argsort(keys, kind="stable").astype(np.int64)


@dataclass(frozen=True)
class Minibatch:
    """One minibatch and its place in the stream.

    Attributes:
        indices: int64 ``(n,)``, positions in the data set.
        seen: samples of the stream up to and including this minibatch.
        experience: number of the experience its last sample belongs to.
        ends: experiences that are over after this minibatch; usually none or one.
    """

    indices: Tensor
    seen: int
    experience: int
    ends: tuple[int, ...]


class Stream:
    """Minibatches of indices, experience after experience.

    Iterating yields int64 index tensors; :meth:`minibatches` yields them with their place. Indices are drawn one
    experience at a time and the last two are kept, so a stream of many epochs takes the memory of two.

    Args:
        sizes: samples in each experience.
        draw: the indices of experience ``e``, int64 of length ``sizes[e]``; the same ones at every call.
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
        self.start = 0

        @lru_cache(maxsize=2)  # an epoch's order takes milliseconds to draw
        def drawn(experience: int) -> Indices:
            return _checked(draw(experience), experience, sizes[experience])

        self._draw = drawn
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
        """All indices of one experience, int64, in their order of arrival, whatever the start."""
        return torch.from_numpy(self._draw(experience)[: self._kept[experience]].copy())

    def between(self, start: int, stop: int) -> Tensor:
        """The indices at positions ``start`` up to ``stop`` of the stream, int64 ``(stop - start,)``.

        >>> Stream.from_groups([np.array([5, 6, 7]), np.array([1, 2, 3])], batch=2, last="carry").between(1, 5)
        tensor([6, 7, 1, 2])
        """
        parts = [np.empty(0, dtype=np.int64)]
        while start < stop:
            number = self.experience_at(start)
            begin = self.borders[number] - self._kept[number]
            end = min(stop, self.borders[number])
            parts.append(self._draw(number)[start - begin : end - begin])
            start = end
        return torch.from_numpy(np.concatenate(parts))

    def __iter__(self) -> Iterator[Tensor]:
        return (minibatch.indices for minibatch in self.minibatches())

    def minibatches(self) -> Iterator[Minibatch]:
        """The minibatches from ``start`` on, each with its place in the stream."""
        begin = self.start
        over = bisect_right(self.borders, begin) if begin else 0
        while begin < len(self):
            end = min(begin - begin % self.batch + self.batch, len(self))
            already_over, over = over, bisect_right(self.borders, end)
            ends = tuple(range(already_over, over))
            yield Minibatch(self.between(begin, end), end, self.experience_at(end - 1), ends)
            begin = end

    def fingerprint(self) -> str:
        """SHA-256 over the stream's indices, borders and minibatch size, in hexadecimal; the start does not matter."""
        digest = hashlib.sha256(f"{self.batch} {self.borders}".encode())
        for number in range(self.experiences):
            digest.update(self.indices(number).numpy().astype("<i8").tobytes())
        return digest.hexdigest()


class StreamType:
    """A kind of stream that a run can name: ``registry.get(name)(options).build(labels, …)``.

    Minibatches of a run are all full: an experience's incomplete last minibatch is dropped.

    Args:
        options: the values of this kind's own settings; the defaults without any.
    """

    class Options(options.Options):
        """The settings of this kind of stream."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = self.Options() if options is None else options

    def build(
        self,
        labels: Tensor | None,
        *,
        indices: Tensor | None = None,
        data_seed: int = 0,
        stream_batch: int = 10,
        epochs: int = 1,
        column: Callable[[str], Any] | None = None,
    ) -> Stream:
        """The stream over some samples of a data set. Kinds ignore the arguments that they do not need.

        Args:
            labels: int64 ``(N,)``, of the whole data set.
            indices: which samples take part; all by default.
            data_seed: draws every order.
            stream_batch: samples per minibatch (b_s).
            epochs: how often each sample arrives, where samples are repeated.
            column: looks up a property of all N samples by name, as :meth:`ocssl.data.Dataset.column` does.
        """
        raise NotImplementedError


class Shuffled(StreamType):
    """A kind of stream whose samples are shuffled inside each experience.

    Its :meth:`build` takes ``order_seed``: another order inside the experiences, with the same samples in each.
    """

    class Options(StreamType.Options):
        """Which seed shuffles."""

        sample_order: Literal["data", "seed"] = setting(
            "data",
            "Seed of the order inside an experience; `data`: data_seed, one order for all runs; `seed`: the run's, as "
            "in the authors' code, so that ± over seeds includes the order.",
            since="0.2",
        )


registry = Registry[type[StreamType]]("stream", group="ocssl.streams")
registry.base = StreamType
registry.required = ("build",)
register = registry.register


def build_stream(kind: StreamType, labels: Tensor | None, **given: Any) -> Stream:
    """The stream of a kind, as runs build it. A ``build`` with other parameters is refused, since it may be the user's.

    Args:
        labels, given: arguments of :meth:`StreamType.build`.
    """
    try:
        inspect.signature(kind.build).bind(labels, **given)
    except TypeError as error:
        raise ConfigError(
            f"build() of {type(kind).__name__} cannot be called as a run does ({error}); its parameters are those of "
            "StreamType.build, or **unused"
        ) from error
    return kind.build(labels, **given)


def require_runnable(stream: Stream, name: str, *, indices: Tensor, count: int, stream_batch: int) -> None:
    """Refuse a stream that an online run cannot take, since it may be of the user's own.

    Args:
        name: of its kind.
        indices: the samples that may arrive; the others do not exist, or are held out for validation.
        count: number of samples of the data set.
        stream_batch: samples per minibatch.
    """
    if not isinstance(stream, Stream):
        raise ConfigError(f"build() of stream '{name}' must return a Stream, not {type(stream).__name__}")
    allowed = torch.zeros(count, dtype=torch.bool)
    allowed[indices] = True
    for number in range(stream.experiences):
        drawn = stream.indices(number)
        inside = (drawn >= 0) & (drawn < count)
        wrong = drawn[~(inside & allowed[drawn.where(inside, 0)])]
        if len(wrong):
            raise ConfigError(
                f"stream '{name}' has sample {int(wrong[0])} in experience {number}, which is not among the indices "
                "that build() is given; draw from these alone"
            )
    if not stream.experiences:
        raise ConfigError(f"stream '{name}' has no experience; it needs at least one")
    for number, (begin, border) in enumerate(pairwise((0, *stream.borders))):
        if begin == border:
            raise ConfigError(
                f"experience {number} of stream '{name}' has no full minibatch of {stream.batch} samples; use fewer "
                "experiences or a smaller stream_batch"
            )
        if border % stream_batch:
            raise ConfigError(
                f"experience {number} of stream '{name}' ends at sample {border}, inside a minibatch of {stream_batch} "
                "samples; give its Stream the stream_batch of build() and last='drop'"
            )


def split_validation(labels: Tensor | None, fraction: float = 0.1, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Hold out the same fraction of every class, rounded down.

    Args:
        labels: int64 ``(N,)``.
        fraction: share of each class that is held out, in [0, 1).
        seed: decides which samples are held out.

    Returns:
        ``(train, validation)``, ascending int64 indices that together are ``0 … N-1``.

    >>> train, validation = split_validation(torch.tensor([0] * 20 + [1] * 10), fraction=0.1)
    >>> len(train), len(validation)
    (27, 3)
    """
    if not 0 <= fraction < 1:
        raise ConfigError(f"the validation fraction must be at least 0 and below 1, not {fraction}")
    values = label_array(labels)
    held_out = np.zeros(len(values), dtype=bool)
    for label in np.unique(values):
        members = np.flatnonzero(values == label)
        # Exact arithmetic: 0.29 of 100 is 29, although 0.29 * 100 is a little less in binary floating point.
        count = int(Fraction(str(fraction)) * len(members))
        held_out[members[permutation(len(members), "validation", seed, int(label))[:count]]] = True
    return torch.from_numpy(np.flatnonzero(~held_out)), torch.from_numpy(np.flatnonzero(held_out))


def label_array(labels: Tensor | None) -> Indices:
    """Labels as int64 ``(N,)``, refused where there are none."""
    if labels is None:
        raise InputError("labels are needed and the data set has none; an ordered or i.i.d. stream does without")
    return _integers(labels, "labels")


def index_array(indices: Tensor | None, count: int | None = None) -> Indices:
    """Indices in ascending order; by default all of ``count`` samples.

    Args:
        count: number of samples, where it is known; no index may reach it.
    """
    if indices is None:
        return np.arange(count or 0, dtype=np.int64)
    values = np.sort(_integers(indices, "indices"))
    if len(values) and (values[0] < 0 or (count is not None and values[-1] >= count)):
        raise InputError(f"indices must lie between 0 and the last sample, but reach from {values[0]} to {values[-1]}")
    return values


def _checked(found: Any, experience: int, size: int) -> Indices:
    """The indices of an experience; what is none is refused, since a stream may be of the user's own."""
    indices = np.asarray(found)
    if indices.shape != (size,) or not np.issubdtype(indices.dtype, np.integer):
        what = f"{indices.dtype} of shape {indices.shape}"
        raise ConfigError(f"experience {experience} of the stream must be integers of shape ({size},), not {what}")
    return indices.astype(np.int64, copy=False)


def _integers(values: object, name: str) -> Indices:
    if not isinstance(values, Tensor):
        kind = type(values).__name__
        raise InputError(f"{name} must be a one-dimensional integer tensor, not {kind}; torch.as_tensor makes one")
    if values.ndim != 1 or values.dtype == torch.bool or values.is_floating_point() or values.is_complex():
        raise InputError(
            f"{name} must be a one-dimensional integer tensor, not {values.dtype} of shape {tuple(values.shape)}"
        )
    return values.cpu().numpy().astype(np.int64)
