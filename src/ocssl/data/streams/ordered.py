"""Samples in the data set's own order, or sorted by one of its columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ocssl.data.streams.base import Indices, Last, Stream, StreamType, index_array, register
from ocssl.errors import ConfigError, InputError
from ocssl.options import setting


@register("ordered")
class Ordered(StreamType):
    """The order of the data set, or sorted by one of its columns."""

    class Options(StreamType.Options):
        experiences: int = setting(1, "Number of equal parts of the stream; the encoder is evaluated after each.", ge=1)
        sort_by: str | None = setting(
            None, "Column of the data set to sort by, e.g. mtime; the data set's own order if unset."
        )

    options: Options

    def build(
        self,
        labels: Tensor | None,
        *,
        indices: Tensor | None = None,
        stream_batch: int = 10,
        column: Callable[[str], Any] | None = None,
        **unused: Any,
    ) -> Stream:
        sort_by, keys = self.options.sort_by, None
        if sort_by is not None:
            if column is None:
                raise ConfigError(f"sort_by is '{sort_by}', and this data set has no columns; leave it unset")
            keys = column(sort_by)
        count = len(labels) if labels is not None and indices is None and keys is None else None
        experiences = self.options.experiences
        return ordered(
            count, keys=keys, indices=indices, experiences=experiences, stream_batch=stream_batch, last="drop"
        )


def ordered(
    count: int | None = None,
    *,
    keys: Sequence[object] | npt.NDArray[np.generic] | Tensor | None = None,
    indices: Tensor | None = None,
    experiences: int = 1,
    stream_batch: int = 10,
    last: Last = "carry",
) -> Stream:
    """The given order: that of the data set, or sorted by a key; equal keys keep the data set's order.

    Args:
        count: number of samples, when they come in the data set's own order.
        keys: one time stamp or other comparable value per sample, e.g. ``dataset.column("captured_at")``.
        indices: which samples take part; all by default.
        experiences: number of equal stretches between the stream's ``borders``; evaluation happens there.

    >>> [batch.tolist() for batch in ordered(keys=[3.5, 1.0, 2.0, 1.0], stream_batch=3)]
    [[1, 3, 2], [0]]
    """
    if (count is None) == (keys is None and indices is None):
        raise ConfigError("an ordered stream takes either a count or keys or indices")
    order = index_array(indices, count) if keys is None else _sorted_by(np.asarray(keys), indices)
    if not 1 <= experiences <= max(len(order), 1):
        wrong = f"{len(order)} samples cannot make {experiences} experiences"
        raise ConfigError(f"{wrong}; set experiences to a number from 1 to {max(len(order), 1)}")
    return Stream.from_groups(np.array_split(order, experiences), stream_batch, last)


def _sorted_by(keys: npt.NDArray[np.generic], indices: Tensor | None) -> Indices:
    if keys.ndim != 1:
        raise InputError(f"keys must be one value per sample, not an array of shape {keys.shape}")
    samples = index_array(indices, len(keys))
    try:
        values = zip(samples, keys[samples].tolist(), strict=True)
        missing = [sample for sample, key in values if key is None or key != key]  # NaN and NaT are not themselves
        if not missing:
            return samples[np.argsort(keys[samples], kind="stable")]
    except (TypeError, ValueError) as error:
        raise InputError(f"keys must be numbers, texts or times that can be put in order: {error}") from error
    raise InputError(f"sample {missing[0]} has no key to be ordered by ({len(missing)} samples lack one)")
