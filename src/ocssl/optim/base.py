"""What an optimiser is: parameters, a step, and a state of named tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor, nn

import ocssl.options
from ocssl.registry import Registry

registry: Registry[type[Optimizer]] = Registry("optimizer", group="ocssl.optimizers")
register = registry.register


class Optimizer:
    """Base of every optimiser. A subclass implements :meth:`step` and :meth:`state_dict`.

    The step must be tensor work of fixed shape without reading values back, so that it can be captured as a graph.

    Args:
        parameters: what is trained.
        options: settings of the optimiser.
        fused: whether all parameters may be updated in one kernel (on a GPU).
    """

    class Options(ocssl.options.Options):
        """Settings of the optimiser."""

    def __init__(self, parameters: Iterable[nn.Parameter], options: Options, *, fused: bool = False) -> None:
        self.parameters = list(parameters)

    def zero_grad(self) -> None:
        """Remove the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """Update every parameter that has a gradient."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Tensor]:
        """Every tensor that later steps depend on, by name; references, not copies."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy a saved state into :meth:`state_dict`."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])
