"""A group of processes that train one learner, and the few things they say to each other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ocssl.distributed.watch import Place, Watch
from ocssl.errors import ConfigError, PeerError

WAIT = timedelta(days=7)  # the watch ends a wait that has become pointless; one for somebody's long work may last


class Group:
    """Who takes part, and which share of a batch falls to whom. Alone, everything here is the identity.

    Args:
        rank: which process this is, from 0; 0 leads.
        size: how many there are.
        local_rank: which of those on this machine.

    >>> group = Group()
    >>> group.size, group.leads, group.share(10)
    (1, True, slice(0, 10, None))
    >>> [Group(rank, 4).share(10) for rank in range(4)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None), slice(8, 10, None)]
    """

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0, watch: Watch | None = None) -> None:
        self.rank = rank
        self.size = size
        self.local_rank = local_rank
        self._watch = watch

    def __deepcopy__(self, memo: dict[int, Any]) -> Group:
        return self  # copies of a network belong to the same group

    @property
    def leads(self) -> bool:
        """Whether this process writes files and speaks to people."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there is nobody else."""
        return self.size == 1

    def share(self, n: int, rank: int | None = None) -> slice:
        """The rows of n that fall to a process, this one unless told; what is left over goes to the first ones."""
        rank = self.rank if rank is None else rank
        each, over = divmod(n, self.size)
        start = rank * each + min(rank, over)
        return slice(start, start + each + (rank < over))

    # ------------------------------------------------------------------ with gradients

    def gather(self, part: Tensor, n: int, dim: int = 0) -> Tensor:
        """All n rows along ``dim`` from everybody's :meth:`share` of them.

        Everybody then computes the same loss of all rows. So that averaged gradients come out right, a gradient that
        flows back to this process's own rows is multiplied by the number of processes.
        """
        gathered: Tensor = part if self.alone else _Gather.apply(part, self, n, dim)  # type: ignore[no-untyped-call]
        return gathered

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes; gradients are summed likewise."""
        summed: Tensor = tensor if self.alone else _Sum.apply(tensor, self)  # type: ignore[no-untyped-call]
        return summed

    # ------------------------------------------------------------------ without

    def add_up(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all processes."""
        if not self.alone:
            with self._meeting():
                dist.all_reduce(tensor)
        return tensor

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors of one dtype by their averages over all processes, in one exchange."""
        tensors = [*tensors]
        if self.alone or not tensors:
            return
        flat = self.add_up(torch.cat([tensor.flatten() for tensor in tensors])) / self.size
        for tensor, mean in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(mean.view_as(tensor))

    def concatenate(self, part: Tensor) -> Tensor:
        """Everybody's rows, as many as each has, in the order of the ranks."""
        if self.alone:
            return part
        counts = torch.zeros(self.size, dtype=torch.int64, device=part.device)
        counts[self.rank] = len(part)
        lengths = self.add_up(counts).tolist()
        blocks = self._exchange(_padded(part, max(lengths)))
        return torch.cat([block[:length] for block, length in zip(blocks, lengths, strict=True)])

    def agree(self, number: int) -> int:
        """The leader's number, for everybody: whatever hangs on a clock is decided by one."""
        if self.alone:
            return number
        return int(self.add_up(torch.tensor(int(number) if self.leads else 0)))

    def any(self, flag: bool) -> bool:
        """Whether anybody says yes."""
        return flag if self.alone else bool(self.add_up(torch.tensor(int(flag))))

    @contextlib.contextmanager
    def leader_first(self) -> Iterator[None]:
        """The leader goes through this block, then the others: what it has prepared, they find."""
        if not self.leads:
            self.agree(0)
        yield
        if self.leads:
            self.agree(0)

    def lead(self, work: Callable[[], object]) -> None:
        """The leader alone does this; everybody goes on when it is done, and nobody when it failed."""
        failure: Exception | None = None
        if self.leads:
            try:
                with self.at_length():
                    work()
            except Exception as error:
                failure = error
        failed = self.agree(failure is not None)
        if failure is not None:
            raise failure
        if failed:
            raise PeerError(f"rank 0 of {self.size} failed at what it does for all; its own message says why")

    def at_length(self) -> contextlib.AbstractContextManager[None]:
        """Work that may take long without a word to the others, and is no reason to worry."""
        return contextlib.nullcontext() if self._watch is None else self._watch.at_length()

    # ------------------------------------------------------------------ plumbing

    def _exchange(self, block: Tensor) -> list[Tensor]:
        blocks = [torch.empty_like(block) for _ in range(self.size)]
        with self._meeting():
            dist.all_gather(blocks, block)
        return blocks

    def _meeting(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._watch is None else self._watch.meeting()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: Group, n: int, dim: int) -> Tensor:
        ctx.group, ctx.n, ctx.dim = group, n, dim
        rows = part.movedim(dim, 0)
        longest = -(-n // group.size)
        blocks = group._exchange(_padded(rows, longest))
        lengths = [(share := group.share(n, rank)).stop - share.start for rank in range(group.size)]
        return torch.cat([block[:length] for block, length in zip(blocks, lengths, strict=True)]).movedim(0, dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        share = ctx.group.share(ctx.n)
        own = gradient.narrow(ctx.dim, share.start, share.stop - share.start)
        return own * ctx.group.size, None, None, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return group.add_up(tensor.clone())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.group.add_up(gradient.clone(memory_format=torch.contiguous_format)), None


def _padded(rows: Tensor, length: int) -> Tensor:
    missing = length - len(rows)
    return torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])]) if missing else rows.contiguous()


_current = Group()


def current() -> Group:
    """The group that new learners belong to: nobody else, unless this process joined one."""
    return _current


@contextlib.contextmanager
def membership() -> Iterator[Group]:
    """Join the group that ``torchrun`` started this process for; without it, or with one process, stay alone.

    Learners made inside are one learner over the whole group: each process calls the same methods in the same order,
    and gives ``partial_fit`` its own part of the images. An error that leaves the block is told to the others.

    >>> with membership() as group:
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


def _join() -> Group:
    global _current
    told = os.environ.get("WORLD_SIZE", "1")
    if told == "1" or not _current.alone:
        return _current
    try:
        size = int(told)
        rank, local_rank = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
        place = Place(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    except (KeyError, ValueError) as error:
        raise ConfigError(f"WORLD_SIZE is {told}, but {error}: start with torchrun, or unset it") from error
    kept_by_launcher = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = place.connect(leads=rank == 0 and not kept_by_launcher)
    watch = Watch(rank, size, place)
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
        backend = "cpu:gloo,cuda:nccl"
    with watch.meeting():
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=WAIT)
    _current = Group(rank, size, local_rank, watch)
    return _current


def _leave(failure: str | None) -> None:
    global _current
    group, _current = _current, Group()
    if group._watch is not None:
        group._watch.close(failure)
        if failure is None:
            dist.destroy_process_group()
