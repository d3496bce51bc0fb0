"""What a new live learner starts from: weights, image size, and how its first line says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from ocssl.config import known_names, unless_chosen
from ocssl.data.dataset import IMAGENET_MEAN, IMAGENET_STD
from ocssl.device import pick_device
from ocssl.live.autotune import RECIPE
from ocssl.nn.backbones import inputs_of
from ocssl.pretrained import NONE, installed, open_source
from ocssl.sources import with_source

PRETRAINED_SIZE_CPU = 128
"""Largest images on a CPU for a pretrained network that takes any size: 224 pixels cost three times as much."""


def start_settings(given: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Settings of a new learner, with those that follow from the weights that it starts from.

    Without a backbone and weights, these are the weights of an installed package, if there is one. From zero, parts
    that are not chosen are :data:`~ocssl.live.autotune.RECIPE`. Mean and std are ImageNet's where neither source nor
    module says others. Images are squashed, so that nothing of a picture is cut off; an encoder of ours that saw
    cropped ones goes on with these.

    Args:
        given: settings by name; the weights ``none`` are a start from zero.
        size: of the images, for a network that is trained from zero.

    >>> start_settings({"weights": "none", "backbone": "convnet"}, 48)["image_size"]
    48
    """
    chosen = dict(given)
    module = chosen.pop("backbone") if isinstance(chosen.get("backbone"), nn.Module) else None
    free = module is None and not chosen.keys() & {"weights", "backbone", "taught_by"}
    if free and (found := installed()) is not None:
        chosen["weights"] = found
    if chosen.get("weights") == NONE:
        del chosen["weights"]
    settings = with_source(chosen, module)
    if "image_size" in settings and "image_size" not in given:
        fixed = _one_size(chosen, module)
        if pick_device(str(chosen.get("device", "auto"))).type == "cpu" and not fixed:
            settings["image_size"] = min(settings["image_size"], PRETRAINED_SIZE_CPU)
    if "weights" not in settings:
        settings = {**unless_chosen(RECIPE, settings), **settings}
    read = known_names(settings)
    usual = {"image_size": size, "mean": IMAGENET_MEAN, "std": IMAGENET_STD, "fit": "squash"}
    usual = {name: value for name, value in usual.items() if name in read}
    return usual | settings | ({} if module is None else {"backbone": module})


def _one_size(chosen: Mapping[str, Any], module: nn.Module | None) -> bool:
    """Whether the network to start from takes images of one size only."""
    spec = None if module is None else inputs_of(module)
    if spec is not None and spec.image_size is not None:
        return spec.fixed
    return isinstance(chosen.get("weights"), str) and open_source(chosen["weights"], chosen.get("backbone")).fixed


def network_name(settings: Mapping[str, Any]) -> str:
    """The network of a learner by all its settings, with its width.

    >>> network_name({"backbone": "convnet", "width": 8})
    'convnet-w8'
    """
    width = f"-w{settings['width']}" if "width" in settings else ""
    return f"{settings['backbone'] or 'a network of your own'}{width}"


def described(settings: Mapping[str, Any], by_default: bool) -> str:
    """Size, network and start of a learner, for the first line; ``by_default``: the weights were not asked for.

    >>> described({"image_size": 32, "backbone": "convnet"}, False)
    '32×32 with convnet from zero'
    >>> described({"image_size": 128, "backbone": "resnet18", "weights": "/a/b.pth"}, False)
    '128×128 with resnet18 from the weights /a/b.pth'
    """
    backbone, weights = settings["backbone"], settings.get("weights")
    network = f"your {type(backbone).__name__}" if isinstance(backbone, nn.Module) else backbone
    if weights is None:
        start = "" if isinstance(backbone, nn.Module) or ":" in backbone else " from zero"
    else:
        start = ", pretrained" if weights == backbone else f" from the weights {weights}"
        start += " (--from none starts from zero)" if by_default else ""
    start += f", taught by {settings['taught_by']}" if settings.get("taught_by") else ""
    return f"{settings['image_size']}×{settings['image_size']} with {network}{start}"
