"""``ocssl export``: an encoder for other programs."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from ocssl.cli.flags import EncoderArgument, ForceOption
from ocssl.common.files import check_output
from ocssl.errors import ConfigError


def export(
    encoder: EncoderArgument,
    to: Annotated[str, typer.Option(help="onnx, torchscript, safetensors, torchvision or hub.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="File or, for the hub, folder [default: encoder.…]."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="hub: a sentence on the images it learned from.")] = None,
    license: Annotated[str | None, typer.Option(help="hub: license of the weights.")] = None,
    uint8: Annotated[bool, typer.Option("--uint8", help="onnx: take pixels as bytes (n, s, s, 3).")] = False,
    force: ForceOption = False,
) -> None:
    """Write an encoder in another format, compared with the original.

    Example: ocssl export robot/encoder --to onnx -o encoder.onnx
    """
    from ocssl.export import load
    from ocssl.export.formats import SUFFIXES, check_ending, check_uint8, formats
    from ocssl.export.formats import export as write
    from ocssl.export.hub import check_hub_folder, write_hub_folder
    from ocssl.registry import unknown

    if to != "hub" and to not in formats:
        raise unknown("format", to, [*formats.names(), "hub"])
    if to != "hub" and (data or license):
        raise ConfigError("--data and --license are for the model card, which only --to hub writes")
    check_uint8(to, uint8)
    if to == "hub":
        folder = output or Path("encoder-hub")
        check_hub_folder(folder, inputs=[encoder], force=force)
        write_hub_folder(load(encoder), folder, data=data, license=license, force=force)
        typer.echo(f"wrote {folder}: upload it with: hf upload OWNER/NAME {quote(str(folder))}")
        return
    path = output or Path(f"encoder{SUFFIXES.get(to, '')}")
    check_ending(to, path)
    check_output(path, to, inputs=[encoder], force=force)
    difference = write(load(encoder), path, to, uint8=uint8, force=force)
    typer.echo(f"wrote {path}; features differ from the original by at most {difference:.1e}")
