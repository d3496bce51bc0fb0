"""``ocssl embed``: features of images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ocssl.cli.flags import EncoderArgument, ForceOption
from ocssl.common.console import number_of, progress_bar


def embed(
    encoder: EncoderArgument,
    source: Annotated[
        list[str], typer.Argument(metavar="SOURCE", help="A folder, images, a video, a tar or parquet file.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help=".parquet, .csv or .npy.")],
    batch: Annotated[int, typer.Option(help="Images encoded at once.")] = 256,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    force: ForceOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no list of refused images.")] = False,
) -> None:
    """Features of every image, with its path; the same command resumes after an interruption.

    Example: ocssl embed robot/encoder frames/ -o features.parquet
    """
    from ocssl.device import pick_device
    from ocssl.export import load
    from ocssl.export.features import check_features
    from ocssl.export.features import embed as embed_all
    from ocssl.live.sources import as_source, open_reader, printable, source_paths

    read = [path for word in source for path in source_paths(word)]
    check_features(output, inputs=[encoder, *read], force=force)
    network = load(encoder, device=str(pick_device(device)))
    reader = open_reader(as_source(source))
    with progress_bar("Embedding", reader.count(), False if quiet else None) as advance:
        found = embed_all(network, reader, output, batch=batch, progress=advance, force=force)
    for name, problem in () if quiet else found.refused:
        typer.echo(f"refused {printable(name)}: {problem}", err=True)
    refused = f", {len(found.refused):,} refused" if found.refused else ""
    anew = found.count - found.kept
    computed = f", {format(anew, ',') if anew else 'none'} computed anew" if found.kept else ""
    typer.echo(f"{number_of(found.count, 'image')}, {network.feature_dim} numbers each{computed}{refused}: {output}")
