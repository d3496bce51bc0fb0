"""Data sets, and the order in which their images arrive.

From files to a stream, by module:

================  ===================================================================================
``loading``       opens a data set by its name or address
``catalog``       the sets that have a name; ``layout`` finds their files, ``download`` fetches them
``reader``        images before decoding: the interface of all ``formats``
``cache_writer``  decodes the images of a reader once; ``cache`` opens what it wrote
``dataset``       decoded images by index, in RAM or mapped from a file
``streams``       the orders in which indices arrive
================  ===================================================================================

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
