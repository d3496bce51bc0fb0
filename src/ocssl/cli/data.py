"""``ocssl data``: which image sets there are, how to get them, and what they look like."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ocssl.cli.flags import ForceOption, plain_console
from ocssl.common.files import MARK, atomic_write, check_output, writing
from ocssl.errors import DataError

app = typer.Typer(no_args_is_help=True, help="Image sets: what is there, what is missing, what it looks like.")


class Split(StrEnum):  # Typer has no lists of literals
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
    typer.Option("--image-size", min=1, help="Resize to this side length [default: the set's own]."),
]
FitOption = Annotated[
    Literal["crop", "squash"], typer.Option("--fit", help="Take the centred square of an image, or all of it.")
]
RangeOption = Annotated[
    str | None,
    typer.Option(metavar="[LOW, HIGH]", help="Black and white of images with more than 8 bits, e.g. '[0, 4095]'."),
]
BadImageOption = Annotated[
    Literal["error", "skip"], typer.Option("--on-bad-image", help="Stop at an unusable image, or leave it out.")
]


@app.command("list")
def list_sets(root: Root = None) -> None:
    """Every known set, and whether it is there."""
    from rich.table import Table

    from ocssl.data.catalog import dataset_spec, names
    from ocssl.data.layout import data_root
    from ocssl.data.loading import status

    table = Table("name", "train", "test", "what it is", box=None, pad_edge=False)
    for name in names():
        table.add_row(name, *(status(name, split, root=root).state for split in Split), dataset_spec(name).summary)
    console = plain_console()
    console.print(table)
    console.print("\nready: decoded; found: decoded on first use; download: fetched on first use.")
    console.print(
        f"Searched below {data_root(root)}. 'ocssl data info NAME' tells how a set is decoded, or how to get it."
    )


@app.command()
def info(address: Address, root: Root = None, size: Size = None) -> None:
    """What is there of a set, where, and how to get what is missing."""
    from ocssl.data.catalog import dataset_spec
    from ocssl.data.loading import is_address, status

    found = {split: status(address, split, root=root, image_size=size) for split in Split}
    spec = None if is_address(address) else dataset_spec(address)
    if spec:
        typer.echo(f"{spec.name}: {spec.summary}")
        typer.echo(f"mean {spec.mean}, std {spec.std}")
    for split, one in found.items():
        typer.echo(f"{split}: {one.state} ({one.detail})")
    if spec and any(one.state != "ready" for one in found.values()):
        typer.echo(f"How to get it: {spec.advice}.")


@app.command()
def prepare(
    address: Address,
    splits: Annotated[
        list[Split] | None, typer.Option("--split", help="Split to prepare; repeatable [default: all there are].")
    ] = None,
    root: Root = None,
    size: Size = None,
    fit: FitOption = "crop",
    pixel_range: RangeOption = None,
    on_bad_image: BadImageOption = "error",
) -> None:
    """Fetch, decode and verify a set now, so that training starts at once and reads no JPEG.

    An interrupted preparation goes on where it stopped.
    """
    from ocssl.data import load
    from ocssl.data.layout import NoSplit

    how = _decoding(size, fit, pixel_range, on_bad_image)
    for split in splits or Split:
        try:
            dataset = load(address, split=split, root=root, verify=True, **how)
        except NoSplit:
            if splits or split == Split.train:
                raise
            continue
        skipped = f", {len(dataset.skipped)} left out" if dataset.skipped else ""
        typer.echo(f"{address} {split}: {len(dataset)} images of {dataset.image_size}×{dataset.image_size}{skipped}")


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
    fit: FitOption = "crop",
    pixel_range: RangeOption = None,
    on_bad_image: BadImageOption = "error",
    force: ForceOption = False,
) -> None:
    """Draw samples and their augmented views, in the clean and in the authors' order."""
    from PIL.PngImagePlugin import PngInfo

    from ocssl.data import load
    from ocssl.data.loading import locate
    from ocssl.data.preview import check_grid, preview_grid
    from ocssl.live.sources import source_paths

    check_output(output, "png", inputs=source_paths(locate(address, root)), force=force)
    check_grid(samples, views, seed)
    dataset = load(address, split=split, root=root, **_decoding(size, fit, pixel_range, on_bad_image))
    grid = preview_grid(dataset, samples=samples, views=views, seed=seed)
    with writing(output, DataError):
        facts = PngInfo()
        facts.add_text("Software", MARK)
        atomic_write(output, lambda draft: grid.save(draft, format="PNG", pnginfo=facts))
    typer.echo(f"wrote {output}")


def _decoding(size: int | None, fit: str, pixel_range: str | None, on_bad_image: str) -> dict[str, Any]:
    """Arguments of ``load`` that say how images are decoded."""
    from ocssl.common.yaml import read_yaml

    ends = None if pixel_range is None else read_yaml(pixel_range, "pixel_range")
    return {"image_size": size, "fit": fit, "pixel_range": ends, "on_bad_image": on_bad_image}
