"""Class-incremental experiences without sharp borders."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor

from ocssl.data.streams.base import Last, Stream, permutation, register
from ocssl.data.streams.class_incremental import ClassIncremental, class_incremental
from ocssl.options import setting, validate


@register("blurred")
class Blurred(ClassIncremental):
    """The class-incremental stream with neighbouring experiences mixed around their border."""

    class Options(ClassIncremental.Options):
        overlap: float = setting(0.2, "Share of an experience that is mixed with its neighbours.", ge=0, le=1)

    options: Options

    def build(self, labels: Tensor | None, *, epochs: int = 1, column: Any = None, **samples: Any) -> Stream:
        return blurred(labels, self.options.experiences, overlap=self.options.overlap, last="drop", **samples)


def blurred(
    labels: Tensor | None,
    experiences: int = 20,
    *,
    overlap: float = 0.2,
    data_seed: int = 0,
    order_seed: int = 0,
    stream_batch: int = 10,
    last: Last = "carry",
    **samples: Any,
) -> Stream:
    """:func:`class_incremental` without sharp borders; the other arguments are as there.

    Around each border, the last ``overlap/2`` of one experience and the first ``overlap/2`` of the next arrive
    shuffled together. At 0 the order is that of :func:`class_incremental`; at 1 no sample arrives outside a mixture,
    except before the first border's window and after the last one's. ``borders`` are the middles of the mixtures.

    Args:
        overlap: share of an experience that is mixed with its neighbours, in [0, 1].
    """
    validate(Blurred.Options, {"overlap": overlap})
    sharp = class_incremental(
        labels, experiences, data_seed=data_seed, order_seed=order_seed, stream_batch=1, last="carry", **samples
    )
    groups = [sharp.indices(number).numpy() for number in range(experiences)]
    order = np.concatenate(groups)
    half = Fraction(str(overlap)) / 2
    for number, (border, (before, after)) in enumerate(zip(sharp.borders, pairwise(groups), strict=False)):
        window = slice(border - int(half * len(before)), border + int(half * len(after)))
        mixture = order[window]
        order[window] = mixture[permutation(len(mixture), "blur", data_seed, order_seed, number)]
    return Stream.from_groups(np.split(order, sharp.borders[:-1]), stream_batch, last)
