"""Weights to start from: files, encoders of ours, models of timm, factories, and packages that carry weights.

Nothing of a file is executed, and a file that does not fit is refused with the first name in which it differs. The
weights are read once, when a learner begins; its state has them afterwards.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BaseModel, Field, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ocssl import checkpoint
from ocssl.common.checkpoints import CheckpointFolder
from ocssl.common.console import warn
from ocssl.common.files import not_a_path, read_file
from ocssl.errors import CheckpointError, ConfigError, first_misfit
from ocssl.imaging import Fit
from ocssl.nn import backbones
from ocssl.nn.backbones import InputSpec, inputs_of, is_factory, timm_model
from ocssl.options import Options, validate
from ocssl.plugins import name_plugins, reason, recall_saved

Tensors = Mapping[str, Tensor]

PICKLES = (".pth", ".pt", ".bin", ".ckpt")
WRAPPERS = ("state_dict", "model", "model_state_dict")
"""Names under which training programs store a state dict, beside other things."""
CLASSIFIERS = ("fc.", "_fc.", "classifier.", "head.")
"""Names of layers that a backbone does without."""
NONE = "none"
"""The source of a start from zero."""
HUB_WEIGHTS = "model.safetensors"
"""The file of weights in a folder that was exported for the Hub."""


@dataclass(frozen=True)
class Source:
    """Weights, and what is known of the network that they belong to.

    Attributes:
        name: as the user wrote it.
        tensors: the weights by name, for images of a given size.
        settings: of a learner that begins with them: ``backbone`` and its options, ``image_size``, ``mean``, ``std``,
            ``fit``, as far as the source says them.
        fixed: whether the network takes images of that size only.
    """

    name: str
    tensors: Callable[[int], Tensors] = field(repr=False)
    settings: dict[str, Any]
    fixed: bool = False


def open_source(name: str, backbone: str | None = None) -> Source:
    """The weights that a text names.

    Args:
        name: a state dict (``.safetensors``, ``.pth``, ``.pt``, ``.bin``, ``.ckpt``), an encoder, state or run of ours,
            ``timm:NAME``, ``hf-hub:NAME``, ``module:factory``, or a backbone whose weights a package carries.
        backbone: its name, where the caller chose one; a state dict needs it.

    >>> open_source("holiday.docx")
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: there are no weights at 'holiday.docx'; name a .safetensors or .pth file, an encoder \
folder, timm:NAME, hf-hub:NAME, module:factory, or efficientnet-lite0
    """
    if is_pretrained(name):
        source = _of_timm(name) if ":" in name else _of_package(name)
    elif _exists(name):
        source = _of_path(name, backbone)
    elif is_factory(name):
        source = _of_factory(name)
    else:
        raise ConfigError(
            f"there are no weights at '{name}'; name a .safetensors or .pth file, an encoder folder, timm:NAME, "
            "hf-hub:NAME, module:factory, or efficientnet-lite0"
        )
    known = source.settings.get("backbone")
    names = [backbones.split_name(one)[0] for one in (known, backbone) if one is not None]
    if len({*names}) > 1:
        raise ConfigError(f"'{name}' has the weights of backbone '{known}', not of '{backbone}'; leave one of them out")
    return source


def is_pretrained(name: str) -> bool:
    """Whether a name is that of a network with weights, by timm or by a package.

    >>> is_pretrained("timm:resnet18"), is_pretrained("efficientnet-lite0"), is_pretrained("resnet18")
    (True, True, False)
    """
    packaged = name in backbones.registry and hasattr(backbones.registry.get(name), "weights_file")
    return packaged or name.startswith(("timm:", "hf-hub:"))


def read_weights(name: str, network: nn.Module, backbone: str | None, image_size: int) -> None:
    """Give a network the weights of a source; it stays as it was where they do not fit.

    Args:
        backbone: the network's name; None for a module of the user's own.
    """
    if name == backbone and is_factory(name):
        return  # the factory made it with its weights
    source = open_source(name, backbone)
    network.load_state_dict(fitting(source.tensors(image_size), network.state_dict(), name, backbone))


def fitting(tensors: Tensors, expected: Tensors, name: str, backbone: str | None) -> dict[str, Tensor]:
    """Those of some tensors that a network has, by its own names, each of its shape.

    Names may all begin with a prefix such as ``module.``; a classifier is left out. The first name that is missing, of
    another shape or unknown to the network is refused.

    >>> expected = nn.Linear(2, 1, bias=False).state_dict()
    >>> list(fitting({"module.weight": torch.ones(1, 2)}, expected, "w.pth", None))
    ['weight']
    >>> fitting({"weight": torch.ones(1, 3)}, expected, "w.pth", "linear")
    Traceback (most recent call last):
    ...
    ocssl.errors.CheckpointError: 'w.pth' does not fit backbone 'linear': weight is (1, 3), not (1, 2)
    """
    prefix, *others = _prefixes(tensors, expected)
    if others:
        copies = ", ".join(f"'{one}'" for one in (prefix, *others))
        warn(f"'{name}' has the network more than once, its names begin with {copies}; the first is taken")
    found = checkpoint.sub_state(tensors, prefix)
    if misfit := _misfit(found, expected, prefix):
        network = f"backbone '{backbone}'" if backbone else "your backbone"
        raise CheckpointError(f"'{name}' does not fit {network}: {misfit}")
    return {key: found.get(key, wanted) for key, wanted in expected.items()}


def _misfit(found: Tensors, expected: Tensors, prefix: str) -> str | None:
    """What is wrong with the first tensor that does not fit; None where all fit."""
    for key, wanted in expected.items():
        if key not in found:
            if not key.endswith("num_batches_tracked"):  # files of early versions of torch have none
                return f"it has no {prefix}{key}"
        elif found[key].shape != wanted.shape:
            return f"{prefix}{key} is {tuple(found[key].shape)}, not {tuple(wanted.shape)}"
        elif wanted.is_floating_point() and not found[key].is_floating_point():
            return f"{prefix}{key} is {found[key].dtype}, not floating point"
        elif found[key].is_floating_point() and not bool(torch.isfinite(found[key]).all()):
            return f"{prefix}{key} holds NaN or infinity"
    for key in found:
        if key not in expected and not key.startswith(CLASSIFIERS):
            return f"it has {prefix}{key}, which the network has not"
    return None


def describe_network(source: Source) -> str:
    """The network of a source, and what it expects of its images, as JSON; :func:`read_network` reads it."""
    known = source.settings
    if "backbone" not in known:
        raise ConfigError(f"'{source.name}' does not say its backbone; a teacher is an encoder, state or run of ours")
    if is_factory(known["backbone"]):
        raise ConfigError(f"'{source.name}' is a network of '{known['backbone']}'; a teacher is one of ocssl or timm")
    kept = {name: value for name, value in known.items() if name not in ("fit", "pixel_range")}
    return json.dumps(kept, sort_keys=True)


def read_network(text: str) -> dict[str, Any]:
    """The network that :func:`describe_network` wrote.

    >>> read_network('{"backbone": "mynet:make"}')
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: teacher_network is not what taught_by gives; leave it out
    """
    try:
        known = json.loads(text)
        recorded = _Recorded.model_validate(known)
        if recorded.backbone is None or is_factory(recorded.backbone) or 0 in recorded.std:
            raise ValueError(recorded.backbone)
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError("teacher_network is not what taught_by gives; leave it out") from error
    return dict(known)


def backbone_options(known: Mapping[str, Any]) -> Options:
    """The settings of a named backbone among others."""
    name, width = backbones.split_name(known["backbone"])
    kind = backbones.options_of(name)
    return validate(kind, {option: known[option] for option in kind.model_fields if option in known} | width)


def label(name: str | None) -> str | None:
    """A source as others may see it: a path without its folders.

    >>> label("/home/me/vit.pth"), label("timm:resnet18"), label(None)
    ('vit.pth', 'timm:resnet18', None)
    """
    if name is None or name.startswith(("timm:", "hf-hub:")) or is_factory(name):
        return name
    return Path(name).name or name


def installed() -> str | None:
    """A backbone whose weights an installed package carries; None where there is none.

    >>> installed() in (None, "efficientnet-lite0")
    True
    """
    for name, kind in backbones.registry.parts().items():
        if hasattr(kind, "weights_file"):
            try:
                kind.weights_file()
            except ImportError:
                continue
            return name
    return None


def import_factories(settings: Mapping[str, Any]) -> None:
    """Import the modules of ``module:factory`` that a user named on the command line, also from the current folder."""
    for name in ("backbone", "weights", "taught_by"):
        text = settings.get(name)
        if isinstance(text, str) and is_factory(text) and not _exists(text):
            name_plugins([text.partition(":")[0]], f"{name} '{text}'", here=True)


# ---------------------------------------------------------------------- kinds of sources


def _of_timm(name: str) -> Source:
    """A model of timm with its own weights; one of the hub by the architecture that it is."""
    model = name.removeprefix("timm:")
    if name.startswith("timm:"):
        backbones.build_backbone(name, 224)  # refuses what is no model of timm
    module = timm_model(model, None, pretrained=True)
    known = getattr(module, "pretrained_cfg", None) or {}
    architecture = model if name.startswith("timm:") else known.get("architecture")
    if not architecture or not any(known.get(key) for key in ("url", "hf_hub_id", "file", "state_dict")):
        raise ConfigError(f"timm has no weights for '{model}'; ocssl list backbones names others")

    def tensors(image_size: int) -> Tensors:
        return timm_model(model, image_size, pretrained=True).state_dict()

    return _of_network(name, tensors, f"timm:{architecture}", inputs_of(module))


def _of_package(name: str) -> Source:
    kind = backbones.registry.get(name)
    file = kind.weights_file()
    return _of_network(name, lambda _: _read_file(file), name, getattr(kind, "inputs", None))


def _of_factory(name: str) -> Source:
    module = backbones.factory(name)()
    return _of_network(name, lambda _: module.state_dict(), name, inputs_of(module))


def _of_network(name: str, tensors: Callable[[int], Tensors], backbone: str, expects: InputSpec | None) -> Source:
    """The weights of a named backbone that may say what it expects of its images."""
    fixed = expects is not None and expects.fixed
    return Source(name, tensors, {"backbone": backbone} | expected_settings(expects), fixed)


def _of_path(name: str, backbone: str | None) -> Source:
    path = Path(os.path.expanduser(name))
    if path.is_dir() or (path.suffix == ".safetensors" and path.is_file() and _facts(path) is not None):
        return _of_encoder(name, path)
    tensors = _read_file(path)
    settings: dict[str, Any] = {}
    entry, width = backbones.split_name(backbone) if backbone is not None else ("", {})
    if entry in backbones.registry:
        kind = backbones.registry.get(entry)
        settings |= expected_settings(getattr(kind, "inputs", None))
        if hasattr(kind, "options_from"):
            prefix = _prefixes(tensors, kind().state_dict())[0]
            settings |= kind.options_from(checkpoint.sub_state(tensors, prefix)) | width
    return Source(name, lambda _: tensors, settings)


def _of_encoder(name: str, path: Path) -> Source:
    facts, tensors = read_encoder(path)
    if facts["backbone"] is None:
        raise ConfigError(f"'{name}' was learned with a backbone of your own; name its factory as module:factory")
    options = backbones.options_of(facts["backbone"]).model_fields
    kept = ("backbone", "image_size", "mean", "std", "fit", "pixel_range", *options)
    settings = {"fit": "crop"} | {key: facts[key] for key in kept if facts.get(key) is not None}
    short, width = backbones.split_name(settings["backbone"])
    return Source(name, lambda _: tensors, settings | width | {"backbone": short}, fixed=True)


def expected_settings(spec: InputSpec | None) -> dict[str, Any]:
    """What a network expects of its images, as settings of a learner.

    >>> expected_settings(InputSpec(None, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2)))
    {'mean': (0.5, 0.5, 0.5), 'std': (0.2, 0.2, 0.2)}
    """
    if spec is None:
        return {}
    size = {} if spec.image_size is None else {"image_size": spec.image_size}
    return {**size, "mean": spec.mean, "std": spec.std}


def _exists(name: str) -> bool:
    try:
        return os.path.lexists(os.path.expanduser(name))
    except (OSError, ValueError) as error:
        raise ConfigError(not_a_path(name, error)) from error


# ---------------------------------------------------------------------- state dicts


def _tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    try:
        with safe_open(path, "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - it is no dict
    except (OSError, SafetensorError, ValueError) as error:
        raise CheckpointError(f"'{path}' cannot be read as safetensors: {error}") from error


def _read_file(path: Path) -> Tensors:
    """The tensors of a file of any kind that is known; nothing of it is executed."""
    if not path.is_file():
        raise CheckpointError(f"'{path}' is not a regular file")
    if path.suffix == ".safetensors":
        return _tensors(path)
    if path.suffix not in PICKLES:
        raise CheckpointError(
            f"'{path}' is no file of weights; names of such end in .safetensors, {', '.join(PICKLES)}"
        )
    try:
        with warnings.catch_warnings(action="ignore"):  # of TorchScript; what is wrong is said below
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # truncated and foreign files raise almost anything
        if "weights_only" in str(error) or "Unsupported" in str(error):
            why = "it holds more than tensors, and running its code is refused; save its state_dict() alone"
        else:
            why = f"torch.load fails with {reason(error)}"
        raise CheckpointError(f"'{path}' cannot be read as weights: {why}") from error
    for wrapper in WRAPPERS:
        if isinstance(found, Mapping) and isinstance(found.get(wrapper), Mapping):
            found = found[wrapper]
    entries = found.items() if isinstance(found, Mapping) else ()
    tensors = {str(key): value for key, value in entries if isinstance(value, Tensor)}
    if not tensors:
        raise CheckpointError(f"'{path}' holds no tensors by name")
    return tensors


def _prefixes(tensors: Tensors, expected: Tensors) -> list[str]:
    """What the names of a network's tensors begin with among others, once for each copy; "" where nothing fits."""
    first = next(iter(expected), "")
    candidates = [key.removesuffix(first) for key in tensors if key == first or key.endswith(f".{first}")]
    found = {prefix: sum(prefix + key in tensors for key in expected) for prefix in ("", *candidates)}
    most = max(found.values())
    return [prefix for prefix, count in found.items() if count == most] if most else [""]


# ---------------------------------------------------------------------- encoders of ours

_Count = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
_Channels = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=3, max_length=3)]


class _Recorded(BaseModel):
    """Types and ranges of the facts that code relies on, as far as they are there."""

    backbone: str | None = None
    image_size: Annotated[int, Field(ge=1, le=2**16, strict=True)] = 1
    mean: _Channels = []
    std: _Channels = []
    fit: Fit = "crop"
    pixel_range: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    seen: _Count = 0
    cbp: _Count = 0
    version: _Count = 0
    sources: dict[str, _Count] = {}


def read_encoder(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Facts and weights of a published encoder, a state, a run, a saved learner or an exported file.

    Older files hold some settings in a group of their own.
    """
    try:
        facts, tensors = _found(path)
        _Recorded.model_validate(facts)
        for name in ("backbone", "image_size", "mean", "std"):
            facts[name]
    except ValidationError as error:
        raise CheckpointError(f"'{path}' does not fit this version of ocssl: {first_misfit(error)}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"'{path}' does not fit this version of ocssl: {error}") from error
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(not_a_path(path, error)) from error
    return facts, tensors


def published_version(path: str | Path) -> int:
    """The version of the encoder in a folder, without reading its weights; 0 when there is none.

    >>> published_version("nowhere")
    0
    """
    index = Path(path) / "encoder.json"
    try:
        return _Recorded.model_validate(json.loads(read_file(index))["facts"]).version
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"'{index}' is not the index of a published encoder: {error!r}") from error


def facts_of(settings: Mapping[str, Any], **counts: Any) -> dict[str, Any]:
    """What an encoder records of its learner, as JSON has values: every setting, without folders, and counts."""
    named = {name: label(settings[name]) for name in ("weights", "taught_by") if name in settings}
    facts: dict[str, Any] = json.loads(json.dumps({**settings, **named, **counts}))
    return facts


def _found(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if (path / HUB_WEIGHTS).is_file():  # a folder that was exported for the Hub
        path = path / HUB_WEIGHTS
    if path.is_file():
        facts = _facts(path)
        if facts is None:
            raise CheckpointError(
                f"'{path}' does not say what network it is of; give the folder of its run, or a file of ocssl export"
            )
        tensors = _tensors(path)
    else:
        folder, kind = _find(path)
        facts, tensors = checkpoint.read(folder, kind)
        if kind == "learner":
            recall_saved(facts.get("plugins"), f"'{folder}'")
            settings = facts["config"] if "config" in facts else facts["parameters"]
            tensors = checkpoint.sub_state(tensors, facts.get("deployed", "encoder.backbone."))
            facts = facts_of(settings, seen=facts["seen"], cbp=facts["budget"]["spent"])
    return facts.pop("settings", {}) | facts, tensors


def _facts(path: Path) -> dict[str, Any] | None:
    """What ocssl wrote into a safetensors file that it exported; None for a file of others."""
    try:
        with safe_open(path, "pt") as file:
            said = (file.metadata() or {}).get("ocssl")
        facts = None if said is None else json.loads(said)
    except (OSError, ValueError, SafetensorError, RecursionError) as error:
        raise CheckpointError(f"'{path}' is not a safetensors file that ocssl exported: {error}") from error
    if facts is not None and not isinstance(facts, dict):
        raise CheckpointError(f"'{path}' is not a safetensors file that ocssl exported: it has no facts by name")
    return facts


def _find(path: Path) -> tuple[Path, str]:
    """The folder of the encoder, and whether it lies there by itself or inside a saved learner."""
    for folder in (path, path / "encoder"):
        if os.path.lexists(folder / "encoder.json"):  # also a link to nowhere: reading it says so
            return folder, "encoder"
    newest = CheckpointFolder(path / "checkpoints").complete()[-1:]
    for folder in (path, path / "learner", *(saved / "learner" for saved in newest)):
        if (folder / "learner.json").exists():
            return folder, "learner"
    raise CheckpointError(
        f"there is no encoder in '{path}': neither a published one, nor a saved learner, nor a run's checkpoint"
    )
