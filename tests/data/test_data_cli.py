"""``ocssl data``: what a person reads."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from pictures import pixels, png, write, write_parquet
from PIL import Image
from typer.testing import CliRunner

from ocssl import data
from ocssl.cli.app import app
from ocssl.data.dataset import DatasetInfo, ResidentDataset
from ocssl.data.loading import status
from ocssl.data.preview import CAPTION, CELL, GAP, HEADING, preview_grid
from ocssl.errors import ConfigError, DataError, OcsslError


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["data", *arguments], env={"COLUMNS": "200"})
    if result.exception:
        raise result.exception
    return result.output


@pytest.fixture
def root(tmp_path):
    """A data root with class folders of cars and nothing else."""
    for split in ("train", "test"):
        for make in ("Audi", "BMW"):
            write(tmp_path / "root" / "cars" / split / make / "1.png", png(pixels(0, 64, 48, 3)))
    return tmp_path / "root"


def states(listing: str) -> dict[str, list[str]]:
    return {words[0]: words[1:3] for words in map(str.split, listing.splitlines()) if len(words) > 3}


def test_list_tells_what_is_there_and_what_is_not(root):
    before = states(run("list", "--data-root", str(root)))
    assert before["cars"] == ["found", "found"]
    assert before["cifar100"] == ["download", "download"]
    assert before["tiny-imagenet"] == ["missing", "missing"]
    assert before["shapes"] == ["ready", "ready"]
    run("prepare", "cars", "--split", "train", "--data-root", str(root))
    assert states(run("list", "--data-root", str(root)))["cars"] == ["ready", "found"]


def test_images_without_a_test_split_are_prepared_and_told_as_they_are(tmp_path):
    write(tmp_path / "imgs" / "1.png", png(pixels(0)))
    address = f"folder:{tmp_path / 'imgs'}"
    assert run("prepare", address) == f"{address} train: 1 images of 32×32\n"
    assert "test: missing (" in run("info", address)
    with pytest.raises(DataError, match="has no test split"):
        run("prepare", address, "--split", "test")


def test_info_tells_where_a_set_is_and_how_to_get_it(root):
    assert "2 image files in" in run("info", "cars", "--data-root", str(root))
    missing = run("info", "tiny-imagenet", "--data-root", str(root))
    assert "train: missing" in missing
    assert "How to get it: unpack" in missing
    assert "will be downloaded from https://www.cs.toronto.edu" in run("info", "cifar100", "--data-root", str(root))
    assert "train: found (2 image files" in run("info", f"folder:{root / 'cars'}")
    assert "train: broken (there is no folder" in run("info", f"folder:{root / 'nowhere'}")


def test_info_tells_of_every_way_a_set_was_decoded(root):
    address, split = f"folder:{root / 'cars'}", "train"
    for way in ({"image_size": 16, "fit": "squash"}, {"image_size": 8}, {"image_size": 8, "pixel_range": (0, 4095)}):
        for name in ("cars", address):
            data.load(name, root=root, **way)
    every = ["16×16, squash", "8×8, crop", "8×8, crop, pixel_range [0, 4095]"]
    assert ways(run("info", "cars", "--data-root", str(root))) == every
    assert ways(status(address, split).detail) == every
    assert ways(status(address, split, image_size=8).detail) == every[1:]
    assert status(address, split, image_size=4).state == status(address, "test").state == "found"
    write(root / "cars" / split / "BMW" / "2.png", png(pixels(1, 8, 8, 3)))
    assert status(address, split).state == "found"


def test_info_tells_of_a_split_that_cannot_be_read(tmp_path):
    write_parquet(tmp_path / "train.parquet", [pixels(0)], ["cat"])
    write(tmp_path / "test.parquet", b"PAR1 and no more")
    told = run("info", f"parquet:{tmp_path}")
    assert [line.split()[:2] for line in told.splitlines()] == [["train:", "broken"], ["test:", "broken"]]


def test_a_set_is_prepared_as_a_learner_will_want_it(root):
    how = ("--image-size", "8", "--fit", "squash", "--pixel-range", "[0, 4095]")
    run("prepare", "cars", "--data-root", str(root), *how)
    assert ways(status("cars", "train", root=root).detail) == ["8×8, squash, pixel_range [0, 4095]"]
    with pytest.raises(ConfigError, match="unknown fit 'stretch'"):
        data.load("cars", root=root, fit="stretch")


def test_images_that_were_decoded_at_their_own_size_are_not_those_of_a_given_size(tmp_path):
    square = f"folder:{write(tmp_path / 'square' / '1.png', png(pixels(0, 8, 8, 3))).parent}"
    data.load(square)
    assert ways(status(square, "train").detail) == ["8×8, crop"]
    assert status(square, "train", image_size=8).state == "found"


def ways(detail: str) -> list[str]:
    """How images are decoded, as said in the parentheses behind each folder."""
    return sorted(re.findall(r"\((\d+×[^)]*)\)", detail))


def test_a_damaged_cache_is_none(root, own_cache):
    data.load("cars", root=root, image_size=8, pixel_range=(0, 1))
    [index] = own_cache.glob("*/index.json")
    content = index.read_text()
    for broken in ("[1.0, 0.0]", "[0.0]", '"ab"', "[0, 1" + 400 * "0" + "]", "[]"):
        index.write_text(re.sub(r'"pixel_range": \[[^]]*\]', f'"pixel_range": {broken}', content))
        assert status("cars", "train", root=root).state == "found"
        with pytest.raises(DataError, match="is damaged"):
            data.load("cars", root=root, image_size=8, pixel_range=(0, 1))


def test_prepare_counts_images_and_those_left_out(root):
    assert "cars train: 2 images of 224×224" in run("prepare", "cars", "--data-root", str(root))
    write(root / "cars" / "train" / "BMW" / "2.jpg", b"")
    with pytest.raises(DataError, match=r"2\.jpg cannot be used: it is empty \(--on-bad-image skip leaves"):
        run("prepare", "cars", "--data-root", str(root))
    skipped = run("prepare", "cars", "--data-root", str(root), "--on-bad-image", "skip", "--image-size", "16")
    assert "cars train: 2 images of 16×16, 1 left out" in skipped
    assert "cars test: 2 images of 16×16\n" in skipped


def test_preview_draws_samples_and_views_in_both_orders(tmp_path):
    output = tmp_path / "grid.png"
    assert f"wrote {output}" in run("preview", "shapes", "-o", str(output), "--samples", "4", "--views", "2")
    picture = np.asarray(Image.open(output).convert("RGB"))
    again = tmp_path / "again.png"
    run("preview", "shapes", "-o", str(again), "--samples", "4", "--views", "2")
    np.testing.assert_array_equal(picture, np.asarray(Image.open(again).convert("RGB")))
    other = tmp_path / "other.png"
    run("preview", "shapes", "-o", str(other), "--samples", "4", "--views", "2", "--seed", "1")
    assert (picture != np.asarray(Image.open(other).convert("RGB"))).any()


def test_the_grid_shows_images_as_they_are_and_views_denormalised():
    white = torch.full((3, 3, 8, 8), 255, dtype=torch.uint8)
    grid = np.asarray(preview_grid(ResidentDataset(white, DatasetInfo("white")), samples=3, views=5, seed=0))
    for row in range(3):
        top = HEADING + row * (CELL + GAP)
        assert (grid[top : top + CELL, CAPTION : CAPTION + CELL] == 255).all()
    left = CAPTION + CELL + 3 * GAP
    cells = grid[HEADING:, left : left + 5 * (CELL + GAP)]
    # Brightness jitter darkens some clean views of white; none of them gets a colour cast from the normalisation.
    assert cells.min() < 250
    assert np.ptp(cells.astype(int), axis=-1).max() <= 2


def test_a_preview_that_cannot_be_written_and_a_wrong_name_are_one_sentence(tmp_path):
    with pytest.raises(DataError, match="cannot write"):
        run("preview", "shapes", "-o", str(tmp_path / "no" / "folder" / "grid.png"))
    with pytest.raises(OcsslError, match="did you mean 'shapes'"):
        run("info", "shape")
    with pytest.raises(OcsslError, match=f"unknown data set .* write folder:{tmp_path}$"):
        run("info", str(tmp_path))


def test_help_loads_neither_torch_nor_pyarrow():
    code = (
        "import sys; from typer.testing import CliRunner; from ocssl.cli.app import app; "
        "assert CliRunner().invoke(app, ['data', '--help']).exit_code == 0; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'pyarrow', 'numpy', 'PIL')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
