"""Epochs over all samples, each in a fresh random order."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from ocssl.data.streams.base import Indices, Last, Shuffled, Stream, index_array, permutation, register
from ocssl.errors import ConfigError
from ocssl.options import setting


@register("iid")
class Iid(Shuffled):
    """All samples shuffled, at the cost of an online strategy: the paper's upper bound.

    By default minibatches continue from one epoch into the next, so only the very last may be short.
    """

    class Options(Shuffled.Options):
        online_stream_batch: int = setting(
            10, "Stream minibatch of the online strategy whose cost i.i.d. training equals.", ge=1
        )
        online_passes: int = setting(3, "Passes of the online strategy whose cost i.i.d. training equals.", ge=1)
        online_experiences: int = setting(
            20, "Experiences of the online stream whose cost i.i.d. training equals.", ge=1
        )
        epoch_end: Literal["carry", "drop"] = setting(
            "carry",
            "An epoch's incomplete last minibatch; `carry`: filled up from the next epoch, so that the cost is exact; "
            "`drop`: left out, in the paper's number of epochs, as in its public code.",
            since="0.2",
        )

    options: Options

    def build(
        self,
        labels: Tensor | None,
        *,
        indices: Tensor | None = None,
        stream_batch: int = 10,
        column: Any = None,
        **how: Any,
    ) -> Stream:
        count = len(labels) if labels is not None and indices is None else None
        return iid(count, indices=indices, batch=stream_batch, last=self.options.epoch_end, **how)


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
    samples = index_array(indices, count)

    def epoch(number: int) -> Indices:
        drawn: Indices = samples[permutation(len(samples), "iid", data_seed, order_seed, number)]
        return drawn

    return Stream([len(samples)] * epochs, epoch, batch, last)
