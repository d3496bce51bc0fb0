"""Which weights of a network are trained: all, those of its norms, those of its last blocks, or none of its own."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from ocssl.errors import ConfigError

NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
CONTAINERS = (nn.Sequential, nn.ModuleList)


def blocks(network: nn.Module) -> list[list[nn.Parameter]]:
    """The parameters of a network block by block, in the order in which its modules were made.

    Lists of modules, and a module that is the only one with parameters, are looked into; every other child is a block.
    A norm belongs to the block before it, and the network's own parameters belong to the first block.

    >>> network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    >>> [len(block) for block in blocks(network)]
    [4, 2, 2]
    """
    found: list[list[nn.Parameter]] = []
    own = list(network.parameters(recurse=False))
    children = [child for child in network.children() if any(True for _ in child.parameters())]
    for child in children:
        if type(child) in CONTAINERS or (len(children) == 1 and not own and not isinstance(child, NORMS)):
            inner = blocks(child)
        else:
            inner = [list(child.parameters())]
        if found and isinstance(child, NORMS):
            found[-1] += inner[0]
        else:
            found += inner
    if own:
        found = [own + found[0], *found[1:]] if found else [own]
    return found


def select_trained(network: nn.Module, trained: str) -> None:
    """Freeze all parameters of a network that are not chosen.

    Args:
        trained: ``"all"``; ``"norms"``: scales and shifts of norms; ``"last:N"``: the last N :func:`blocks`;
            ``"lora:N"``: none, because :class:`~ocssl.nn.lora.LowRank` has what learns.

    >>> network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    >>> select_trained(network, "last:1")
    >>> [weight.requires_grad for weight in network.parameters()]
    [False, False, True, True]
    """
    if trained == "all":
        return
    if trained == "norms":
        norms = (module for module in network.modules() if isinstance(module, NORMS))
        kept = {parameter for norm in norms for parameter in norm.parameters()}
        if not kept:
            raise ConfigError("train='norms' trains nothing: the backbone has no norm with weights; use 'all'")
    elif trained.startswith("lora:"):
        kept = set()
    else:
        number, known = int(trained.removeprefix("last:")), blocks(network)
        if number > len(known):
            raise ConfigError(f"train='{trained}' is too much: the backbone has {len(known)} blocks; use 'all'")
        kept = {parameter for block in known[-number:] for parameter in block}
    for parameter in network.parameters():
        parameter.requires_grad_(parameter.requires_grad and parameter in kept)
