"""What a self-supervised method consists of: a projector, further heads, and a loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import ocssl.options
from ocssl.batch import Step, StepOutput
from ocssl.errors import ConfigError
from ocssl.nn import Encoder, projector
from ocssl.options import setting
from ocssl.registry import Registry

registry: Registry[type[Method]] = Registry("method", group="ocssl.methods")
register = registry.register


@dataclass(frozen=True)
class Dims:
    """Widths of the networks: backbone ``feature``, ``hidden`` layers of heads, ``output`` of the projector."""

    feature: int
    hidden: int = 512
    output: int = 2048


class Method(nn.Module):
    """Base of every method. A subclass implements :meth:`loss`; its settings are declared in a class ``Options``.

    The projector becomes a part of the encoder, so copies and averages of the encoder include it. Parameters of the
    method are trained, unless they require no gradient; its buffers, such as queues and centres, are saved.

    Args:
        dims: widths of the networks.
        options: settings of the method; None: their defaults.
    """

    class Options(ocssl.options.Options):
        """Settings of the method."""

        views: int = setting(2, "Views of each image in a step.", symbol="n_v", ge=2, le=64, since="0.2")

    defaults: ClassVar[Mapping[str, Any]] = {}
    """Settings of other parts where none are given, as a strategy has them, and before the strategy's."""

    def __init__(self, dims: Dims, options: Options | None = None) -> None:
        super().__init__()
        self.dims = dims
        self.options = options or self.Options()
        self.views = self.options.views

    def projector(self) -> nn.Module:
        """A new projector from backbone features to those of the loss: three layers, then batch norm."""
        return projector(self.dims.feature, self.dims.hidden, self.dims.output)

    def begin(self, encoder: Encoder) -> None:
        """Called once, when the encoder has been made: copy it here, with :func:`~ocssl.nn.frozen_copy`, if needed."""

    def corrupt(self, views: Tensor, generator: torch.Generator) -> Tensor:
        """Change the views ``(views, n, 3, s, s)`` before the forward pass, as masking does; a step has these views.

        A method that needs them as they were keeps them until :meth:`loss`.
        """
        return views

    def loss(self, step: Step) -> Tensor:
        """The loss over all views of all samples of a step, a scalar."""
        raise NotImplementedError

    def sample_losses(self, step: Step) -> Tensor:
        """The loss of each sample of a step, ``(n,)``, after :meth:`loss`. Gradients are off, and nothing is drawn.

        Only memories that select by losses need it.
        """
        raise ConfigError(f"method '{type(self).__name__}' has no loss of each sample; choose another memory")

    def after_step(self, output: StepOutput, encoder: Encoder) -> None:
        """Update target networks, queues and centres, in place, after the optimiser's step. Gradients are off."""

    def distance(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The loss as a distance between two sets of features of the same samples. Only ``distance="method"`` needs it.

        Args:
            predicted: ``(views, n, d)``, the output of a predictor.
            target: ``(views, n, d)``, receives no gradient.
        """
        raise NotImplementedError

    def distillation(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The distillation loss that CaSSLe's own code has for this method. Only ``distance="original"`` needs it.

        Args:
            predicted: ``(views, n, d)``, the output of an aligner.
            target: ``(views, n, d)``, receives no gradient.
        """
        raise NotImplementedError


registry.base = Method
registry.required = ("loss",)
