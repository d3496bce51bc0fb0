"""An encoder by itself: images in, features out, without the learner.

It lies in a folder that is replaced in one atomic step (see :mod:`ocssl.checkpoint`), so that a learner can publish it
again and again while other processes load it.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BaseModel, Field, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ocssl import checkpoint
from ocssl.common.files import not_a_path, read_file
from ocssl.errors import CheckpointError, ConfigError, unreadable
from ocssl.imaging import Images, as_uint8
from ocssl.learner import Learner
from ocssl.nn import backbones, build_backbone
from ocssl.options import Options, validate
from ocssl.plugins import recall_saved
from ocssl.version import __version__

KIND = "encoder"


_Count = Annotated[int, Field(ge=0, lt=2**63, strict=True)]
_Channels = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=3, max_length=3)]


class _Recorded(BaseModel):
    """Types and ranges of the facts that code here relies on, as far as they are there."""

    backbone: str | None = None
    image_size: Annotated[int, Field(ge=1, le=2**16, strict=True)] = 1
    mean: _Channels = []
    std: _Channels = []
    seen: _Count = 0
    cbp: _Count = 0
    version: _Count = 0
    sources: dict[str, _Count] = {}


class FrozenEncoder(nn.Module):
    """Backbone and normalisation as one network, at first in evaluation mode.

    It is a plain module: put a head on it and fine-tune.

    Args:
        backbone: ``(n, 3, s, s)`` normalised to ``(n, feature_dim)``.
        feature_dim: width of its features.
        image_size: side of the images.
        mean, std: per channel.
        facts: every setting of its learner (``strategy``, ``lr``, …), the images ``seen``, ``cbp``, and for a published
            one ``version`` and ``sources``.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        backbone: nn.Module,
        feature_dim: int,
        image_size: int,
        mean: Sequence[float],
        std: Sequence[float],
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.feature_dim = feature_dim
        self.image_size = image_size
        self.facts = dict(facts or {})
        self.register_buffer("mean", torch.tensor(list(mean)).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(list(std)).view(3, 1, 1), persistent=False)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Images ``(n, 3, s, s)`` in [0, 1] to features ``(n, feature_dim)``."""
        features: Tensor = self.backbone((images - self.mean) / self.std)
        return features

    @torch.no_grad()
    def transform(self, images: Images, *, batch: int = 512) -> np.ndarray:
        """Features ``(n, feature_dim)``, float32, of whatever :meth:`ocssl.Learner.transform` takes."""
        if batch < 1:
            raise ConfigError(f"batch must be a whole number of at least 1, not {batch}")
        device, pixels = self.mean.device, as_uint8(images, self.image_size)
        was_training = self.training
        self.eval()
        try:
            chunks = [self(chunk.to(device).float() / 255).float().cpu() for chunk in pixels.split(batch)]
        finally:
            self.train(was_training)
        return torch.cat(chunks).numpy()

    @property
    def version(self) -> int:
        """How often an encoder was published at its place, this time included."""
        return int(self.facts.get("version", 0))


def of_learner(learner: Learner) -> FrozenEncoder:
    """A copy of the learner's present encoder.

    >>> learner = Learner(backbone="convnet-w8", image_size=8, hidden_dim=8, output_dim=8, device="cpu")
    >>> of_learner(learner).transform(np.zeros((2, 8, 8, 3), dtype=np.uint8)).shape
    (2, 32)
    """
    with learner.lock():
        network, facts = copy.deepcopy(learner.network).float(), _facts_of(learner)
    state, (size, mean, std) = learner.train_state, (facts[name] for name in ("image_size", "mean", "std"))
    return FrozenEncoder(network, state.encoder.feature_dim, size, mean, std, facts).to(state.device)


def publish(learner: Learner, path: str | Path, *, sources: Mapping[str, int] | None = None) -> int:
    """Write the learner's encoder to a folder, replacing the one there in one step.

    Args:
        sources: what it was learned from, with the number of images; kept in ``facts``.

    Returns:
        the version, one more than that of the encoder there before.
    """
    version = published_version(path) + 1
    with learner.lock():
        facts = _facts_of(learner) | {"version": version, "sources": dict(sources or {})}
        checkpoint.write(path, KIND, facts, learner.network.state_dict())
    return version


def published_version(path: str | Path) -> int:
    """The version of the encoder in a folder, without reading its weights; 0 when there is none.

    >>> published_version("nowhere")
    0
    """
    index = Path(path) / f"{KIND}.json"
    try:
        return _Recorded.model_validate(json.loads(read_file(index))["facts"]).version
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"'{index}' is not the index of a published encoder: {error!r}") from error


def load(path: str | Path, *, backbone: nn.Module | None = None, device: str = "cpu") -> FrozenEncoder:
    """An encoder from a published folder, a state folder of ``ocssl learn``, a run, a saved learner, or a
    ``.safetensors`` file that ocssl exported.

    Args:
        backbone: a module of the same architecture; needed if the learner was built on a module of your own.

    While a learner writes, the earlier or the later encoder is loaded, never a mixture.
    """
    try:
        facts, tensors = _found(Path(path))
        _Recorded.model_validate(facts)
        own, size, mean, std = (facts[name] for name in ("backbone", "image_size", "mean", "std"))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise CheckpointError(f"'{path}' does not fit this version of ocssl: {where}: {first['msg']}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"'{path}' does not fit this version of ocssl: {error}") from error
    except OSError as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(not_a_path(path, error)) from error
    spec = own if backbone is None else backbone
    if spec is None:
        raise CheckpointError(f"'{path}' was learned with a backbone of your own; pass it as backbone=")
    options = _backbone_options(spec, facts)
    if isinstance(spec, str):
        _check_shapes(path, spec, size, options, tensors)
    network, width = build_backbone(spec, size, options)
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(f"'{path}' does not fit the backbone: {' '.join(str(error).split())}") from error
    return FrozenEncoder(network, width, size, mean, std, facts).to(device)


def _check_shapes(path: object, name: str, size: int, options: Options | None, tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights of other shapes than the backbone has before it takes memory, any amount of it."""
    try:
        with torch.device("meta"):
            expected = build_backbone(name, size, options)[0].state_dict()
    except (RuntimeError, TypeError, OverflowError, NotImplementedError) as error:
        if isinstance(error, NotImplementedError):  # a backbone that cannot be built without memory
            return
        raise CheckpointError(f"'{path}' does not fit the backbone: {' '.join(str(error).split())[:200]}") from error
    for place, tensor in tensors.items():
        if place in expected and expected[place].shape != tensor.shape:
            found, wanted = tuple(tensor.shape), tuple(expected[place].shape)
            raise CheckpointError(f"'{path}' does not fit the backbone: {place} is {found}, not {wanted}")


def _backbone_options(spec: str | nn.Module, facts: Mapping[str, Any]) -> Options | None:
    """The settings of a named backbone, as the encoder records them."""
    if isinstance(spec, nn.Module):
        return None
    name, width = backbones.split_name(spec)
    kind = backbones.options_of(name)
    return validate(kind, {option: facts[option] for option in kind.model_fields if option in facts} | width)


def _facts_of(learner: Learner) -> dict[str, Any]:
    return _facts(learner.config.to_dict(), learner.seen, learner.budget.spent)


def _facts(settings: Mapping[str, Any], seen: int, cbp: int) -> dict[str, Any]:
    """What an encoder records of its learner, as JSON has values: every setting, images seen, CBP."""
    facts: dict[str, Any] = json.loads(json.dumps({**settings, "seen": seen, "cbp": cbp, "ocssl": __version__}))
    return facts


def _found(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Facts and weights of the encoder at a path; older files hold some settings in a group of their own."""
    if path.is_file():
        facts, tensors = _of_file(path)
    else:
        folder, kind = _find(path)
        facts, tensors = _read(folder, kind)
        if kind == "learner":
            recall_saved(facts.get("plugins"), f"'{folder}'")
            settings = facts["config"] if "config" in facts else facts["parameters"]
            deployed = facts.get("deployed", "encoder.backbone.")
            facts = _facts(settings, facts["seen"], facts["budget"]["spent"])
            tensors = checkpoint.sub_state(tensors, deployed)
    return facts.pop("settings", {}) | facts, tensors


def _find(path: Path) -> tuple[Path, str]:
    """The folder of the encoder, and whether it lies there by itself or inside a saved learner."""
    for folder in (path, path / "encoder"):
        if os.path.lexists(folder / f"{KIND}.json"):  # also a link to nowhere: reading it says so
            return folder, KIND
    numbered = (saved for saved in (path / "checkpoints").glob("[0-9]*") if saved.name.isdecimal())
    checkpoints = sorted(numbered, key=lambda saved: int(saved.name))
    for folder in (path, path / "learner", *(saved / "learner" for saved in checkpoints[-1:])):
        if (folder / "learner.json").exists():
            return folder, "learner"
    raise CheckpointError(f"there is no encoder in '{path}': neither a published one, nor a saved learner, nor a run")


def _read(folder: Path, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    index = folder / f"{kind}.json"
    while True:
        try:
            before = read_file(index)
        except OSError as error:
            raise CheckpointError(unreadable(index, error)) from error
        try:
            return checkpoint.read(folder, kind)
        except (CheckpointError, RuntimeError) as error:  # torch's, for a file that is deleted while it is mapped
            # A newer state may have just replaced the file that the index named.
            if not index.exists() or read_file(index) == before:
                raise CheckpointError(str(error)) from error


def _of_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {})["ocssl"])
            return facts, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
    except (KeyError, ValueError, OSError, SafetensorError, RecursionError) as error:
        raise CheckpointError(f"'{path}' is not a safetensors file that ocssl exported: {error!r}") from error
