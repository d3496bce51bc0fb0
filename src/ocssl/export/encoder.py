"""An encoder by itself: images in, features out, without the learner.

It lies in a folder that is replaced in one atomic step (see :mod:`ocssl.checkpoint`), so that a learner can publish it
again and again while other processes load it.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ocssl import checkpoint
from ocssl.errors import CheckpointError, ConfigError, OcsslError
from ocssl.image_batch import Images, as_uint8, check_batch
from ocssl.imaging import Fit, PixelRange, check_pixel_range
from ocssl.learner import Learner
from ocssl.nn import build_backbone
from ocssl.nn.backbones import evaluating
from ocssl.options import Options
from ocssl.pretrained import (
    backbone_options,
    facts_of,
    is_pretrained,
    open_source,
    published_version,
    read_encoder,
    read_weights,
)
from ocssl.version import __version__

KIND = "encoder"


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
        batch = check_batch(batch)
        pixels, chunks = as_uint8(images, self.image_size, self.fit, self.pixel_range), []
        with evaluating(self):
            for chunk in pixels.split(batch):
                scaled = chunk.to(self.mean.device).float() / 255
                chunks.append(self(scaled.to(self.mean.dtype)).float().cpu())  # half() and double() change the type
        return torch.cat(chunks).numpy()

    @property
    def fit(self) -> Fit:
        """How images that are not square become squares; see :func:`ocssl.imaging.decode`."""
        fit: Fit = self.facts.get("fit", "crop")
        return fit

    @property
    def pixel_range(self) -> PixelRange | None:
        """Black and white of images with more than 8 bits; None: the full range."""
        return check_pixel_range(self.facts.get("pixel_range"))

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
    state = learner.train_state
    return with_facts(network, state.encoder.feature_dim, facts).to(state.device)


def with_facts(backbone: nn.Module, feature_dim: int, facts: Mapping[str, Any]) -> FrozenEncoder:
    """An encoder with the image size, mean and std of its facts."""
    return FrozenEncoder(backbone, feature_dim, facts["image_size"], facts["mean"], facts["std"], facts)


def publish(encoder: Learner | FrozenEncoder, path: str | Path, *, sources: Mapping[str, int] | None = None) -> int:
    """Write an encoder to a folder, replacing the one there in one step.

    Args:
        encoder: that of a learner, or a copy of it.
        sources: what it was learned from, with the number of images; kept in ``facts``.

    Returns:
        the version, one more than that of the encoder there before.
    """
    version = published_version(path) + 1
    more = {"version": version, "sources": dict(sources or {})}
    if isinstance(encoder, FrozenEncoder):
        checkpoint.write(path, KIND, encoder.facts | more, encoder.backbone.state_dict())
        return version
    with encoder.lock():
        checkpoint.write(path, KIND, _facts_of(encoder) | more, encoder.network.state_dict())
    return version


def is_published(encoder: FrozenEncoder, path: str | Path) -> bool:
    """Whether a folder holds this very encoder already."""
    try:
        facts, tensors = read_encoder(Path(path))
    except OcsslError:
        return False
    own = {name: value for name, value in encoder.facts.items() if name not in ("version", "sources")}
    weights = encoder.backbone.state_dict()
    if weights.keys() != tensors.keys() or own != {name: facts.get(name) for name in own}:
        return False
    return all(torch.equal(weights[name].cpu(), tensor) for name, tensor in tensors.items())


def load(path: str | Path, *, backbone: nn.Module | None = None, device: str = "cpu") -> FrozenEncoder:
    """An encoder from a published folder, a state folder of ``ocssl learn``, a run, a saved learner, or a
    ``.safetensors`` file that ocssl exported; or a pretrained network by its name.

    Args:
        path: of the encoder; where nothing is there, ``timm:NAME``, ``hf-hub:NAME`` or ``efficientnet-lite0``.
        backbone: a module of the same architecture; needed if the learner was built on a module of your own.

    While a learner writes, the earlier or the later encoder is loaded, never a mixture.
    """
    if is_pretrained(str(path)) and not os.path.lexists(path):
        return _pretrained(str(path)).to(device)
    facts, tensors = read_encoder(Path(path))
    spec, size = facts["backbone"] if backbone is None else backbone, facts["image_size"]
    if spec is None:
        raise CheckpointError(f"'{path}' was learned with a backbone of your own; pass it as backbone=")
    options = None
    if isinstance(spec, str):
        options = backbone_options(facts | {"backbone": spec})
        _check_shapes(path, spec, size, options, tensors)
    network, width = build_backbone(spec, size, options)
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(f"'{path}' does not fit the backbone: {' '.join(str(error).split())}") from error
    return with_facts(network, width, facts).to(device)


def _pretrained(name: str) -> FrozenEncoder:
    """A network as it was trained elsewhere, for whole images of its own size."""
    known = open_source(name).settings
    if not {"image_size", "mean", "std"} <= known.keys():
        raise ConfigError(f"'{name}' does not say what images it takes; begin a learner with it, ocssl learn --from")
    network, width = build_backbone(known["backbone"], known["image_size"])
    read_weights(name, network, known["backbone"], known["image_size"])
    facts = facts_of({**known, "fit": "squash", "weights": name}, seen=0, cbp=0, ocssl=__version__)
    return with_facts(network, width, facts)


def _check_shapes(path: object, name: str, size: int, options: Options | None, tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights of other shapes than the backbone has before it takes memory, any amount of it."""
    try:
        with torch.device("meta"):
            expected = build_backbone(name, size, options)[0].state_dict()
    except NotImplementedError:  # a backbone that cannot be built without memory
        return
    except (RuntimeError, TypeError, OverflowError) as error:
        raise CheckpointError(f"'{path}' does not fit the backbone: {' '.join(str(error).split())[:200]}") from error
    for place, tensor in tensors.items():
        if place in expected and expected[place].shape != tensor.shape:
            found, wanted = tuple(tensor.shape), tuple(expected[place].shape)
            raise CheckpointError(f"'{path}' does not fit the backbone: {place} is {found}, not {wanted}")


def _facts_of(learner: Learner) -> dict[str, Any]:
    return facts_of(learner.config.to_dict(), seen=learner.seen, cbp=learner.budget.spent, ocssl=__version__)
