"""Data sets, and the order in which their images arrive.

>>> from ocssl import data
>>> dataset = data.load("shapes", split="test")
>>> dataset.images([0, 1, 2]).shape
torch.Size([3, 3, 32, 32])
>>> stream = data.streams.class_incremental(dataset.labels, experiences=6, stream_batch=10)
>>> stream.experiences
6
"""

from __future__ import annotations

from ocssl.data import streams
from ocssl.data.catalog import names
from ocssl.data.dataset import Dataset, DatasetInfo, ResidentDataset, Skipped
from ocssl.data.loading import from_iterable, load
from ocssl.data.streams import Minibatch, Stream

__all__ = [
    "Dataset",
    "DatasetInfo",
    "Minibatch",
    "ResidentDataset",
    "Skipped",
    "Stream",
    "from_iterable",
    "load",
    "names",
    "streams",
]
