"""Folders, tars and iterables, on real files, read back bit by bit; names of data sets and where they lie."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pictures import assert_holds, chw, cifar_batch, make_tar, pixels, png, write, write_parquet
from PIL import Image, ImageSequence

from ocssl import data
from ocssl.common.console import warn_once
from ocssl.data.formats.cifar import CIFAR10, CifarReader
from ocssl.data.formats.files import any_folder, image_files
from ocssl.data.formats.parquet import ParquetReader
from ocssl.data.formats.svhn import SvhnReader
from ocssl.data.formats.tar import TarReader
from ocssl.data.loading import status
from ocssl.errors import ConfigError, DataError
from ocssl.imaging import BadImage, decode

# Folders and tars -----------------------------------------------------------------------------------------------------


def test_a_folder_of_class_folders_is_labelled(tmp_path):
    images = [pixels(i) for i in range(3)]
    for name, image in zip(["b/1.png", "b/deep/2.png", "a/9.PNG"], images, strict=True):
        write(tmp_path / name, png(image))
    write(tmp_path / "notes.txt", b"not an image")
    write(tmp_path / "a" / "._9.png", b"what a Mac leaves behind")
    assert_holds(data.load(f"folder:{tmp_path}"), [images[2], images[0], images[1]], [0, 1, 1], ["a", "b"])


def test_a_folder_without_class_folders_is_unlabelled_and_knows_names_and_times(tmp_path):
    for number, name in enumerate(["x.png", "y.png", "sub/z.png"]):
        path = write(tmp_path / "pile" / name, png(pixels(number)))
        os.utime(path, (1000 - number, 1000 - number))
    source = data.load(f"folder:{tmp_path / 'pile'}")
    assert_holds(source, [pixels(2), pixels(0), pixels(1)])
    assert source.column("name").tolist() == ["sub/z.png", "x.png", "y.png"]
    stream = data.streams.ordered(keys=source.column("mtime"), stream_batch=3)
    assert next(iter(stream)).tolist() == [0, 2, 1]


def test_linked_folders_are_followed_and_links_that_lead_back_are_not(tmp_path):
    write(tmp_path / "elsewhere" / "1.png", png(pixels(0)))
    write(tmp_path / "pile" / "a" / "2.png", png(pixels(1)))
    (tmp_path / "pile" / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "pile" / "a" / "back").symlink_to(tmp_path / "pile")
    (tmp_path / "pile" / "a" / "self").symlink_to(tmp_path / "pile" / "a")
    assert_holds(data.load(f"folder:{tmp_path / 'pile'}"), [pixels(1), pixels(0)], [0, 1], ["a", "b"])


def test_links_in_a_circle_give_each_image_once_and_under_the_name_without_a_link(tmp_path):
    for name in ("a/1.png", "a/2.png", "b/3.png"):
        write(tmp_path / "pile" / name, png(pixels(0)))
    (tmp_path / "pile" / "a" / "x").symlink_to("../b")
    (tmp_path / "pile" / "b" / "y").symlink_to("../a")
    assert image_files(tmp_path / "pile") == ["a/1.png", "a/2.png", "b/3.png"]


def test_links_in_a_circle_outside_the_folder_end_too(tmp_path):
    write(tmp_path / "far" / "a" / "1.png", png(pixels(0)))
    write(tmp_path / "far" / "b" / "2.png", png(pixels(0)))
    (tmp_path / "far" / "a" / "x").symlink_to("../b")
    (tmp_path / "far" / "b" / "y").symlink_to("../a")
    write(tmp_path / "pile" / "3.png", png(pixels(0)))
    (tmp_path / "pile" / "link").symlink_to(tmp_path / "far" / "a")
    assert image_files(tmp_path / "pile") == ["3.png", "link/1.png", "link/x/2.png"]


def test_a_folder_that_cannot_be_read_is_left_out_with_one_warning_unless_it_is_the_one_asked_for(
    tmp_path, monkeypatch, caplog
):
    for name in ("1.png", "shut/2.png", "shut/below/3.png", "open/4.png"):
        write(tmp_path / "pile" / name, png(pixels(0)))
    real = os.scandir

    def guarded(path):
        if os.path.basename(path) == "shut":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", guarded)
    assert image_files(tmp_path / "pile") == image_files(tmp_path / "pile") == ["1.png", "open/4.png"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{tmp_path / 'pile' / 'shut'}, which cannot be read: Permission denied" in caplog.text
    with pytest.raises(DataError, match=r"cannot read the folder .*shut: Permission denied"):
        image_files(tmp_path / "pile" / "shut")


def test_a_folder_that_vanishes_after_it_was_listed_is_left_out(tmp_path, monkeypatch, caplog):
    for name in ("1.png", "gone/2.png", "here/3.png"):
        write(tmp_path / "pile" / name, png(pixels(0)))
    real = os.stat

    def and_remove(path, **options):
        if os.path.basename(path) == "gone":
            shutil.rmtree(path)
        return real(path, **options)

    monkeypatch.setattr(os, "stat", and_remove)
    assert image_files(tmp_path / "pile") == ["1.png", "here/3.png"]
    assert "gone, which cannot be read: No such file" in caplog.text


def test_a_folder_with_file_names_that_are_not_utf8_is_loaded(tmp_path):
    write(tmp_path / "pile" / os.fsdecode(b"caf\xe9.png"), png(pixels(0)))
    assert_holds(data.load(f"folder:{tmp_path / 'pile'}"), [pixels(0)])


def test_a_pipe_with_the_name_of_an_image_is_none(tmp_path):
    write(tmp_path / "pile" / "1.png", png(pixels(0)))
    os.mkfifo(tmp_path / "pile" / "2.png")
    (tmp_path / "pile" / "3.png").symlink_to("2.png")
    assert image_files(tmp_path / "pile") == ["1.png"]
    with pytest.raises(BadImage, match="it is not a regular file"):
        decode(tmp_path / "pile" / "2.png", 32)


def test_photographs_of_kinds_that_are_not_read_are_told_of_once(tmp_path, caplog):
    (tmp_path / "a").mkdir()
    for name in ("1.png", "2.HEIC", "a/3.heic", "a/4.avif", "notes.txt"):
        (tmp_path / name).touch()
    assert image_files(tmp_path) == image_files(tmp_path) == ["1.png"]
    assert sorted(caplog.messages) == [
        f"left out the {suffix} files below {tmp_path}, a kind that is not read; convert them to JPEG or PNG"
        for suffix in (".avif", ".heic")
    ]


def test_a_folder_with_splits_gives_the_asked_one_and_one_without_has_no_test(tmp_path):
    write(tmp_path / "s" / "train" / "1.png", png(pixels(0)))
    write(tmp_path / "s" / "val" / "1.png", png(pixels(1)))
    assert_holds(data.load(f"folder:{tmp_path / 's'}", split="test"), [pixels(1)])
    with pytest.raises(DataError, match="has no test split"):
        data.load(f"folder:{tmp_path / 's' / 'train'}", split="test")


@pytest.mark.parametrize(("train", "test"), [("Train", "Test"), ("TRAINING", "Testing")])
def test_folders_of_splits_may_have_capital_letters(tmp_path, train, test):
    write(tmp_path / "s" / train / "cat" / "1.png", png(pixels(0)))
    write(tmp_path / "s" / test / "dog" / "1.png", png(pixels(1)))
    assert_holds(data.load(f"folder:{tmp_path / 's'}"), [pixels(0)], [0], ["cat", "dog"])
    assert_holds(data.load(f"folder:{tmp_path / 's'}", split="test"), [pixels(1)], [1], ["cat", "dog"])


def test_a_class_that_is_called_train_is_told_of(tmp_path, caplog):
    for name in ("bus", "train", ".git"):
        write(tmp_path / "s" / name / "1.png", png(pixels(0)))
    (tmp_path / "s" / "notes").mkdir()
    assert len(data.load(f"folder:{tmp_path / 's'}")) == 1
    [warning] = caplog.messages
    assert warning.startswith(f"left out the images in {tmp_path / 's' / 'bus'}, since ")
    caplog.clear()
    shutil.move(tmp_path / "s" / "bus", tmp_path / "s" / "Val")
    assert len(data.load(f"folder:{tmp_path / 's'}")) == 1
    assert caplog.messages == []


def test_test_images_are_no_pile_to_train_on(tmp_path):
    write(tmp_path / "s" / "test" / "cat" / "1.png", png(pixels(0)))
    with pytest.raises(DataError, match="has no train split"):
        data.load(f"folder:{tmp_path / 's'}")


def test_a_link_that_was_left_out_leaves_the_times_of_the_rest(tmp_path):
    path = write(tmp_path / "pile" / "1.png", png(pixels(0)))
    os.utime(path, (1000, 1000))
    (tmp_path / "pile" / "2.png").symlink_to("gone.png")
    source = data.load(f"folder:{tmp_path / 'pile'}", on_bad_image="skip")
    assert source.column("mtime").tolist() == [1000 * 10**9]


@pytest.mark.parametrize(("suffix", "mode"), [("tar", "w"), ("tar.gz", "w:gz")])
def test_webdataset_shards_are_read_in_order_with_their_labels(tmp_path, suffix, mode):
    for shard in range(2):
        members = {}
        for number in range(3):
            members[f"{number:06d}.png"] = png(pixels(10 * shard + number))
            members[f"{number:06d}.cls"] = str(number).encode()
            members[f"{number:06d}.json"] = b"{}"
        make_tar(tmp_path / f"shard-{shard:04d}.{suffix}", members, mode)
    expected = [pixels(10 * shard + number) for shard in range(2) for number in range(3)]
    assert_holds(data.load(f"tar:{tmp_path}"), expected, [0, 1, 2, 0, 1, 2])
    assert_holds(data.load(f"tar:{tmp_path / f'shard-*.{suffix}'}"), expected, [0, 1, 2, 0, 1, 2])
    assert len(data.load(f"tar:{tmp_path / f'shard-0001.{suffix}'}")) == 3


def test_images_of_a_tar_that_are_left_out_for_their_dots_are_told_of(tmp_path, caplog):
    warn_once.cache_clear()
    make_tar(tmp_path / "a.tar", {"1690.25.png": png(pixels(0)), "1691.png": png(pixels(1))}, "w")
    assert_holds(data.load(f"tar:{tmp_path / 'a.tar'}"), [pixels(1)])
    assert "left out images of tar files with more than one dot in their names" in caplog.text


def test_the_second_image_of_a_sample_in_a_tar_is_refused_or_left_out(tmp_path):
    members = {"x.png": png(pixels(0)), "x.jpg": b"", "x.cls": b"1", "y.png": png(pixels(1)), "y.cls": b"0"}
    make_tar(tmp_path / "a.tar", members, "w")
    with pytest.raises(DataError, match=r"x\.jpg cannot be used: its sample has another image, x\.png"):
        data.load(f"tar:{tmp_path / 'a.tar'}")[0]
    assert_holds(data.load(f"tar:{tmp_path / 'a.tar'}", on_bad_image="skip"), [pixels(0), pixels(1)], [1, 0])


def test_tars_without_labels_and_named_labels(tmp_path):
    make_tar(tmp_path / "a.tar", {"x.png": png(pixels(0)), "y.png": png(pixels(1))}, "w")
    assert_holds(data.load(f"tar:{tmp_path / 'a.tar'}"), [pixels(0), pixels(1)])
    members = {"x.cls": b"dog\n", "x.png": png(pixels(0)), "y.png": png(pixels(1)), "y.cls": b"cat"}
    make_tar(tmp_path / "b.tar", members, "w")
    assert_holds(data.load(f"tar:{tmp_path / 'b.tar'}"), [pixels(0), pixels(1)], [1, 0], ["cat", "dog"])


def test_labels_that_cannot_be_used_are_told_of(tmp_path, caplog):
    images = {f"{number}.png": png(pixels(number)) for number in range(3)}
    warn_once.cache_clear()
    make_tar(tmp_path / "apart.tar", {**images, "0.cls": b"0", "1.cls": b"1", "2.cls": b"2"}, "w")
    assert data.load(f"tar:{tmp_path / 'apart.tar'}").labels is None
    assert "labels of tar files that lie beside no image" in caplog.text
    caplog.clear()
    make_tar(tmp_path / "some.tar", dict(sorted({**images, "0.cls": b"0", "1.cls": b"-1"}.items())), "w")
    assert data.load(f"tar:{tmp_path / 'some.tar'}").labels is None
    assert "2 of 3 images have no label" in caplog.text


# Every format ---------------------------------------------------------------------------------------------------------


def parquet_origin(tmp_path):
    for shard, count in enumerate((300, 1, 5)):  # more rows than are read at once, and fewer
        rows = [b"%d-%d" % (shard, number) for number in range(count)]
        pq.write_table(pa.table({"image": rows, "label": list(range(count))}), tmp_path / f"{shard}.parquet")
    return ParquetReader(sorted(tmp_path.glob("*.parquet")))


def tar_origin(tmp_path):
    for shard in range(2):
        make_tar(tmp_path / f"{shard}.tar", {f"{i}.png": b"%d-%d" % (shard, i) for i in range(4)}, "w")
    return TarReader(sorted(tmp_path.glob("*.tar")))


def files_origin(tmp_path):
    for number in range(5):
        write(tmp_path / f"{number}.png", b"")
    return any_folder(tmp_path)


def cifar_origin(tmp_path):
    for number in range(1, 6):
        content = cifar_batch([pixels(number), pixels(-number % 99)], b"labels", [number, 0])
        write(tmp_path / f"data_batch_{number}", content)
    return CifarReader(tmp_path, CIFAR10, "train")


def svhn_origin(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")
    scipy_io.savemat(tmp_path / "train_32x32.mat", {"X": pixels(0, 32, 32, 3, 6), "y": [[1]] * 6})
    return SvhnReader(tmp_path / "train_32x32.mat")


@pytest.mark.parametrize("make", [parquet_origin, tar_origin, files_origin, cifar_origin, svhn_origin])
def test_going_on_from_any_position_gives_the_rest(tmp_path, make):
    origin = make(tmp_path)
    every = [(item.name, item.label) for item in origin.items()]
    assert len(set(every)) == len(every)
    assert origin.count() in (None, len(every))
    for start in {0, 1, 2, 3, 4, 255, 256, 257, 299, 300, 301, len(every) - 1, len(every)}:
        assert [(item.name, item.label) for item in origin.items(start)] == every[start:]


@pytest.mark.parametrize("make", [parquet_origin, tar_origin])
def test_linked_shards_are_read_in_the_order_of_their_own_names(tmp_path, make):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "links").mkdir()
    origin = make(tmp_path / "blobs")
    names = [item.name for item in origin.items()]
    shards = sorted((tmp_path / "blobs").iterdir())
    links = [tmp_path / "links" / f"{number}{shard.suffix}" for number, shard in enumerate(reversed(shards))]
    for link, shard in zip(links, reversed(shards), strict=True):  # as in the cache of the Hub's client
        link.symlink_to(shard)
    linked = [item.name for item in type(origin)(links).items()]
    assert sorted(linked) == sorted(names)
    assert linked[0].startswith(str(shards[-1]))


# Iterables, shapes, names ---------------------------------------------------------------------------------------------


def test_any_iterable_of_images_becomes_a_source():
    array = pixels(0)
    kinds = (each for each in [array, torch.from_numpy(chw(array).copy()), Image.fromarray(array), png(array)])
    assert_holds(data.from_iterable(kinds), [array] * 4)


@pytest.mark.parametrize("made", [lambda array: array, torch.from_numpy])
def test_an_iterable_may_use_one_array_for_all_its_images(made):
    def frames():
        grey = np.empty((8, 8), dtype=np.uint8)
        for value in range(3):
            grey[:] = value
            yield made(grey)

    assert data.from_iterable(frames()).images(range(3))[:, 0, 0, 0].tolist() == [0, 1, 2]


def opened_and_closed(folder):
    for value in range(4):
        write(folder / "now.png", png(np.full((8, 8, 3), 50 * value, np.uint8)))
        with Image.open(folder / "now.png") as image:
            yield image


def one_canvas(folder):
    canvas = Image.new("RGB", (8, 8))
    for value in range(4):
        canvas.paste((50 * value,) * 3, (0, 0, 8, 8))
        yield canvas


def an_animation(folder):
    frames = [Image.new("L", (8, 8), 50 * value) for value in range(4)]
    frames[0].save(folder / "moving.gif", save_all=True, append_images=frames[1:])
    yield from ImageSequence.Iterator(Image.open(folder / "moving.gif"))


@pytest.mark.parametrize("images", [opened_and_closed, one_canvas, an_animation])
def test_an_iterable_may_change_or_close_an_image_when_it_goes_on(images, tmp_path):
    assert data.from_iterable(images(tmp_path)).images(range(4))[:, 0, 0, 0].tolist() == [0, 50, 100, 150]


def test_an_image_that_is_closed_already_is_a_bad_one(tmp_path):
    write(tmp_path / "a.png", png(pixels(0)))
    with Image.open(tmp_path / "a.png") as closed:
        pass
    with pytest.raises(DataError, match=r"iterable:0 cannot be used: its file was closed .* call load\(\)"):
        data.from_iterable([closed])


def test_grey_and_transparent_arrays_become_rgb():
    grey = pixels(0, 8, 8)
    clear = np.dstack([pixels(1, 8, 8, 3), np.zeros((8, 8), dtype=np.uint8)])
    source = data.from_iterable([grey, grey[..., None], torch.from_numpy(grey), torch.from_numpy(grey)[None], clear])
    expected = [np.dstack([grey] * 3)] * 4 + [np.full((8, 8, 3), 255, dtype=np.uint8)]
    assert_holds(source, expected)


def test_an_iterable_of_something_else_is_refused():
    with pytest.raises(DataError, match="iterable:1 cannot be used: it is a str, not an image; make a path of it"):
        data.from_iterable([pixels(0), "picture"])
    with pytest.raises(DataError, match="pixels are int64, not uint8"):
        data.from_iterable([np.zeros((8, 8, 3), dtype=np.int64)])
    with pytest.raises(DataError, match="there are no images in iterable"):
        data.from_iterable([])


def test_images_of_odd_numbers_and_empty_images_are_refused():
    with pytest.raises(DataError, match=r"pixels are torch\.bfloat16, not uint8"):
        data.from_iterable([torch.zeros(3, 8, 8, dtype=torch.bfloat16)])
    for empty in (np.zeros((0, 0, 3), dtype=np.uint8), Image.new("RGB", (0, 0))):
        with pytest.raises(DataError, match="it has no pixels"):
            data.from_iterable([empty])


def test_an_iterable_leaves_nothing_behind(own_cache):
    data.from_iterable([pixels(0)])
    assert list(own_cache.iterdir()) == []


def test_shapes_are_balanced_and_differ_between_splits():
    train, test = data.load("shapes"), data.load("shapes", split="test")
    assert train.labels.bincount().tolist() == [500] * 18
    assert test.labels.bincount().tolist() == [100] * 18
    assert not torch.equal(train.images(range(100)), test.images(range(100)))
    assert data.load("shapes", image_size=16, split="test").image_size == 16


def test_unknown_names_splits_and_modes_are_refused_with_the_nearest_known():
    with pytest.raises(ConfigError, match="unknown data set 'cifar-100'; did you mean 'cifar100'"):
        data.load("cifar-100")
    with pytest.raises(ConfigError, match="unknown split 'tset'; did you mean 'test'"):
        data.load("shapes", split="tset")
    with pytest.raises(ConfigError, match="unknown on_bad_image 'skp'; did you mean 'skip'"):
        data.load("shapes", on_bad_image="skp")
    for size in (0, 8.5, "32"):
        with pytest.raises(ConfigError, match=f"image_size must be .* a whole number above 0, not {size!r}"):
            data.load("shapes", image_size=size)
    with pytest.raises(DataError, match="needs a path after the colon"):
        data.load("folder:")
    with pytest.raises(DataError, match=r"there is no \.parquet file at"):
        data.load("parquet:/nowhere/at/all")


def test_the_root_comes_from_the_environment(tmp_path, monkeypatch):
    write_parquet(tmp_path / "cifar100" / "train-0.parquet", [pixels(0)], [0])
    monkeypatch.setenv("OCSSL_DATA", str(tmp_path))
    assert_holds(data.load("cifar100"), [pixels(0)], [0])


def test_an_address_below_the_usual_root_is_looked_for_below_the_root_that_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_parquet(tmp_path / "root" / "photos" / "train-0.parquet", [pixels(0)], [0])
    write_parquet(tmp_path / "data" / "own" / "train-0.parquet", [pixels(1)], [1])
    assert_holds(data.load("parquet:data/photos", root=tmp_path / "root"), [pixels(0)], [0])
    assert status("parquet:data/photos", "train", root="root").state == "ready"
    monkeypatch.setenv("OCSSL_DATA", str(tmp_path / "root"))
    assert_holds(data.load("parquet:data/photos"), [pixels(0)], [0])
    assert_holds(data.load("parquet:data/own"), [pixels(1)], [1])
    write_parquet(tmp_path / "root" / "own" / "train-0.parquet", [pixels(2)], [2])
    assert_holds(data.load("parquet:data/own"), [pixels(1)], [1])  # what is there is meant
    with pytest.raises(DataError, match=f"there is no folder {tmp_path}/root/none"):
        data.load("folder:data/none")


@pytest.mark.parametrize("root", ["~nobody-of-this-name/data", "x" * 5000])
def test_a_root_that_cannot_be_a_path_is_one_sentence(root):
    with pytest.raises(DataError, match="cannot be a path: "):
        data.load("cifar100", root=root, download=False)


def test_a_cache_of_nobody_is_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OCSSL_CACHE", "~nobody-of-this-name")
    assert len(data.from_iterable([pixels(0)])) == 1
    assert (tmp_path / "~nobody-of-this-name").is_dir()
