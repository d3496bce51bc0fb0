"""The suite trains many tiny networks on few cores.

One thread per worker and plain convolutions are fastest for them: oneDNN takes longer to prepare such a call than the
call takes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from ocssl.data.catalog import registry as data_sets
from ocssl.data.streams import registry as streams
from ocssl.export.formats import formats
from ocssl.memory import base as memories
from ocssl.methods import base as methods
from ocssl.strategies import base as strategies

torch.set_num_threads(1)
torch.backends.mkldnn.set_flags(False)

REGISTRIES = (strategies._registry, methods._registry, memories._registry, data_sets, streams, formats)


@pytest.fixture(autouse=True)
def forget_what_a_test_registers() -> Iterator[None]:
    """A name that one test adds is not there for the next, whichever that is."""
    before = [dict(registry._entries) for registry in REGISTRIES]
    yield
    for registry, entries in zip(REGISTRIES, before, strict=True):
        registry._entries.clear()
        registry._entries.update(entries)
