"""In which order images arrive: streams of index minibatches.

A stream knows indices and borders, never pixels; labels are read once, when a stream is made. Each of these functions
returns a :class:`Stream`:

======================  ====================================================================================
:func:`class_incremental`  the paper's protocol: k experiences, each with classes of its own
:func:`blurred`            the same, with neighbouring experiences mixed around their border
:func:`ordered`            as given, or sorted by a time stamp or any other column
:func:`iid`                epochs of fresh permutations
======================  ====================================================================================

>>> import torch
>>> labels = torch.arange(10).repeat_interleave(30)
>>> train, validation = split_validation(labels, fraction=0.1, seed=0)
>>> stream = class_incremental(labels, experiences=5, indices=train, stream_batch=10)
>>> len(stream), stream.borders, len(validation)
(250, (50, 100, 150, 200, 250), 30)
>>> [sorted(set(labels[batch].tolist())) for batch in stream.starting_at(200)][0]
[1, 6]
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ocssl.data.shuffle import Indices, permutation
from ocssl.data.stream import Last, Stream
from ocssl.errors import ConfigError, InputError

__all__ = ["Stream", "blurred", "class_incremental", "iid", "ordered", "split_validation"]


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
    values = _label_array(labels)
    held_out = np.zeros(len(values), dtype=bool)
    for label in np.unique(values):
        members = np.flatnonzero(values == label)
        # Exact arithmetic: 0.29 of 100 is 29, although 0.29 * 100 is a little less in binary floating point.
        count = int(Fraction(str(fraction)) * len(members))
        held_out[members[permutation(len(members), "validation", seed, int(label))[:count]]] = True
    return torch.from_numpy(np.flatnonzero(~held_out)), torch.from_numpy(np.flatnonzero(held_out))


def class_incremental(
    labels: Tensor | None,
    experiences: int = 20,
    *,
    indices: Tensor | None = None,
    data_seed: int = 0,
    order_seed: int = 0,
    class_order: Sequence[int] | None = None,
    stream_batch: int = 10,
    last: Last = "drop",
) -> Stream:
    """The paper's stream: the classes, in random order, are dealt to ``experiences`` groups that arrive one by one.

    Args:
        labels: int64 ``(N,)``, of the whole source.
        experiences: number of groups; when the classes do not divide evenly, the first groups get one more.
        indices: which samples take part, for instance the training half of :func:`split_validation`; all by default.
        data_seed: draws the class order, and together with ``order_seed`` the order inside each experience. The run's
            own seed has no part in either, so that all runs of a comparison see one stream.
        order_seed: another order inside the experiences with the same classes in each.
        class_order: the classes in a given order instead of a drawn one.
        stream_batch: samples per minibatch (b_s).
        last: ``"drop"`` the incomplete last minibatch of each experience (the paper's rule), or ``"carry"`` its
            samples over into the next experience's first minibatch.
    """
    groups = _experience_groups(labels, experiences, indices, data_seed, order_seed, class_order)
    return Stream.from_groups(groups, stream_batch, last)


def blurred(
    labels: Tensor | None,
    experiences: int = 20,
    *,
    overlap: float = 0.2,
    indices: Tensor | None = None,
    data_seed: int = 0,
    order_seed: int = 0,
    class_order: Sequence[int] | None = None,
    stream_batch: int = 10,
    last: Last = "carry",
) -> Stream:
    """:func:`class_incremental` without sharp borders.

    Around each border, the last ``overlap/2`` of one experience and the first ``overlap/2`` of the next arrive
    shuffled together. At 0 the order is that of :func:`class_incremental`; at 1 no sample arrives outside a mixture,
    except before the first border's window and after the last one's. ``borders`` remain where the middles of the
    mixtures are.

    Args:
        overlap: share of an experience that is mixed with its neighbours, in [0, 1].
    """
    if not 0 <= overlap <= 1:
        raise ConfigError(f"overlap must lie between 0 and 1, not {overlap}")
    groups = _experience_groups(labels, experiences, indices, data_seed, order_seed, class_order)
    order = np.concatenate(groups)
    half = Fraction(str(overlap)) / 2
    border = 0
    for number, (before, after) in enumerate(pairwise(groups)):
        border += len(before)
        window = slice(border - int(half * len(before)), border + int(half * len(after)))
        mixture = order[window]
        order[window] = mixture[permutation(len(mixture), "blur", data_seed, order_seed, number)]
    return Stream.from_groups(np.split(order, np.cumsum([len(group) for group in groups])[:-1]), stream_batch, last)


def ordered(
    count: int | None = None,
    *,
    keys: Sequence[object] | npt.NDArray[np.generic] | Tensor | None = None,
    experiences: int = 1,
    stream_batch: int = 10,
    last: Last = "carry",
) -> Stream:
    """The given order: as the source has it, or sorted by a key; equal keys stay in the source's order.

    Args:
        count: number of samples, when they come in the source's own order.
        keys: one time stamp or other comparable value per sample, e.g. ``source.column("captured_at")``.
        experiences: number of equal stretches between the stream's ``borders``; evaluation happens there.

    >>> [batch.tolist() for batch in ordered(keys=[3.5, 1.0, 2.0, 1.0], stream_batch=3)]
    [[1, 3, 2], [0]]
    """
    if (count is None) == (keys is None):
        raise ConfigError("an ordered stream takes either a count or keys")
    order = np.arange(count or 0, dtype=np.int64) if keys is None else _sorted_by(np.asarray(keys))
    if not 1 <= experiences <= max(len(order), 1):
        raise ConfigError(f"{len(order)} samples cannot make {experiences} experiences")
    return Stream.from_groups(np.array_split(order, experiences), stream_batch, last)


def iid(
    count: int | None = None,
    epochs: int = 1,
    *,
    indices: Tensor | None = None,
    data_seed: int = 0,
    order_seed: int = 0,
    batch: int = 10,
    last: Last = "drop",
) -> Stream:
    """Epochs over all samples, each in a fresh random order; every epoch is one experience.

    Args:
        count: number of samples; or
        indices: which samples take part.
        epochs: how often each sample is seen.
        batch: samples per minibatch.
    """
    if (count is None) == (indices is None):
        raise ConfigError("an i.i.d. stream takes either a count or indices")
    if epochs < 1:
        raise ConfigError(f"an i.i.d. stream needs at least one epoch, not {epochs}")
    samples = np.arange(count or 0, dtype=np.int64) if indices is None else _index_array(indices)

    def epoch(number: int) -> Indices:
        drawn: Indices = samples[permutation(len(samples), "iid", data_seed, order_seed, number)]
        return drawn

    return Stream([len(samples)] * epochs, epoch, batch, last)


def _experience_groups(
    labels: Tensor | None,
    experiences: int,
    indices: Tensor | None,
    data_seed: int,
    order_seed: int,
    class_order: Sequence[int] | None,
) -> list[Indices]:
    """Sample indices per experience, shuffled inside."""
    values = _label_array(labels)
    samples = np.arange(len(values), dtype=np.int64) if indices is None else _index_array(indices, len(values))
    classes = np.unique(values[samples])
    if class_order is None:
        classes = classes[permutation(len(classes), "classes", data_seed)]
    elif sorted(class_order) != classes.tolist():
        raise ConfigError(f"class_order must name each of the {len(classes)} classes in the labels exactly once")
    else:
        classes = np.asarray(class_order, dtype=np.int64)
    if not 1 <= experiences <= len(classes):
        raise ConfigError(f"{len(classes)} classes cannot make {experiences} experiences")
    groups = []
    for number, members in enumerate(np.array_split(classes, experiences)):
        group = samples[np.isin(values[samples], members)]
        groups.append(group[permutation(len(group), "order", data_seed, order_seed, number)])
    return groups


def _label_array(labels: Tensor | None) -> Indices:
    if labels is None:
        raise InputError("this needs labels and the source has none; an ordered or i.i.d. stream does without")
    if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
        raise InputError(
            f"labels must be a one-dimensional integer tensor, not {labels.dtype} of shape {tuple(labels.shape)}"
        )
    return labels.cpu().numpy().astype(np.int64)


def _index_array(indices: Tensor, count: int | None = None) -> Indices:
    """Indices in ascending order; those of ``count`` samples, where that is known."""
    if indices.ndim != 1 or indices.dtype == torch.bool or indices.is_floating_point() or indices.is_complex():
        raise InputError(
            f"indices must be a one-dimensional integer tensor, not {indices.dtype} of shape {tuple(indices.shape)}"
        )
    values = np.sort(indices.cpu().numpy().astype(np.int64))
    if len(values) and (values[0] < 0 or (count is not None and values[-1] >= count)):
        raise InputError(f"indices must lie between 0 and the last sample, but reach from {values[0]} to {values[-1]}")
    return values


def _sorted_by(keys: npt.NDArray[np.generic]) -> Indices:
    if keys.ndim != 1:
        raise InputError(f"keys must be one value per sample, not an array of shape {keys.shape}")
    try:
        missing = [position for position, key in enumerate(keys.tolist()) if key is None or key != key]
        if not missing:
            return np.argsort(keys, kind="stable").astype(np.int64)
    except (TypeError, ValueError) as error:
        raise InputError(f"keys must be numbers, texts or times that can be put in order: {error}") from error
    raise InputError(f"sample {missing[0]} has no key to be ordered by ({len(missing)} samples lack one)")
