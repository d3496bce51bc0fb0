"""``ocssl data``: what image sets there are, how to get them, and what the network will see of them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Image sets: what is there, what is missing, what it looks like.")


class OnBadImage(StrEnum):
    """What to do with an image that cannot be used."""

    error = "error"
    skip = "skip"


class Split(StrEnum):
    """The two halves of a set."""

    train = "train"
    test = "test"


Address = Annotated[
    str, typer.Argument(metavar="NAME", help="A known set, or folder:PATH, parquet:PATH, tar:PATH, hf:REPO.")
]
Root = Annotated[
    Path | None, typer.Option("--data-root", envvar="OCSSL_DATA", help="Folder with data sets [default: data].")
]
Size = Annotated[
    int | None,
    typer.Option("--image-size", min=1, help="Crop and resize to this side length [default: the set's own]."),
]
BadImage = Annotated[OnBadImage, typer.Option("--on-bad-image", help="Stop at an unusable image, or leave it out.")]


@app.command("list")
def list_sets(root: Root = None) -> None:
    """Every known set, and whether it is there."""
    from rich.console import Console
    from rich.table import Table

    from ocssl.data.catalog import dataset_spec, names
    from ocssl.data.places import data_root
    from ocssl.data.presence import presence

    table = Table("name", "train", "test", "what it is", box=None, pad_edge=False)
    for name in names():
        table.add_row(name, *(presence(name, split, root=root).state for split in Split), dataset_spec(name).summary)
    console = Console()
    console.print(table)
    console.print(
        "\nready: usable at once; found: decoded on first use; download: fetched on first use.", highlight=False
    )
    console.print(f"Searched below {data_root(root)}. 'ocssl data info NAME' tells how to get a set.", highlight=False)


@app.command()
def info(address: Address, root: Root = None, size: Size = None) -> None:
    """What is there of a set, where, and how to get what is missing."""
    from ocssl.data.catalog import dataset_spec
    from ocssl.data.loading import is_address
    from ocssl.data.presence import presence

    states = {split: presence(address, split, root=root, image_size=size) for split in Split}
    if not is_address(address):
        known = dataset_spec(address)
        typer.echo(f"{known.name}: {known.summary}")
        typer.echo(f"mean {known.mean}, std {known.std}")
    for split, state in states.items():
        typer.echo(f"{split}: {state.state} ({state.detail})")
    if not is_address(address) and any(state.state != "ready" for state in states.values()):
        typer.echo(f"How to get it: {known.advice}.")


@app.command()
def prepare(
    address: Address,
    splits: Annotated[list[Split] | None, typer.Option("--split", help="Repeatable [default: train and test].")] = None,
    root: Root = None,
    size: Size = None,
    on_bad_image: BadImage = OnBadImage.error,
) -> None:
    """Fetch, decode and verify a set now, so that training starts at once and touches no JPEG.

    An interrupted preparation goes on where it stopped.
    """
    from ocssl.data.loading import load

    for split in splits or Split:
        source = load(address, split=split, root=root, image_size=size, on_bad_image=on_bad_image.value, verify=True)
        skipped = f", {len(source.skipped)} left out" if source.skipped else ""
        typer.echo(f"{address} {split}: {len(source)} images of {source.image_size}×{source.image_size}{skipped}")


@app.command()
def preview(
    address: Address,
    output: Annotated[Path, typer.Option("--output", "-o", help="PNG file to write.")],
    split: Split = Split.train,
    samples: Annotated[int, typer.Option(min=1, help="How many images, one per row.")] = 8,
    views: Annotated[int, typer.Option(min=1, help="How many augmented views of each, in either order.")] = 3,
    seed: Annotated[int, typer.Option(help="Chooses the images and draws the views.")] = 0,
    root: Root = None,
    size: Size = None,
    on_bad_image: BadImage = OnBadImage.error,
) -> None:
    """Draw samples and their augmented views, in the clean and in the authors' order."""
    from ocssl.data.loading import load
    from ocssl.data.preview import preview_grid
    from ocssl.errors import DataError

    source = load(address, split=split, root=root, image_size=size, on_bad_image=on_bad_image.value)
    grid = preview_grid(source, samples=samples, views=views, seed=seed)
    try:
        grid.save(output, format="PNG")
    except OSError as error:
        raise DataError(f"cannot write {output}: {error.strerror or error}") from error
    typer.echo(f"wrote {output}")
