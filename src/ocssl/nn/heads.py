"""Small networks on top of a backbone: projector, predictor, aligner."""

from __future__ import annotations

import itertools

from torch import Tensor, nn


class Head(nn.Sequential):
    """A sequence of layers, with a forward pass of its own so that torch.compile compiles it as one."""

    def forward(self, features: Tensor) -> Tensor:
        """``(n, d_in)`` to ``(n, d_out)``."""
        for layer in self:
            features = layer(features)
        return features


def mlp(*widths: int, final_norm: bool = False, hidden_norm: bool = True) -> Head:
    """Linear layers through the given widths, batch norm and ReLU between them.

    Args:
        widths: input width, hidden widths, output width.
        final_norm: end with a batch norm without scale and shift (the last linear layer then has no bias).
        hidden_norm: batch norm before each ReLU.

    >>> [type(layer).__name__ for layer in mlp(4, 8, 2)]
    ['Linear', 'BatchNorm1d', 'ReLU', 'Linear']
    """
    layers: list[nn.Module] = []
    for width_in, width in itertools.pairwise(widths[:-1]):
        layers.append(nn.Linear(width_in, width, bias=not hidden_norm))
        if hidden_norm:
            layers.append(nn.BatchNorm1d(width))
        layers.append(nn.ReLU(inplace=True))
    layers.append(nn.Linear(widths[-2], widths[-1], bias=not final_norm))
    if final_norm:
        layers.append(nn.BatchNorm1d(widths[-1], affine=False))
    return Head(*layers)


def projector(feature_dim: int, hidden_dim: int, output_dim: int) -> Head:
    """The three-layer projector of SimSiam and SimCLR, ``feature → hidden → hidden → output``, with a final batch norm.

    >>> len(projector(512, 512, 2048))
    8
    """
    return mlp(feature_dim, hidden_dim, hidden_dim, output_dim, final_norm=True)


def predictor(dim: int, hidden_dim: int) -> Head:
    """Two layers, ``dim → hidden → dim``: SimSiam's predictor and every aligner.

    >>> predictor(2048, 512)[-1].out_features
    2048
    """
    return mlp(dim, hidden_dim, dim)
