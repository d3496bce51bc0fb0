"""Backbones by name: ``resnet18``, ``convnet``, a model of timm as ``timm:NAME``, ``module:factory``, or a module.

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
with ``NAME`` as a third argument. ``mynet:make`` is what ``make()`` of the module ``mynet`` returns.

A class may say more, for pretrained weights: ``inputs``, an :class:`InputSpec`; ``weights_file()``, the path of weights
in an installed package; ``options_from(tensors)``, the settings with which a state dict fits.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ocssl import plugins
from ocssl.errors import ConfigError, missing_extra
from ocssl.options import Options
from ocssl.registry import Registry, unknown


@dataclass(frozen=True)
class InputSpec:
    """What a pretrained network expects of its images.

    Attributes:
        image_size: side of the images that it was trained on; None where that is not known.
        mean, std: of each channel, for the normalisation.
        fixed: it takes no other size.
    """

    image_size: int | None
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    fixed: bool = False


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


def is_factory(name: object) -> bool:
    """Whether a name has the form ``module:factory`` and no other meaning.

    >>> is_factory("mylab.nets:make"), is_factory("timm:resnet18"), is_factory("resnet18:50")
    (True, False, False)
    """
    form = r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*"
    return isinstance(name, str) and re.fullmatch(form, name) is not None and not name.startswith("timm:")


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
    return module, getattr(module, "feature_dim", None) or _measured_width(module, image_size, name)


def _find(name: str) -> Any:
    """The registered class of a name."""
    if not isinstance(name, str):
        raise ConfigError(f"backbone must be a name or a module, not {name!r}")
    entry, colon, model = name.partition(":")
    if entry + colon in registry and bool(colon) == bool(model):
        return registry.get(entry + colon)
    if is_factory(name):
        make = factory(name)
        return lambda options, image_size, attribute: make()
    raise unknown("backbone", name, [*registry.names(), "resnet18-w16", "convnet-w8", "timm:NAME", "module:factory"])


def factory(name: str) -> Callable[[], nn.Module]:
    """The callable ``module:factory``. The module is imported from Python's path and noted as a plugin.

    Files of learners may name one, so what Python itself brings is refused, and so are callables of other modules.
    """
    module, _, attribute = name.partition(":")
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise ConfigError(f"backbone '{name}' is of Python's own library; name a module of yours")
    if (origin := plugins.explain(f"backbone {name}")) and module not in sys.modules:
        raise ConfigError(origin)
    try:
        made = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:
        raise ConfigError(
            f"cannot import '{module}' for backbone '{name}': {plugins.reason(error)}; correct it, or put its folder "
            "on PYTHONPATH"
        ) from error
    home = str(getattr(made, "__module__", ""))
    if not callable(made) or home.partition(".")[0] != module.partition(".")[0]:
        raise ConfigError(f"module '{module}' defines no function or class '{attribute}' for a backbone")
    plugins.note(f"backbone {name}", module)

    def make() -> nn.Module:
        try:
            module = made()
        except Exception as error:
            raise ConfigError(f"backbone '{name}' cannot be made: {plugins.reason(error)}") from error
        if not isinstance(module, nn.Module):
            raise ConfigError(f"backbone '{name}' must return a torch module, not {type(module).__name__}")
        return module

    return make


# ---------------------------------------------------------------------- timm


def import_timm() -> Any:
    """The package timm; one sentence where it is missing, or beside a torch with which it cannot be imported."""
    try:
        import timm
    except Exception as error:  # e.g. a RuntimeError of torchvision, beside another build of torch
        if isinstance(error, ModuleNotFoundError) and error.name == "timm":
            raise missing_extra("timm", "timm", "timm backbones", _timm_command()) from error
        raise ConfigError(
            f"timm is installed but cannot be imported beside torch {torch.__version__} ({plugins.reason(error)}); "
            f"try {_timm_command()}"
        ) from error
    return timm


def _timm_command() -> str:
    """How to install timm and the torchvision of the installed torch, which stays as it is."""
    version, _, build = torch.__version__.partition("+")
    found = re.match(r"2\.(\d+)\.(\d+)", version)
    vision = f"torchvision==0.{int(found[1]) + 15}.{found[2]}" if found else "torchvision"
    index = f" --extra-index-url https://download.pytorch.org/whl/{build}" if build else ""
    return f"pip install --no-deps timm huggingface_hub {vision}{f'+{build}' if build and found else ''}{index}"


def timm_model(model: str, image_size: int | None, *, pretrained: bool = False) -> nn.Module:
    """A model of timm without its classifier.

    Args:
        model: a name of timm, or ``hf-hub:NAME``.
        image_size: for models that take one size only; None: their own.
        pretrained: with its weights, which timm downloads.
    """
    timm = import_timm()
    try:
        known = None if ":" in model else timm.get_pretrained_cfg(model)
        fixed = image_size is not None and getattr(known, "fixed_input_size", False)
        more = {"img_size": image_size} if fixed else {}
        module: nn.Module = timm.create_model(model, pretrained=pretrained, num_classes=0, **more)
    except Exception as error:
        size = f" for images of {image_size}×{image_size}" if image_size else ""
        raise ConfigError(f"timm model '{model}' cannot be made{size}: {plugins.reason(error)}") from error
    return module


@register("timm:", listed=False)
def timm(options: Options, image_size: int, model: str) -> nn.Module:
    """A model of timm, without its classifier and with random weights.

    Only models that are part of timm: it also takes names such as ``hf-hub:…`` and ``local-dir:…``, with which a saved
    file could reach the network or a folder.
    """
    package = import_timm()
    if not re.fullmatch(r"\w+(\.\w+)?", model) or not package.is_model(model.partition(".")[0]):
        raise unknown("timm backbone", model, package.list_models(f"*{re.sub(r'[^a-z]', '', model)[:6]}*")[:5])
    return timm_model(model, image_size)


def inputs_of(module: nn.Module) -> InputSpec | None:
    """What a module says that it expects, in ``inputs`` or, as models of timm do, in ``pretrained_cfg``; else None.

    >>> network = nn.Flatten()
    >>> network.pretrained_cfg = {"input_size": (3, 96, 96), "mean": (0.5, 0.5, 0.5), "std": (0.2, 0.2, 0.2)}
    >>> inputs_of(network)
    InputSpec(image_size=96, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2), fixed=False)
    """
    said = getattr(module, "inputs", None)
    if isinstance(said, InputSpec):
        return said
    known = getattr(module, "pretrained_cfg", None)
    if not isinstance(known, dict) or not {"mean", "std"} <= known.keys():
        return None
    channels, *sides = known.get("input_size") or (3,)
    if channels != 3 or len({*sides}) > 1:
        raise ConfigError(f"the network takes images of {known['input_size']}, not of 3 channels and a square")
    (red, green, blue), (r, g, b) = known["mean"], known["std"]
    fixed = bool(known.get("fixed_input_size", False))
    return InputSpec(sides[0] if sides else None, (red, green, blue), (r, g, b), fixed)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode; after it, the whole module is in the mode that it was in."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


def _measured_width(module: nn.Module, image_size: int, name: str = "of your own") -> int:
    """Feature width of any module, measured with one black image in evaluation mode."""
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    try:
        with torch.no_grad(), evaluating(module):
            features = module(torch.zeros(1, 3, image_size, image_size, device=device))
    except (RuntimeError, AssertionError, ValueError) as error:
        if device.type == "meta" or "memory" in str(error):
            raise
        name = name if name == "of your own" else f"'{name}'"
        why = plugins.reason(error)
        raise ConfigError(f"backbone {name} takes no images of {image_size}×{image_size}: {why}") from error
    if not isinstance(features, torch.Tensor) or features.ndim != 2:
        shape = tuple(features.shape) if isinstance(features, torch.Tensor) else type(features).__name__
        raise ConfigError(f"the backbone must map images (n, 3, s, s) to vectors (n, d); one image gave {shape}")
    return features.shape[1]
