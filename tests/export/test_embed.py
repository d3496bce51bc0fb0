"""Features of a source in one file: right, with their places, and resumed after an interruption."""

from __future__ import annotations

import copy
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from torch import nn

from ocssl import Learner, plugins
from ocssl.cli import app
from ocssl.data.reader import Reader
from ocssl.errors import ConfigError, DataError
from ocssl.export import FrozenEncoder, of_learner, publish
from ocssl.export.features import embed, encoder_digest
from ocssl.live.sources import open_reader
from ocssl.nn import register_backbone
from ocssl.options import Options

IMAGES = np.random.default_rng(0).integers(0, 256, (23, 8, 8, 3), dtype=np.uint8)


@pytest.fixture
def learner() -> Learner:
    return Learner(backbone="convnet-w8", image_size=8, hidden_dim=8, output_dim=8, device="cpu")


@pytest.fixture
def encoder(learner: Learner) -> FrozenEncoder:
    return of_learner(learner)


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    folder = tmp_path / "frames"
    folder.mkdir()
    for number, image in enumerate(IMAGES):
        Image.fromarray(image).save(folder / f"{number:03d}.png")
    return folder


def check(path: Path, encoder: FrozenEncoder, frames: Path, without: tuple[int, ...] = ()) -> None:
    table = pq.read_table(path)
    kept = [number for number in range(len(IMAGES)) if number not in without]
    assert table["id"].to_pylist() == kept
    assert table["path"].to_pylist() == [str(frames / f"{number:03d}.png") for number in kept]
    features = np.array(table["features"].to_pylist(), dtype=np.float32)
    assert np.allclose(features, encoder.transform(IMAGES[kept]), atol=1e-6)


def test_every_image_is_embedded_with_its_place(encoder: FrozenEncoder, frames: Path, tmp_path: Path) -> None:
    steps: list[int] = []
    found = embed(encoder, open_reader(str(frames)), tmp_path / "f.parquet", batch=4, part=10, progress=steps.append)
    assert (found.count, found.refused, sum(steps)) == (23, (), 23)
    check(tmp_path / "f.parquet", encoder, frames)
    assert not (tmp_path / "f.parquet.parts").exists()


def test_bad_images_leave_a_gap_and_are_named(encoder: FrozenEncoder, frames: Path, tmp_path: Path) -> None:
    (frames / "007.png").write_text("broken")
    (frames / "022.png").write_text("broken")
    found = embed(encoder, open_reader(str(frames)), tmp_path / "f.parquet", batch=4, part=11)
    assert [Path(name).name for name, _ in found.refused] == ["007.png", "022.png"]
    check(tmp_path / "f.parquet", encoder, frames, without=(7, 22))


def test_a_batch_that_cannot_be_is_refused_before_anything_is_written(
    encoder: FrozenEncoder, frames: Path, tmp_path: Path
) -> None:
    for batch, said in ((0, "must be a whole number of at least 1, not 0"), (65_537, "must be at most 65536, not")):
        with pytest.raises(ConfigError, match=f"^batch {said}"):
            embed(encoder, open_reader(str(frames)), tmp_path / "f.parquet", batch=batch)
    assert [*tmp_path.iterdir()] == [frames]


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npy"])
def test_images_none_of_which_can_be_used_replace_no_features(
    encoder: FrozenEncoder, frames: Path, tmp_path: Path, suffix: str
) -> None:
    target = tmp_path / f"f{suffix}"
    embed(encoder, open_reader(str(frames)), target)
    before = target.read_bytes()
    for image in frames.iterdir():
        image.write_text("broken")
    with pytest.raises(DataError, match=r"there is no usable image: .*000\.png: it is not an image"):
        embed(encoder, open_reader(str(frames)), target, part=5, force=suffix == ".npy")
    assert target.read_bytes() == before
    assert not target.with_name(f"{target.name}.parts").exists()


def stop_in_the_third_part(encoder: FrozenEncoder, reader: Reader, path: Path) -> None:
    embedded: list[int] = []

    def stop(images: int) -> None:
        embedded.append(images)
        if sum(embedded) > 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(encoder, reader, path, batch=4, part=8, progress=stop)


def test_an_interrupted_embedding_goes_on_with_its_next_part(
    encoder: FrozenEncoder, frames: Path, tmp_path: Path
) -> None:
    reader = open_reader(str(frames))
    stop_in_the_third_part(encoder, reader, tmp_path / "f.parquet")
    assert not (tmp_path / "f.parquet").exists()
    steps: list[int] = []
    embed(encoder, reader, tmp_path / "f.parquet", batch=4, part=8, progress=steps.append)
    assert steps == [16, 4, 3]  # two parts were there
    check(tmp_path / "f.parquet", encoder, frames)


@pytest.mark.parametrize("length", [0, 100, -1000])
def test_a_finished_part_that_cannot_be_read_is_made_again(
    encoder: FrozenEncoder, frames: Path, tmp_path: Path, length: int
) -> None:
    reader = open_reader(str(frames))
    stop_in_the_third_part(encoder, reader, tmp_path / "f.parquet")
    second = tmp_path / "f.parquet.parts" / "000001.parquet"
    second.write_bytes(second.read_bytes()[:length])
    steps: list[int] = []
    embed(encoder, reader, tmp_path / "f.parquet", batch=4, part=8, progress=steps.append)
    assert steps == [8, 4, 4, 4, 3]  # the first part was there
    check(tmp_path / "f.parquet", encoder, frames)


def test_a_finished_part_with_holes_is_made_again_with_those_after_it(
    encoder: FrozenEncoder, frames: Path, tmp_path: Path
) -> None:
    reader = open_reader(str(frames))
    stop_in_the_third_part(encoder, reader, tmp_path / "f.parquet")
    first = tmp_path / "f.parquet.parts" / "000000.parquet"
    content = first.read_bytes()
    first.write_bytes(bytes(500) + content[500:])
    steps: list[int] = []
    embed(encoder, reader, tmp_path / "f.parquet", batch=4, part=9, progress=steps.append)
    assert steps[0] == 0
    check(tmp_path / "f.parquet", encoder, frames)


def test_a_second_embedding_into_the_same_file_is_refused_and_the_first_one_goes_on(
    encoder: FrozenEncoder, frames: Path, tmp_path: Path
) -> None:
    reader, refusals = open_reader(str(frames)), []

    def begin_another(images: int) -> None:
        with pytest.raises(ConfigError, match=r"another process is working in '.*f\.parquet\.parts'") as caught:
            embed(encoder, reader, tmp_path / "f.parquet")
        refusals.append(caught.value)

    embed(encoder, reader, tmp_path / "f.parquet", batch=10, progress=begin_another)
    assert len(refusals) == 4
    check(tmp_path / "f.parquet", encoder, frames)


def test_files_with_names_that_are_not_utf8_are_embedded_or_refused_by_an_escaped_name(
    encoder: FrozenEncoder, tmp_path: Path
) -> None:
    (tmp_path / "odd").mkdir()
    Image.fromarray(IMAGES[0]).save(tmp_path / "odd" / os.fsdecode(b"caf\xe9.png"))
    (tmp_path / "odd" / os.fsdecode(b"th\xe9.png")).write_text("broken")
    found = embed(encoder, open_reader(str(tmp_path / "odd")), tmp_path / "f.parquet")
    assert [name for name, _ in found.refused] == [str(tmp_path / "odd" / r"th\udce9.png")]
    assert pq.read_table(tmp_path / "f.parquet")["path"].to_pylist() == [str(tmp_path / "odd" / r"caf\udce9.png")]


def test_parts_of_another_encoder_are_not_mixed_in(
    encoder: FrozenEncoder, learner: Learner, frames: Path, tmp_path: Path
) -> None:
    reader = open_reader(str(frames))
    stop_in_the_third_part(encoder, reader, tmp_path / "f.parquet")
    other = of_learner(Learner(**{**learner.get_params(), "seed": 1}))
    with pytest.raises(ConfigError, match="features of another encoder"):
        embed(other, reader, tmp_path / "f.parquet")


def test_an_embedding_without_a_finished_part_begins_again_with_another_encoder(
    encoder: FrozenEncoder, learner: Learner, frames: Path, tmp_path: Path
) -> None:
    reader = open_reader(str(frames))
    other = of_learner(Learner(**{**learner.get_params(), "seed": 1}))
    with pytest.raises(ZeroDivisionError):
        embed(other, reader, tmp_path / "f.parquet", progress=lambda images: 1 // 0)
    embed(encoder, reader, tmp_path / "f.parquet")
    check(tmp_path / "f.parquet", encoder, frames)


def test_an_array_file_is_not_said_to_be_of_another_program(
    encoder: FrozenEncoder, frames: Path, tmp_path: Path
) -> None:
    reader = open_reader(str(frames))
    embed(encoder, reader, tmp_path / "f.npy")
    with pytest.raises(ConfigError, match=r"f\.npy' exists and says nothing of who wrote it; .* add --force"):
        embed(encoder, reader, tmp_path / "f.npy")
    embed(encoder, reader, tmp_path / "f.npy", force=True)


def test_the_command_embeds_a_folder_and_refuses_an_empty_one(
    learner: Learner, encoder: FrozenEncoder, frames: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(learner, tmp_path / "encoder")
    output = tmp_path / "f.parquet"
    app(["embed", str(tmp_path / "encoder"), str(frames), "-o", str(output)], standalone_mode=False)
    assert capsys.readouterr().out == f"23 images, 32 numbers each: {output}\n"
    app(["embed", str(tmp_path / "encoder"), str(frames), "-o", str(output)], standalone_mode=False)
    assert capsys.readouterr().out == f"23 images, 32 numbers each, none computed anew: {output}\n"
    check(output, encoder, frames)
    files = [str(path) for path in sorted(frames.iterdir())]
    for given in (files, files[:1]):
        app(["embed", str(tmp_path / "encoder"), *given, "-o", str(tmp_path / "files.parquet")], standalone_mode=False)
        assert pq.read_table(tmp_path / "files.parquet")["path"].to_pylist() == given
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="there are no images in"):
        app(["embed", str(tmp_path / "encoder"), str(tmp_path / "empty"), "-o", str(output)], standalone_mode=False)


def test_a_file_says_which_encoder_made_it_and_grows_by_what_is_new(
    encoder: FrozenEncoder, frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, path = tmp_path / "mine", tmp_path / "f.parquet"
    shutil.copytree(frames, mine)
    embed(encoder, open_reader(str(mine)), path)
    first = pq.read_table(path)
    made_by = json.loads(first.schema.metadata[b"encoder"])
    assert made_by["sha256"] == encoder_digest(encoder)
    assert made_by["image_size"] == encoder.image_size
    names = sorted(file.name for file in mine.iterdir())
    Image.new("RGB", (20, 20), "red").save(mine / "0000.png")  # comes first: all others move by one
    Image.new("RGB", (21, 21), "blue").save(mine / names[2])
    (mine / names[3]).unlink()
    seen: list[int] = []
    real = FrozenEncoder.transform

    def counted(self: FrozenEncoder, images: Any, **how: Any) -> np.ndarray:
        seen.append(len(images))
        return real(self, images, **how)

    monkeypatch.setattr(FrozenEncoder, "transform", counted)
    grown = embed(encoder, open_reader(str(mine)), path)
    assert (sum(seen), grown.kept) == (2, grown.count - 2)
    embed(encoder, open_reader(str(mine)), tmp_path / "whole.parquet")
    assert grown.count == len(pq.read_table(path))
    ours, whole = pq.read_table(path), pq.read_table(tmp_path / "whole.parquet")
    assert ours.drop_columns("features") == whole.drop_columns("features")
    np.testing.assert_allclose(np.stack(ours["features"].to_numpy()), np.stack(whole["features"].to_numpy()), atol=1e-5)
    seen.clear()
    other = copy.deepcopy(encoder)
    other.facts["fit"] = "squash"
    embed(other, open_reader(str(mine)), path)  # another encoder: everything anew
    assert sum(seen) == grown.count


def test_other_code_of_a_plugin_makes_all_features_anew(
    frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @register_backbone("pooled")
    class Pooled(nn.Sequential):
        class Options(Options):
            pass

        def __init__(self, options: Options, image_size: int) -> None:
            super().__init__(nn.Conv2d(3, 8, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    encoder = of_learner(Learner(backbone="pooled", image_size=8, hidden_dim=8, output_dim=8, device="cpu"))
    kept = [embed(encoder, open_reader(str(frames)), tmp_path / "f.parquet").kept for _ in range(2)]
    monkeypatch.setitem(plugins._digests, __name__, "of other code")
    kept.append(embed(encoder, open_reader(str(frames)), tmp_path / "f.parquet").kept)
    assert kept == [0, 23, 0]


def test_features_that_another_program_stored_otherwise_are_made_again(
    encoder: FrozenEncoder, frames: Path, tmp_path: Path
) -> None:
    path, reader = tmp_path / "f.parquet", open_reader(str(frames))
    embed(encoder, reader, path)
    table = pq.read_table(path)
    lists = table["features"].cast(pa.list_(pa.float32()))  # of any length
    pq.write_table(table.set_column(table.schema.get_field_index("features"), "features", lists), path)
    embed(encoder, reader, path)
    check(path, encoder, frames)


def test_a_file_is_what_its_name_says(encoder: FrozenEncoder, frames: Path, tmp_path: Path) -> None:
    reader = open_reader(str(frames))
    for name in ("f.parquet", "f.csv", "f.npy"):
        embed(encoder, reader, tmp_path / name, batch=4, part=5)
    embed(encoder, reader, tmp_path / "f.csv", batch=4, part=5)  # ours may be replaced
    table = pq.read_table(tmp_path / "f.parquet")
    features = np.stack(table["features"].to_numpy())
    np.testing.assert_array_equal(np.load(tmp_path / "f.npy"), features)
    head, *lines = (tmp_path / "f.csv").read_text().splitlines()
    assert head.split(",")[:3] == ["id", "path", "f0"]
    assert [line.split(",")[1] for line in lines] == table["path"].to_pylist()
    np.testing.assert_array_equal(np.array([line.split(",")[2:] for line in lines], dtype=np.float32), features)
    for name in ("f", "f.txt", "f.parquet.gz"):
        with pytest.raises(ConfigError, match=r"features are written as \.parquet, \.csv, \.npy"):
            embed(encoder, reader, tmp_path / name)
