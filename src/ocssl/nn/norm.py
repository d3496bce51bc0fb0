"""Batch norm over the rows of all processes of a group."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ocssl.distributed import ProcessGroup


class GroupBatchNorm(_BatchNorm):
    """Batch norm with the statistics of all processes' rows; in evaluation as :class:`torch.nn.BatchNorm2d`.

    torch's ``SyncBatchNorm`` does the same, but on GPUs only.
    """

    group: ProcessGroup

    @classmethod
    def of(cls, norm: _BatchNorm, group: ProcessGroup) -> GroupBatchNorm:
        """A replacement of ``norm`` with the same parameter and buffer objects."""
        made = cls(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        made.group = group
        made._parameters, made._buffers = norm._parameters, norm._buffers
        return made.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, c, …)`` to the same."""
        if not self.training or self.running_mean is None:
            return super().forward(x)
        low = x.dtype in (torch.bfloat16, torch.float16)
        with torch.autocast(x.device.type, enabled=False):
            return self._normalise(x.float() if low else x).to(x.dtype)

    def _normalise(self, x: Tensor) -> Tensor:
        axes = [axis for axis in range(x.ndim) if axis != 1]
        shape = [1, -1, *[1] * (x.ndim - 2)]
        rows = x.new_tensor([x.numel() / self.num_features])
        sums = self.group.sum(torch.cat([x.sum(axes), rows]))
        count = sums[-1].detach()
        centred = x - (mean := sums[:-1] / count).view(shape)
        variance = self.group.sum(centred.square().sum(axes)) / count
        self._remember(mean.detach(), variance.detach(), count)
        normal = centred * torch.rsqrt(variance + self.eps).view(shape)
        return normal * self.weight.view(shape) + self.bias.view(shape) if self.affine else normal

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = 1 / self.num_batches_tracked if self.momentum is None else self.momentum
        for running, new in ((self.running_mean, mean), (self.running_var, variance * count / (count - 1))):
            assert running is not None
            running.lerp_(new.to(running.dtype), momentum)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected rows and channels, not a tensor of shape {tuple(input.shape)}")


def synchronise(module: nn.Module, group: ProcessGroup) -> None:
    """Replace every batch norm inside ``module`` by one over the rows of the whole group.

    >>> network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    >>> synchronise(network, ProcessGroup())
    >>> type(network[1]).__name__
    'GroupBatchNorm'
    """
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d):
            setattr(module, name, GroupBatchNorm.of(child, group))
        else:
            synchronise(child, group)
