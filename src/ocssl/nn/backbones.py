"""Backbones by name: ``resnet18``, ``convnet``, any model of timm as ``timm:NAME``, or a module.

A backbone is a class with settings in ``Options`` and a constructor ``(options, image_size)``, whose instances map
images ``(n, 3, s, s)`` to vectors ``(n, d)``::

    from ocssl.nn import register_backbone
    from ocssl.options import Options, setting

    @register_backbone("linear")
    class Linear(nn.Sequential):
        class Options(Options):
            width: int = setting(64, "Width of the features.", ge=1)

        def __init__(self, options, image_size):
            super().__init__(nn.Flatten(), nn.Linear(3 * image_size**2, options.width))

``resnet18-w16`` is short for ``resnet18`` with ``width=16``. ``timm:NAME`` is the backbone registered as ``timm:``,
with ``NAME`` as a third argument.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import nn

from ocssl.errors import ConfigError, missing_extra
from ocssl.options import Options
from ocssl.registry import Registry, unknown

registry: Registry[Any] = Registry("backbone", group="ocssl.backbones")
register = registry.register


def split_name(name: str) -> tuple[str, dict[str, int]]:
    """The full form of a backbone's name: the registered name, and the width where the short form gives one.

    >>> split_name("resnet18-w16"), split_name("resnet18"), split_name("timm:resnet50")
    (('resnet18', {'width': 16}), ('resnet18', {}), ('timm:resnet50', {}))
    """
    match = re.fullmatch(r"(.+)-w([1-9]\d*)", name) if isinstance(name, str) else None
    if match and match[1] in registry and name not in registry and "width" in options_of(match[1]).model_fields:
        return match[1], {"width": int(match[2])}
    return name, {}


def options_of(name: str) -> type[Options]:
    """The settings of a backbone.

    >>> [*options_of("resnet18").model_fields]
    ['width', 'stem', 'conv1_init']
    """
    kind: type[Options] = getattr(_find(split_name(name)[0]), "Options", Options)
    return kind


def build_backbone(backbone: str | nn.Module, image_size: int, options: Options | None = None) -> tuple[nn.Module, int]:
    """The network and the width of its features.

    Args:
        backbone: a name, or a module that maps ``(n, 3, s, s)`` to ``(n, d)``.
        image_size: side of the images.
        options: settings of the backbone; None: their defaults, or what the short form of the name says.

    >>> build_backbone("resnet18-w16", image_size=32)[1]
    128
    """
    if isinstance(backbone, nn.Module):
        return backbone, _measured_width(backbone, image_size)
    name, short = split_name(backbone)
    kind = _find(name)
    model = name.split(":", 1)[1:]
    module: nn.Module = kind(options or options_of(name)(**short), image_size, *model)
    return module, getattr(module, "feature_dim", None) or _measured_width(module, image_size)


def _find(name: str) -> Any:
    """The registered class of a name."""
    if not isinstance(name, str):
        raise ConfigError(f"backbone must be a name or a module, not {name!r}")
    entry, colon, model = name.partition(":")
    if entry + colon not in registry or (colon and not model):
        raise unknown("backbone", name, [*registry.names(), "resnet18-w16", "convnet-w8", "timm:NAME"])
    return registry.get(entry + colon)


@register("timm:", listed=False)
def timm(options: Options, image_size: int, model: str) -> nn.Module:
    """A model of timm, without its classifier and with random weights.

    Only models that are part of timm: it also takes names such as ``hf-hub:…`` and ``local-dir:…``, with which a saved
    file could reach the network or a folder.
    """
    try:
        import timm
    except ImportError as error:
        raise missing_extra("timm", "timm", "timm backbones") from error
    if not re.fullmatch(r"\w+(\.\w+)?", model) or not timm.is_model(model.partition(".")[0]):
        raise unknown("timm backbone", model, timm.list_models(f"*{re.sub(r'[^a-z]', '', model)[:6]}*")[:5])
    module: nn.Module = timm.create_model(model, pretrained=False, num_classes=0)
    return module


def _measured_width(module: nn.Module, image_size: int) -> int:
    """Feature width of any module, measured with one black image in evaluation mode."""
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    was_training = module.training
    module.eval()
    with torch.no_grad():
        features = module(torch.zeros(1, 3, image_size, image_size, device=device))
    module.train(was_training)
    if not isinstance(features, torch.Tensor) or features.ndim != 2:
        shape = tuple(features.shape) if isinstance(features, torch.Tensor) else type(features).__name__
        raise ConfigError(f"the backbone must map images (n, 3, s, s) to vectors (n, d); one image gave {shape}")
    return features.shape[1]
