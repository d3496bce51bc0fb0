"""What every self-supervised objective is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from ocssl.batch import Batch
from ocssl.nn import Features, projector
from ocssl.registry import Registry

_registry: Registry[type[Method]] = Registry("method", group="ocssl.methods")
register = _registry.register
names = _registry.names
get = _registry.get


@dataclass(frozen=True)
class Dims:
    """Widths of the networks: backbone ``feature``, ``hidden`` layers of heads, ``output`` of the projector."""

    feature: int
    hidden: int = 512
    output: int = 2048


class Method(nn.Module):
    """An objective: the projector it wants on top of the backbone, its heads, and its loss.

    The projector becomes part of the encoder, so that copies and averages of the encoder include it.
    """

    views: ClassVar[int] = 2
    """How many views of each sample a step needs."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.dims = dims

    def projector(self) -> nn.Module:
        """A fresh projector from backbone features to what the loss sees; three layers, normed at the end."""
        return projector(self.dims.feature, self.dims.hidden, self.dims.output)

    def loss(self, features: Features, batch: Batch) -> Tensor:
        """The objective on all samples of a batch; a scalar."""
        raise NotImplementedError

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The objective as a distance between two descriptions of the same samples, as CaSSLe uses it to align.

        Args:
            predicted: ``(views, n, d)``, through a predictor already.
            target: ``(views, n, d)``, receives no gradient.
        """
        raise NotImplementedError
