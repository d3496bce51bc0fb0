"""In which order images arrive: streams of index minibatches.

A stream holds indices and borders, never pixels; labels are read once, when a stream is made. Each kind is a function
and a registered :class:`StreamType`, which a run finds by name and whose options are settings of the run:

==========================  =====================  ================================================================
:func:`class_incremental`  ``class-incremental``  the paper's protocol: k experiences, each with classes of its own
:func:`blurred`            ``blurred``            the same, with neighbouring experiences mixed around their border
:func:`ordered`            ``ordered``            as given, or sorted by a time stamp or any other column
:func:`iid`                ``iid``                epochs of fresh permutations
==========================  =====================  ================================================================

>>> import torch
>>> labels = torch.arange(10).repeat_interleave(30)
>>> train, validation = split_validation(labels, fraction=0.1, seed=0)
>>> stream = class_incremental(labels, experiences=5, indices=train, stream_batch=10)
>>> len(stream), stream.borders, len(validation)
(250, (50, 100, 150, 200, 250), 30)
>>> [sorted(set(labels[batch].tolist())) for batch in stream.starting_at(200)][0]
[1, 6]
>>> registry.names()
['class-incremental', 'blurred', 'iid', 'ordered']
"""

from __future__ import annotations

from ocssl.data.streams.base import (
    Minibatch,
    Shuffled,
    Stream,
    StreamType,
    build_stream,
    permutation,
    register,
    registry,
    require_runnable,
    split_validation,
)
from ocssl.data.streams.blurred import Blurred, blurred
from ocssl.data.streams.class_incremental import ClassIncremental, class_incremental
from ocssl.data.streams.iid import Iid, iid
from ocssl.data.streams.ordered import Ordered, ordered

__all__ = [
    "Blurred",
    "ClassIncremental",
    "Iid",
    "Minibatch",
    "Ordered",
    "Shuffled",
    "Stream",
    "StreamType",
    "blurred",
    "build_stream",
    "class_incremental",
    "iid",
    "ordered",
    "permutation",
    "register",
    "registry",
    "require_runnable",
    "split_validation",
]
