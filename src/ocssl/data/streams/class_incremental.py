"""The paper's stream: experiences with classes of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from torch import Tensor

from ocssl.data.streams.base import Last, Shuffled, Stream, index_array, label_array, permutation, register
from ocssl.errors import ConfigError
from ocssl.options import setting


@register("class-incremental")
class ClassIncremental(Shuffled):
    """Experiences with classes of their own, in random order: the paper's stream."""

    class Options(Shuffled.Options):
        experiences: int = setting(20, "Number of experiences, each with classes of its own.", ge=1)
        class_order: Literal["data", "authors"] = setting(
            "data",
            "Order of the classes; `data`: drawn by data_seed; `authors`: that of the paper's public code.",
            since="0.2",
        )

    options: Options

    def build(self, labels: Tensor | None, *, epochs: int = 1, column: Any = None, **samples: Any) -> Stream:
        return class_incremental(labels, self.options.experiences, **samples)


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
        labels: int64 ``(N,)``, of the whole data set.
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
    values = label_array(labels)
    samples = index_array(indices, len(values))
    classes = np.unique(values[samples])
    if class_order is None:
        classes = classes[permutation(len(classes), "classes", data_seed)]
    elif sorted(class_order) != classes.tolist():
        raise ConfigError(f"class_order must name each of the {len(classes)} classes in the labels exactly once")
    else:
        classes = np.asarray(class_order, dtype=np.int64)
    if not 1 <= experiences <= len(classes):
        wrong = f"{len(classes)} classes cannot make {experiences} experiences"
        raise ConfigError(f"{wrong}; set experiences to a number from 1 to {len(classes)}")
    groups = []
    for number, members in enumerate(np.array_split(classes, experiences)):
        group = samples[np.isin(values[samples], members)]
        groups.append(group[permutation(len(group), "order", data_seed, order_seed, number)])
    return Stream.from_groups(groups, stream_batch, last)
