"""``ocssl export``: an encoder for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """What can be written."""

    onnx = "onnx"
    torchscript = "torchscript"
    safetensors = "safetensors"
    torchvision = "torchvision"
    hub = "hub"


def export(
    encoder: Annotated[Path, typer.Argument(help="A published encoder, a learner's state, a run, or a .safetensors.")],
    to: Annotated[Format, typer.Option(help="The format.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="File or, for the hub, folder [default: encoder.…]."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="hub: a sentence on the images it learned from.")] = None,
    license: Annotated[str | None, typer.Option(help="hub: of the weights.")] = None,
) -> None:
    """Write an encoder in another format, checked against the original.

    Example: ocssl export robot/encoder --to onnx -o encoder.onnx
    """
    from ocssl.errors import ConfigError
    from ocssl.export import load
    from ocssl.export.formats import SUFFIXES
    from ocssl.export.formats import export as write
    from ocssl.export.hub import write_hub_folder

    if to is not Format.hub and (data or license):
        raise ConfigError("data and license are told by the model card, which only --to hub writes")
    network = load(encoder)
    if to is Format.hub:
        place = write_hub_folder(network, output or Path("encoder-hub"), data=data, license=license)
        typer.echo(f"wrote {place}: upload it with 'hf upload OWNER/NAME {place}'")
        return
    path = output or Path(f"encoder{SUFFIXES[to.value]}")
    difference = write(network, path, to.value)
    typer.echo(f"wrote {path}; features differ from the original by at most {difference:.1e}")
