"""The suite trains many tiny networks on few cores.

One thread per process and plain convolutions are fastest for them: oneDNN takes longer to prepare such a call than the
call takes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from subprocess import Popen

os.environ["OMP_NUM_THREADS"] = "1"  # read when numpy and torch are imported, here and in processes that tests start

import pytest
import torch

from helpers.command import command_server
from helpers.shapes import draw_shapes_once
from ocssl import augment, memory, methods, optim, plugins, strategies
from ocssl.data.catalog import registry as data_sets
from ocssl.data.streams import registry as streams
from ocssl.export.formats import formats
from ocssl.nn import backbones

torch.set_num_threads(1)
torch.backends.mkldnn.set_flags(False)

PARTS = (strategies, methods, memory, optim, augment, backbones)
REGISTRIES = (*(part.registry for part in PARTS), data_sets, streams, formats)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Decoded images of tests are not kept in the user's cache, and drawn ones are drawn once."""
    draw_shapes_once()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCSSL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[Popen[str]]:
    """The process that forks for each command."""
    with command_server() as server:
        yield server


@pytest.fixture(autouse=True)
def forget_what_a_test_registers() -> Iterator[None]:
    """Names that a test registers do not exist in the next test."""
    before = [(dict(registry._entries), dict(registry._variants)) for registry in REGISTRIES]
    tables = (plugins._registered, plugins._digests, plugins._recorded)
    known, named = [dict(table) for table in tables], os.environ.get(plugins.PLUGINS)
    yield
    if named is None:
        os.environ.pop(plugins.PLUGINS, None)
    else:
        os.environ[plugins.PLUGINS] = named
    for table, content in zip(tables, known, strict=True):
        table.clear()
        table.update(content)
    for registry, (entries, variants) in zip(REGISTRIES, before, strict=True):
        for table, content in ((registry._entries, entries), (registry._variants, variants)):
            table.clear()
            table.update(content)
