"""An encoder in formats of other programs. Every file is compared with the original before it gets its name.

The networks take images ``(n, 3, s, s)`` in [0, 1], any n, and normalise them themselves; an ONNX file may take bytes
``(n, s, s, 3)`` instead. The state dict for torchvision is of the bare backbone.
"""

from __future__ import annotations

import copy
import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from ocssl.checkpoint import save_tensors
from ocssl.common.files import MARK, atomic_write, check_output, writing
from ocssl.errors import CheckpointError, ConfigError, missing_extra
from ocssl.export.encoder import FrozenEncoder, load
from ocssl.nn import ResNet18
from ocssl.options import validate
from ocssl.registry import Registry

TOLERANCE = 1e-4

Forward = Callable[[Tensor], Tensor]
"""Images ``(n, 3, s, s)`` in [0, 1] to features, as the written file computes them."""

formats = Registry[Callable[[FrozenEncoder, Path], Forward]]("format")


def export(encoder: FrozenEncoder, path: str | Path, to: str, *, uint8: bool = False, force: bool = False) -> float:
    """Write an encoder as ``onnx``, ``torchscript``, ``safetensors`` or ``torchvision``.

    Args:
        uint8: the ONNX network takes pixels as they are, uint8 ``(n, s, s, 3)``.
        force: replace a file that ocssl did not write, too.

    Returns:
        the largest difference between the written file's features and the encoder's own, on random images of several
        batch sizes; more than 1e-4 of their scale is an error, and no file appears.

    >>> import tempfile
    >>> from ocssl import Learner
    >>> from ocssl.export import of_learner
    >>> learner = Learner(backbone="convnet-w8", image_size=8, hidden_dim=8, output_dim=8, device="cpu")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export(of_learner(learner), f"{folder}/encoder.safetensors", "safetensors")
    0.0
    """
    write, target = formats.get(to), Path(path)
    check_uint8(to, uint8)
    check_ending(to, target)
    check_output(path, to, force=force)
    if encoder.mean.dtype != torch.float32:
        raise ConfigError(f"an encoder is exported in float32, and this one is in {encoder.mean.dtype}; load it again")
    encoder = copy.deepcopy(encoder).cpu().eval()  # the caller's may be on a GPU, in training
    difference = 0.0

    def write_checked(draft: Path) -> None:
        nonlocal difference
        forward = to_onnx(encoder, draft, uint8=True) if uint8 else write(encoder, draft)
        difference = _difference(encoder, forward, whole=uint8)
        if not difference <= TOLERANCE:
            raise CheckpointError(f"the encoder as {to} differs from the original by {difference:.2g}; nothing is kept")

    try:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(target, write_checked)
    except (SafetensorError, RuntimeError) as error:  # the latter is torch's for a file that cannot grow
        what = str(error).splitlines()[0].partition("  [Caused by")[0]  # a node of the graph follows
        raise CheckpointError(f"cannot write '{target}': {what}") from error
    return difference


def check_uint8(to: str, uint8: bool) -> None:
    """Refuse bytes for a format whose networks take floating point numbers.

    >>> check_uint8("torchscript", True)
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: only --to onnx takes uint8; leave --uint8 out, or export to onnx
    """
    if uint8 and to != "onnx":
        raise ConfigError("only --to onnx takes uint8; leave --uint8 out, or export to onnx")


def check_ending(to: str, path: Path) -> None:
    """Refuse a file with the ending of another format.

    >>> check_ending("onnx", Path("encoder.pt"))
    Traceback (most recent call last):
    ...
    ocssl.errors.ConfigError: 'encoder.pt' has the ending of torchscript; name it .onnx, or export --to torchscript
    """
    for other, ending in SUFFIXES.items():
        if to in SUFFIXES and other != to and path.suffix.lower() == ending:
            raise ConfigError(f"'{path}' has the ending of {other}; name it {SUFFIXES[to]}, or export --to {other}")


def preprocess(encoder: FrozenEncoder, uint8: bool = False) -> dict[str, Any]:
    """What an exported network is fed with, for programs, and as ``words`` for people.

    Args:
        uint8: the network takes bytes.

    >>> from ocssl.nn import ConvNet
    >>> steps = preprocess(FrozenEncoder(ConvNet(), 128, 32, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2)))
    >>> steps["layout"], steps["size"], steps["fit"], steps["interpolation"], steps["normalised"]
    ('NCHW', 32, 'crop', 'bicubic', False)
    """
    size, crop = encoder.image_size, encoder.fit == "crop"
    what = "the largest centred square, as the box of Pillow's resize," if crop else "the whole image"
    how = "bicubic" if crop else "bilinear"
    floats = f"float32 (n, 3, {size}, {size}), pixels / 255 in [0, 1]"
    form = f"uint8 (n, {size}, {size}, 3), pixels as they are" if uint8 else floats
    return {
        "layout": "NHWC" if uint8 else "NCHW",
        "channels": "RGB",
        "dtype": "uint8" if uint8 else "float32",
        "range": [0, 255] if uint8 else [0.0, 1.0],
        "size": size,
        "fit": encoder.fit,
        "interpolation": how,
        "antialias": True,
        "exif_upright": True,
        "alpha_on": "white",
        "pixel_range": encoder.pixel_range,
        "normalised": False,
        "words": f"RGB, {form}, not normalised: the network applies mean and std itself. Each image is turned upright "
        f"by its EXIF orientation, and {what} is resized to {size}×{size}, {how} with antialiasing; transparent pixels "
        "lie on white.",
    }


class _FromBytes(nn.Module):
    """An encoder for pixels as image libraries give them, uint8 ``(n, s, s, 3)``."""

    def __init__(self, encoder: FrozenEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.encoder(images.permute(0, 3, 1, 2).float() / 255)
        return features


def to_onnx(encoder: FrozenEncoder, path: Path, *, uint8: bool = False) -> Forward:
    """For ONNX Runtime and everything else that reads ONNX; input ``images``, output ``features``, any batch size."""
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise missing_extra(error.name or "onnx", "onnx", "ONNX files") from error
    batch = {0: "n"}
    # The tracing exporter is deprecated, but needs no package beyond onnx and knows every operation here. Where it
    # fails, it prints the graph from C++, and has no option against that.
    quiet = patch.object(torch._C, "_jit_onnx_log", lambda *_: None, create=True)
    with warnings.catch_warnings(action="ignore"), quiet:
        example = _images(encoder, 2)
        torch.onnx.export(
            _FromBytes(encoder) if uint8 else encoder,
            (_bytes(example) if uint8 else example,),
            str(path),
            input_names=["images"],
            output_names=["features"],
            dynamic_axes={"images": batch, "features": batch},
            dynamo=False,
        )
    model = onnx.load(str(path))
    facts, steps = json.dumps(encoder.facts), preprocess(encoder, uint8)
    onnx.helper.set_model_props(model, {"ocssl": facts, "preprocess": json.dumps(steps)})
    model.doc_string = f"Features of images, by ocssl. {steps['words']}"
    model.graph.input[0].doc_string = steps["words"]
    model.graph.output[0].doc_string = f"Features, float32 (n, {encoder.feature_dim})."
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def forward(images: Tensor) -> Tensor:
        fed = _bytes(images) if uint8 else images
        return torch.from_numpy(session.run(None, {"images": fed.numpy()})[0])

    return forward


formats.register("onnx")(to_onnx)


@formats.register("torchscript")
def to_torchscript(encoder: FrozenEncoder, path: Path) -> Forward:
    """For ``torch.jit.load`` in Python and C++, without ocssl."""
    with warnings.catch_warnings(action="ignore"):
        # Two traces of torch's own transformer layers differ, so its check refuses them; export() compares features.
        path.write_bytes(torch.jit.trace(encoder, _images(encoder, 2), check_trace=False).save_to_buffer())
        _mark(path)
        loaded: Forward = torch.jit.load(str(path))
    return loaded


@formats.register("safetensors")
def to_safetensors(encoder: FrozenEncoder, path: Path) -> Forward:
    """The weights in one file, with the settings that build the network; ``ocssl.export.load`` reads it."""
    save_tensors(encoder.backbone.state_dict(), path, metadata={"ocssl": json.dumps(encoder.facts)})
    return load(path) if encoder.facts.get("backbone") else encoder


@formats.register("torchvision")
def to_torchvision(encoder: FrozenEncoder, path: Path) -> Forward:
    """A state dict with the names that torchvision and timm give to ResNet-18, without the classifier ``fc``.

    ``resnet18().load_state_dict(torch.load(path), strict=False)`` leaves ``fc`` as it is. An encoder for small images
    has a 3×3 first convolution and no pooling after it: change the model accordingly before.
    """
    network = encoder.backbone
    if not isinstance(network, ResNet18) or network.feature_dim != 512:
        width = f" of width {encoder.facts['width']}" if "width" in encoder.facts else ""
        raise ConfigError(
            "only the backbone 'resnet18' of width 64 fits torchvision's ResNet-18, not "
            f"'{encoder.facts.get('backbone')}'{width}"
        )
    torch.save(network.state_dict(), path)
    _mark(path)
    stem = "small" if network.conv1.kernel_size == (3, 3) else "standard"
    same = ResNet18(validate(ResNet18.Options, {"stem": stem}), encoder.image_size)
    same.load_state_dict(torch.load(path, weights_only=True))
    return FrozenEncoder(same, 512, encoder.image_size, encoder.mean.flatten().tolist(), encoder.std.flatten().tolist())


def _mark(path: Path) -> None:
    """Say in the comment of a file of torch, which is a zip archive, who wrote it."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = MARK.encode()


SUFFIXES = {"onnx": ".onnx", "torchscript": ".pt", "safetensors": ".safetensors", "torchvision": ".pth"}


@torch.no_grad()
def _difference(encoder: FrozenEncoder, forward: Forward, whole: bool = False) -> float:
    """Largest absolute difference, relative to the features' scale where that is above 1.

    Args:
        whole: the images are of whole 255ths.
    """
    differences = []
    for count in (1, 3, 8):
        images = _images(encoder, count)
        images = _bytes(images).permute(0, 3, 1, 2).float() / 255 if whole else images
        expected: Any = encoder(images).numpy()
        if not np.isfinite(expected).all():
            raise CheckpointError("the encoder's own features are NaN or infinite; it has probably diverged")
        try:
            found = forward(images).detach().numpy()
        except Exception as error:  # each runtime has its own
            raise CheckpointError(
                f"the exported network fails on a batch of {count}, as it was traced with one of 2; take sizes in "
                "forward() from images.shape, not from len(images)"
            ) from error
        if found.shape != expected.shape:
            return float("inf")
        differences.append(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))
    return float(np.max(differences))  # NaN where there is one


def _bytes(images: Tensor) -> Tensor:
    """Images ``(n, 3, s, s)`` in [0, 1] as uint8 ``(n, s, s, 3)``."""
    return (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def _images(encoder: FrozenEncoder, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.rand(count, 3, encoder.image_size, encoder.image_size, generator=generator)
