"""Backbone and projector as one network, and their features for all views of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor, nn

from ocssl.distributed import current


def over_views(module: Callable[[Tensor], Tensor], x: Tensor, joint: bool) -> Tensor:
    """Apply a module to every view: ``(views, n, …)`` to ``(views, n, …)``.

    Joint: one pass over all views together, nearly twice as fast on a GPU. Otherwise each view has its own pass and its
    own batch-norm statistics. Views of one sample always pass together, because batch norm needs two rows.
    """
    if joint or x.shape[1] == 1:
        out: Tensor = module(_laid_out(x.flatten(0, 1)))
        return out.view(*x.shape[:2], *out.shape[1:])
    return torch.stack([module(_laid_out(view)) for view in x])


def _laid_out(x: Tensor) -> Tensor:
    """Images on a GPU in channels-last layout, like the weights after :func:`channels_last`."""
    return x.contiguous(memory_format=torch.channels_last) if x.is_cuda and x.ndim == 4 else x


def channels_last(module: nn.Module) -> None:
    """Change a network's convolution weights to channels-last layout in place: faster on a GPU, the same numbers.

    >>> conv = nn.Conv2d(3, 8, 3)
    >>> channels_last(conv)
    >>> conv.weight.is_contiguous(memory_format=torch.channels_last)
    True
    """
    for parameter in module.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class Features:
    """Features of a batch. The first axis is the view, the second the sample.

    Attributes:
        backbone: ``(views, n, feature_dim)``, the features that are evaluated.
        projected: ``(views, n, output_dim)``, the input of the losses (the paper's z).
        joint: whether all views passed through the network together; heads do the same.
    """

    backbone: Tensor
    projected: Tensor
    joint: bool

    def detach(self) -> Features:
        """The same values without gradient."""
        return Features(self.backbone.detach(), self.projected.detach(), self.joint)

    def through(self, head: nn.Module, features: Tensor | None = None) -> Tensor:
        """A head applied to ``features`` (default: the projected ones), with the views together or one by one."""
        return over_views(head, self.projected if features is None else features, self.joint)


class Encoder(nn.Module):
    """θ of the paper: backbone, then projector.

    In a process group, each process computes its share of the rows, and all processes get the features of all rows.

    Args:
        backbone: ``(n, 3, s, s)`` to ``(n, feature_dim)``.
        projector: ``(n, feature_dim)`` to ``(n, output_dim)``; output_dim is measured.

    >>> from ocssl.nn import ResNet18, projector
    >>> encoder = Encoder(ResNet18(ResNet18.Options(width=16)), projector(128, 32, 64), feature_dim=128)
    >>> encoder(torch.zeros(2, 4, 3, 32, 32), joint=True).projected.shape
    torch.Size([2, 4, 64])
    """

    def __init__(self, backbone: nn.Module, projector: nn.Module, feature_dim: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.projector = projector
        self.feature_dim = feature_dim
        with torch.no_grad():
            self.output_dim = projector.eval()(torch.zeros(1, feature_dim)).shape[1]
        self.train()  # a given backbone may be in evaluation mode
        self.group = current()
        self.second = False
        """Whether a strategy trains this network besides the main one."""
        self.image_size: int | None = None
        """Side of a view that counts as one backward pass; None: views of any size do."""
        self.cbp: int | Fraction = 0
        """Backward passes so far: views through which a gradient went, smaller ones by their share of the pixels."""
        self.heads_only = False
        """Whether no gradient goes through the backbone, so that only the projector and other heads learn."""

    def forward(self, views: Tensor, joint: bool) -> Features:
        """``(views, n, 3, s, s)`` normalised images to their features."""
        n = views.shape[1]
        joint = joint or n == 1
        if self.group.single:
            return self._features(views, joint, n)
        own = self._features(views[:, self.group.share(n)], joint, n)
        return Features(self.group.gather(own.backbone, n, 1), self.group.gather(own.projected, n, 1), joint)

    def _features(self, views: Tensor, joint: bool, n: int) -> Features:
        if joint:
            backbone = self._counted(over_views(self._backbone, views, joint), len(views) * n * self._share(views))
            return Features(backbone, over_views(self.projector, backbone, joint), joint)
        # One view after the other through the whole network, as in separate calls.
        passes = n * self._share(views)
        parts = [(e := self._counted(self._backbone(_laid_out(view)), passes), self.projector(e)) for view in views]
        return Features(torch.stack([e for e, _ in parts]), torch.stack([z for _, z in parts]), joint)

    def _backbone(self, images: Tensor) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.heads_only):
            features: Tensor = self.backbone(images)
        return features

    def _share(self, views: Tensor) -> int | Fraction:
        """The pixels of each of these views, as a share of those of a whole one."""
        pixels = views.shape[-2] * views.shape[-1]
        if self.image_size is None or pixels == self.image_size**2:
            return 1
        return Fraction(pixels, self.image_size**2)

    def _counted(self, features: Tensor, passes: int | Fraction) -> Tensor:
        """Count the passes when a gradient arrives at the features."""

        def arrived(gradient: Tensor) -> None:
            self.cbp += passes

        if features.requires_grad:
            features.register_hook(arrived)
        return features
