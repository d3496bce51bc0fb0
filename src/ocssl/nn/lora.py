"""Low-rank changes of a network's linear layers: W₀ + B A with few numbers in A and B, while W₀ stays as it is.

Edward J. Hu, Yelong Shen, Phillip Wallis, Zeyuan Allen-Zhu, Yuanzhi Li, Shean Wang, Lu Wang and Weizhu Chen. LoRA:
Low-Rank Adaptation of Large Language Models. ICLR 2022. arXiv:2106.09685. Their scale α/r is 1 here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ocssl.errors import ConfigError

WEIGHTS: tuple[tuple[type[nn.Module], str], ...] = ((nn.Linear, "weight"), (nn.MultiheadAttention, "in_proj_weight"))
"""Linear maps, and the names of their weights ``(out, in)``."""


class LowRank(nn.Module):
    """Factors A ``(rank, in)`` and B ``(out, rank)`` of every linear layer of a network that is not frozen.

    A is drawn, and B starts at 0, so nothing is changed at first. The network itself is neither kept nor changed.

    Args:
        network: with at least one linear layer.
        rank: of the changes; a smaller layer has its own full rank.

    >>> network = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> changes = LowRank(network, rank=3)
    >>> [tuple(factor.shape) for factor in changes.parameters()]
    [(3, 6), (2, 4), (4, 3), (2, 2)]
    >>> changes.weights(network)["0.weight"].equal(network[0].weight)
    True
    """

    def __init__(self, network: nn.Module, rank: int) -> None:
        super().__init__()
        found = dict(_linear(network))
        if not found:
            raise ConfigError(
                f"train='lora:{rank}' trains nothing: the backbone has no linear layer; use 'all', 'norms' or 'last:N'"
            )
        largest = max(min(weight.shape) for weight in found.values())
        if rank > largest:
            raise ConfigError(
                f"train='lora:{rank}' is too much: no linear layer of the backbone has a rank above {largest}; use "
                f"'lora:{largest}' or less"
            )
        self.names = list(found)
        ranks = [min(rank, *weight.shape) for weight in found.values()]
        shapes = [weight.shape for weight in found.values()]
        self.down = nn.ParameterList(torch.empty(r, shape[1]) for r, shape in zip(ranks, shapes, strict=True))
        self.up = nn.ParameterList(torch.zeros(shape[0], r) for r, shape in zip(ranks, shapes, strict=True))
        for factor in self.down:
            nn.init.kaiming_uniform_(factor, a=math.sqrt(5))  # as the weights of nn.Linear

    def weights(self, original: nn.Module) -> dict[str, Tensor]:
        """The changed weights W₀ + B A by name, where ``original`` has the weights W₀; a gradient reaches A and B."""
        with torch.autocast(self.up[0].device.type, enabled=False):
            pairs = zip(self.names, self.down, self.up, strict=True)
            return {name: original.get_parameter(name) + up @ down for name, down, up in pairs}

    def factors(self, network: nn.Module) -> dict[nn.Parameter, list[nn.Parameter]]:
        """A and B of each weight of the network that has any."""
        return {network.get_parameter(name): [self.down[i], self.up[i]] for i, name in enumerate(self.names)}


def _linear(network: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Weights of linear layers by name, one that layers share once; frozen ones are left out."""
    names = {parameter: name for name, parameter in network.named_parameters()}
    for module in network.modules():
        for kind, name in WEIGHTS:
            weight = getattr(module, name, None) if isinstance(module, kind) else None
            if isinstance(weight, nn.Parameter) and weight.requires_grad:
                yield names[weight], weight
