"""The stream's images, brought to the learner's device while it is busy with those before them."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from ocssl.distributed import Group
from ocssl.runs.material import Pool
from ocssl.runs.route import Schedule

BLOCK_BYTES = 64 << 20  # read at a time; two blocks are on the device at once


class Prefetcher:
    """Gives the images of any stretch of the route, in order; a thread reads the next block ahead.

    Reading ahead pays where images come from disk and training does not need the processor: on a GPU whose memory the
    set does not fit into. In a group each process reads its share of a stretch when it is wanted.

    Args:
        pool: where the images are.
        route: the order in which they arrive.
        ahead: read ahead; unset: where it pays.
    """

    def __init__(self, pool: Pool, route: Schedule, group: Group, ahead: bool | None = None) -> None:
        self._pool, self._route, self._group = pool, route, group
        self._ahead = (pool.reads and pool.device.type == "cuda" and group.single) if ahead is None else ahead
        self._block = max(1, BLOCK_BYTES // pool.image_bytes)
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ocssl-feed")
        self._blocks: dict[int, Future[Tensor]] = {}

    def take(self, start: int, stop: int) -> Tensor:
        """This process's share of the images at positions ``start`` up to ``stop``: uint8 ``(n, 3, s, s)``."""
        if not self._ahead:
            return self._pool[self._route.indices(start, stop)[self._group.share(stop - start)]]
        parts = []
        for number in range(start // self._block, -(-stop // self._block)):
            first = number * self._block
            parts.append(self._get(number)[max(start - first, 0) : stop - first])
        return torch.cat(parts)

    def close(self) -> None:
        """Stop reading."""
        self._reader.shutdown(cancel_futures=True)

    def _get(self, number: int) -> Tensor:
        """A block, with the next one on its way; those before it are let go."""
        wanted = [ahead for ahead in (number, number + 1) if ahead * self._block < len(self._route)]
        self._blocks = {block: self._blocks.get(block) or self._reader.submit(self._read, block) for block in wanted}
        images = self._blocks[number].result()
        if images.is_cuda:
            images.record_stream(torch.cuda.current_stream(images.device))
        return images

    def _read(self, number: int) -> Tensor:
        start = number * self._block
        indices = self._route.indices(start, min(start + self._block, len(self._route)))
        if self._pool.device.type != "cuda":
            return self._pool[indices]
        stream = torch.cuda.Stream(self._pool.device)
        with torch.cuda.stream(stream):
            images = self._pool[indices]
        stream.synchronize()
        return images
