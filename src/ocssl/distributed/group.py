"""A group of processes that train one learner, and their exchanges."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ocssl.distributed.heartbeat import LONGEST, Heartbeat, StoreAddress
from ocssl.errors import ConfigError, PeerError

WAIT = timedelta(seconds=LONGEST)  # of an exchange: the heartbeat ends those that cannot succeed


class ProcessGroup:
    """The processes of a run and the share of a batch that each has. With one process, exchanges are the identity.

    Args:
        rank: number of this process; 0 is the main process.
        size: number of processes.
        local_rank: number of this process on its machine.

    >>> group = ProcessGroup()
    >>> group.size, group.is_main, group.share(10)
    (1, True, slice(0, 10, None))
    >>> [ProcessGroup(rank, 4).share(10) for rank in range(4)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None), slice(8, 10, None)]
    """

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0, heartbeat: Heartbeat | None = None) -> None:
        self.rank = rank
        self.size = size
        self.local_rank = local_rank
        self._heartbeat = heartbeat

    def __deepcopy__(self, memo: dict[int, Any]) -> ProcessGroup:
        return self  # copies of a network belong to the same group

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    @property
    def single(self) -> bool:
        """Whether the group has one process."""
        return self.size == 1

    def share(self, n: int, rank: int | None = None) -> slice:
        """The rows of n that a process has, by default this one; where n is uneven, the first have one more."""
        rank = self.rank if rank is None else rank
        each, over = divmod(n, self.size)
        start = rank * each + min(rank, over)
        return slice(start, start + each + (rank < over))

    # ------------------------------------------------------------------ with gradients

    def gather(self, part: Tensor, n: int, dim: int = 0) -> Tensor:
        """All n rows along ``dim`` from the :meth:`share` of each process.

        Every process computes the same loss of all rows. The gradient that flows back to this process's rows is
        multiplied by the number of processes, so that the average over processes is the right gradient.
        """
        gathered: Tensor = part if self.single else _Gather.apply(part, self, n, dim)  # type: ignore[no-untyped-call]
        return gathered

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes; gradients are summed likewise."""
        summed: Tensor = tensor if self.single else _Sum.apply(tensor, self)  # type: ignore[no-untyped-call]
        return summed

    # ------------------------------------------------------------------ without

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all processes."""
        if not self.single:
            with self._collective():
                dist.all_reduce(tensor)
        return tensor

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors of one dtype by their averages over all processes, in one exchange."""
        tensors = [*tensors]
        if self.single or not tensors:
            return
        flat = self.all_reduce(torch.cat([tensor.flatten() for tensor in tensors])) / self.size
        for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(mean.view_as(tensor))

    def concatenate(self, part: Tensor) -> Tensor:
        """The rows of every process, any number each, in the order of the ranks."""
        if self.single:
            return part
        counts = torch.zeros(self.size, dtype=torch.int64, device=part.device)
        counts[self.rank] = len(part)
        return self._all_gather(part, self.all_reduce(counts).tolist())

    def broadcast(self, number: int) -> int:
        """The main process's number, e.g. a decision that depends on a clock."""
        return number if self.single else int(self.all_reduce(torch.tensor(int(number) if self.is_main else 0)))

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return flag if self.single else bool(self.all_reduce(torch.tensor(int(flag))))

    @contextlib.contextmanager
    def main_first(self) -> Iterator[None]:
        """The main process runs this block before the others, e.g. to fill a cache that they read."""
        if not self.is_main:
            self.broadcast(0)
        yield
        if self.is_main:
            self.broadcast(0)

    def on_main(self, work: Callable[[], object]) -> None:
        """Run a function in the main process only; all processes wait for it, and all raise if it fails."""
        failure: Exception | None = None
        if self.is_main:
            try:
                with self.no_timeout():
                    work()
            except Exception as error:
                failure = error
        failed = self.broadcast(failure is not None)
        if failure is not None:
            raise failure
        if failed:
            raise PeerError(f"rank 0 of {self.size} failed; its own message says why")

    def no_timeout(self) -> contextlib.AbstractContextManager[None]:
        """A block that may take any time without an exchange."""
        return contextlib.nullcontext() if self._heartbeat is None else self._heartbeat.no_timeout()

    # ------------------------------------------------------------------ exchanges

    def _all_gather(self, rows: Tensor, lengths: list[int]) -> Tensor:
        """The rows of every process, so many each."""
        missing = max(lengths) - len(rows)
        block = torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])]) if missing else rows.contiguous()
        blocks = [torch.empty_like(block) for _ in range(self.size)]
        with self._collective():
            dist.all_gather(blocks, block)
        return torch.cat([block[:length] for block, length in zip(blocks, lengths, strict=True)])

    def _collective(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._heartbeat is None else self._heartbeat.collective()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: ProcessGroup, n: int, dim: int) -> Tensor:
        ctx.share, ctx.size, ctx.dim = group.share(n), group.size, dim
        shares = [group.share(n, rank) for rank in range(group.size)]
        return group._all_gather(part.movedim(dim, 0), [share.stop - share.start for share in shares]).movedim(0, dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        own = gradient.narrow(ctx.dim, ctx.share.start, ctx.share.stop - ctx.share.start)
        return own * ctx.size, None, None, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return group.all_reduce(tensor.clone())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.group.all_reduce(gradient.clone(memory_format=torch.contiguous_format)), None


_current = ProcessGroup()


def current() -> ProcessGroup:
    """The group that new learners belong to: one process, except inside :func:`process_group`."""
    return _current


@contextlib.contextmanager
def process_group() -> Iterator[ProcessGroup]:
    """Join the group that ``torchrun`` started this process for; without it, or with one process, nothing changes.

    Learners made inside are one learner over the whole group: each process calls the same methods in the same order,
    and gives ``partial_fit`` its own part of the images. An error that leaves the block is reported to the others.

    >>> with process_group() as group:
    ...     group.size
    1
    """
    group = _join()
    try:
        yield group
    except BaseException as error:
        _leave(f"{error}" or type(error).__name__)
        raise
    _leave(None)


def _join() -> ProcessGroup:
    global _current
    if os.environ.get("WORLD_SIZE", "1") == "1" or not _current.single:
        return _current
    try:
        size, rank, port = (int(os.environ[name]) for name in ("WORLD_SIZE", "RANK", "MASTER_PORT"))
        local_rank, address = int(os.environ.get("LOCAL_RANK", "0")), StoreAddress(os.environ["MASTER_ADDR"], port)
        if not (0 <= local_rank <= rank < size and 0 < port < 2**16):
            raise ValueError("numbers out of range")
    except (KeyError, ValueError) as error:
        names = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
        said = ", ".join(f"{name} is {os.environ.get(name, 'not set')}" for name in names)
        raise ConfigError(f"{said}: that is no group of processes; start with torchrun, or unset WORLD_SIZE") from error
    if torch.cuda.is_available() and local_rank >= (gpus := torch.cuda.device_count()):
        raise ConfigError(
            f"process {local_rank + 1} of this machine has no GPU of its own: there are {gpus}; start no more "
            "processes than that, or use none of them with CUDA_VISIBLE_DEVICES="
        )
    launcher_serves = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = address.connect(serve=rank == 0 and not launcher_serves)
    heartbeat = Heartbeat(rank, size, address)
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        backend = "cpu:gloo,cuda:nccl"
    with heartbeat.collective():
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=WAIT)
    _current = ProcessGroup(rank, size, local_rank, heartbeat)
    return _current


def _leave(failure: str | None) -> None:
    global _current
    group, _current = _current, ProcessGroup()
    if group._heartbeat is not None:
        group._heartbeat.close(failure)
        if failure is None:
            dist.destroy_process_group()
