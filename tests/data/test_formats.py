"""Each format, on real files of that format, read back bit by bit."""

from __future__ import annotations

import io
import json
import os
import pickle
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pictures import chw, pixels, png, write
from PIL import Image

from ocssl import data
from ocssl.data.formats.imagenet import authors_classes, customary_classes
from ocssl.errors import ConfigError, DataError


def assert_holds(source, images, labels=None, classes=None):
    """The source gives exactly these (H, W, 3) images, in order, with these labels."""
    assert len(source) == len(images)
    expected = torch.from_numpy(np.stack([chw(image) for image in images]))
    assert torch.equal(source.images(range(len(images))), expected)
    assert source.image_size == images[0].shape[0]
    assert (source.labels is None) == (labels is None)
    if labels is not None:
        assert source.labels.dtype == torch.int64
        assert source.labels.tolist() == labels
    if classes is not None:
        assert source.classes == tuple(classes)


# CIFAR ----------------------------------------------------------------------------------------------------------------


def cifar_batch(images, label_key, labels):
    rows = np.stack([chw(image).reshape(-1) for image in images])
    return pickle.dumps({b"data": rows, label_key: labels, b"batch_label": b"test"}, protocol=2)


def cifar100_files():
    train, test = [pixels(i) for i in range(5)], [pixels(10 + i) for i in range(3)]
    names = {b"fine_label_names": [f"class{i}".encode() for i in range(100)], b"coarse_label_names": [b"x"]}
    files = {
        "meta": pickle.dumps(names, protocol=2),
        "train": cifar_batch(train, b"fine_labels", [4, 99, 0, 7, 4]),
        "test": cifar_batch(test, b"fine_labels", [1, 2, 3]),
    }
    return files, train, test


def make_tar(path, members, mode="w:gz"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("home", ["", "cifar100", "CIFAR-100"])
def test_cifar100_is_read_from_the_official_archive(tmp_path, home):
    files, train, test = cifar100_files()
    members = {f"cifar-100-python/{name}": content for name, content in files.items()}
    make_tar(tmp_path / home / "cifar-100-python.tar.gz", members)
    classes = [f"class{i}" for i in range(100)]
    assert_holds(data.load("cifar100", root=tmp_path), train, [4, 99, 0, 7, 4], classes)
    assert_holds(data.load("cifar100", root=tmp_path, split="test"), test, [1, 2, 3], classes)


@pytest.mark.parametrize(("home", "root"), [("cifar-100-python", ""), ("cifar100/cifar-100-python", ""), ("C", "C")])
def test_cifar100_is_read_from_unpacked_files(tmp_path, home, root):
    files, train, _ = cifar100_files()
    for name, content in files.items():
        write(tmp_path / home / name, content)
    assert_holds(data.load("cifar100", root=tmp_path / root), train, [4, 99, 0, 7, 4])


def test_cifar10_joins_its_five_batches_in_order(tmp_path):
    images = [pixels(i) for i in range(10)]
    members = {"cifar-10-batches-py/batches.meta": pickle.dumps({"label_names": [str(i) for i in range(10)]}, 2)}
    for number in range(1, 6):
        content = cifar_batch(images[2 * number - 2 : 2 * number], b"labels", [number, 0])
        members[f"cifar-10-batches-py/data_batch_{number}"] = content
    make_tar(tmp_path / "cifar-10-python.tar.gz", members)
    source = data.load("cifar10", root=tmp_path)
    assert_holds(source, images, [1, 0, 2, 0, 3, 0, 4, 0, 5, 0], "0123456789")


def test_a_cut_off_cifar_archive_is_named(tmp_path):
    files, _, _ = cifar100_files()
    archive = make_tar(tmp_path / "cifar-100-python.tar.gz", {"cifar-100-python/train": files["train"]})
    archive.write_bytes(archive.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"cannot read train from .*cifar-100-python\.tar\.gz"):
        data.load("cifar100", root=tmp_path)


def test_a_link_in_a_cifar_archive_is_not_followed(tmp_path):
    with tarfile.open(tmp_path / "cifar-100-python.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("cifar-100-python/train")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(DataError, match="the member cifar-100-python/train is a link"):
        data.load("cifar100", root=tmp_path)


# SVHN -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("home", ["", "SVHN"])
def test_svhn_is_read_from_matlab_files_and_its_tens_are_zeros(tmp_path, home):
    scipy_io = pytest.importorskip("scipy.io")
    images = [pixels(i) for i in range(4)]
    (tmp_path / home).mkdir(exist_ok=True)
    content = {"X": np.stack(images, axis=-1), "y": np.array([[1], [10], [9], [10]], dtype=np.uint8)}
    scipy_io.savemat(tmp_path / home / "train_32x32.mat", content)
    assert_holds(data.load("svhn", root=tmp_path), images, [1, 0, 9, 0], "0123456789")


def test_a_broken_matlab_file_is_named(tmp_path):
    pytest.importorskip("scipy")
    write(tmp_path / "train_32x32.mat", b"MATLAB 5.0 MAT-file" + bytes(300))
    with pytest.raises(DataError, match=r"train_32x32\.mat is not a readable SVHN file"):
        data.load("svhn", root=tmp_path)


# ImageNet -------------------------------------------------------------------------------------------------------------


def jpeg(seed, width, height):
    buffer = io.BytesIO()
    Image.fromarray(pixels(seed, height, width, 3)).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


@pytest.mark.parametrize("home", ["imagenet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC"])
def test_imagenet100_takes_the_customary_classes_from_ilsvrc_folders(tmp_path, home):
    classes = customary_classes()
    others = ["n01440764", "n15075141"]
    for number, synset in enumerate([*classes, *others]):
        for split in ("train", "val"):
            write(tmp_path / home / split / synset / f"{synset}_{split}.JPEG", jpeg(number, 40, 30))
    source = data.load("imagenet100", root=tmp_path, image_size=16)
    assert len(source) == 100
    assert source.classes == classes
    assert sorted(source.labels.tolist()) == list(range(100))
    # Files come sorted by synset, labels in the list's own order.
    assert source.labels.tolist() == [classes.index(synset) for synset in sorted(classes)]
    assert len(data.load("imagenet100", root=tmp_path, image_size=16, split="test")) == 100


def test_the_customary_list_is_the_published_one():
    classes = customary_classes()
    assert len(set(classes)) == 100
    assert (classes[0], classes[1], classes[-1]) == ("n02869837", "n01749939", "n02090622")


def test_the_authors_draw_is_pythons_sample_from_seed_42():
    synsets = [f"n{number:08d}" for number in range(1000)]
    drawn = authors_classes(synsets)
    assert len(set(drawn)) == 100
    assert drawn[:5] == ("n00000654", "n00000114", "n00000025", "n00000759", "n00000281")
    assert authors_classes(synsets, seed=7) != drawn
    with pytest.raises(DataError, match="1,000 class folders, and there are 100"):
        authors_classes(synsets[:100])


def test_the_authors_classes_are_found_in_a_full_tree(tmp_path):
    synsets = [f"n{number:08d}" for number in range(1000)]
    for synset in synsets:
        (tmp_path / "imagenet" / "train" / synset).mkdir(parents=True)
    chosen = authors_classes(synsets, seed=7)
    for number, synset in enumerate(chosen):
        write(tmp_path / "imagenet" / "train" / synset / "a.JPEG", jpeg(number, 20, 20))
    source = data.load("imagenet100:authors:7", root=tmp_path, image_size=8)
    assert source.classes == chosen
    with pytest.raises(ConfigError, match="must be a whole number"):
        data.load("imagenet100:authors:x", root=tmp_path)


def test_flat_validation_images_are_explained(tmp_path):
    write(tmp_path / "imagenet" / "val" / "ILSVRC2012_val_00000001.JPEG", jpeg(0, 20, 20))
    with pytest.raises(DataError, match="has no class folders"):
        data.load("imagenet100", root=tmp_path, split="test")


def test_the_tiny_imagenet_tree_is_read(tmp_path):
    tree, images = tmp_path / "tiny-imagenet-200", {}
    synsets = ["n02", "n01", "n03"]
    write(tree / "wnids.txt", "\n".join(synsets).encode())
    for number, synset in enumerate(sorted(synsets)):
        images[synset] = pixels(number, 64, 64, 3)
        write(tree / "train" / synset / "images" / f"{synset}_0.png", png(images[synset]))
        write(tree / "train" / synset / f"{synset}_boxes.txt", b"0 0 1 1")
    write(tree / "val" / "val_annotations.txt", b"val_0.png\tn03\t0\t0\t9\t9\nval_1.png\tn01\t0\t0\t9\t9\n")
    for number in range(2):
        write(tree / "val" / "images" / f"val_{number}.png", png(pixels(20 + number, 64, 64, 3)))
    assert_holds(data.load("tiny-imagenet", root=tmp_path), list(images.values()), [0, 1, 2], ["n01", "n02", "n03"])
    test = [pixels(20, 64, 64, 3), pixels(21, 64, 64, 3)]
    assert_holds(data.load("tiny-imagenet", root=tmp_path, split="test"), test, [2, 0], ["n01", "n02", "n03"])


def test_cars_are_read_from_class_folders_with_one_numbering_for_both_splits(tmp_path):
    for split, makes in {"train": ["Audi", "BMW", "Fiat"], "test": ["Fiat"]}.items():
        for number, make in enumerate(makes):
            write(tmp_path / "stanford_cars" / split / make / "1.jpg", jpeg(number, 50, 40))
    test = data.load("cars", root=tmp_path, split="test", image_size=16)
    assert test.labels.tolist() == [2]
    assert test.classes == ("Audi", "BMW", "Fiat")


@pytest.mark.parametrize("name", ["imagenet100", "imagenet100:authors", "tiny-imagenet", "cars"])
def test_a_missing_set_says_what_to_fetch_and_where_to_put_it(tmp_path, name):
    with pytest.raises(DataError, match=rf"{name} \(train\) was not found below .*: .*(get|unpack|put) "):
        data.load(name, root=tmp_path)


# Parquet --------------------------------------------------------------------------------------------------------------


def write_parquet(path, images, labels=None, *, image="img", label="fine_label", names=None, **columns):
    table = {image: [{"bytes": png(each), "path": None} for each in images], **columns}
    features = {image: {"_type": "Image"}}
    if labels is not None:
        table[label] = labels
        features[label] = {"names": names, "_type": "ClassLabel"} if names else {"dtype": "int64", "_type": "Value"}
    schema = pa.table(table)
    schema = schema.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(schema, path, row_group_size=2)


@pytest.mark.parametrize("home", ["cifar100", "cifar100/data", "cifar100/cifar100"])
@pytest.mark.parametrize("at_the_root", [True, False])
def test_cifar100_is_found_as_hugging_face_parquet(tmp_path, home, at_the_root):
    images = [pixels(i) for i in range(5)]
    write_parquet(tmp_path / home / "train-00000-of-00002.parquet", images[:3], [3, 1, 2], names=list("abcd"))
    write_parquet(tmp_path / home / "train-00001-of-00002.parquet", images[3:], [0, 0], names=list("abcd"))
    write_parquet(tmp_path / home / "test-00000-of-00001.parquet", images[:1], [1], names=list("abcd"))
    root = tmp_path if at_the_root else tmp_path / "cifar100"
    assert_holds(data.load("cifar100", root=root), images, [3, 1, 2, 0, 0], "abcd")
    assert_holds(data.load("cifar100", root=root, split="test"), images[:1], [1], "abcd")


def test_one_sets_parquet_is_not_taken_for_another(tmp_path):
    write_parquet(tmp_path / "cifar100" / "train-00000-of-00001.parquet", [pixels(0)], [0])
    for root in (tmp_path, tmp_path / "cifar100"):
        with pytest.raises(DataError, match=r"cifar10 .* was not found"):
            data.load("cifar10", root=root, download=False)


def test_a_full_imagenet_in_parquet_is_not_taken_for_100_classes(tmp_path):
    write_parquet(tmp_path / "imagenet" / "train-0.parquet", [pixels(0)], [0])
    for name in ("imagenet100", "imagenet100:authors"):
        with pytest.raises(DataError, match="was not found below"):
            data.load(name, root=tmp_path)


def test_two_sets_in_one_folder_are_not_mixed(tmp_path):
    for config in ("cropped_digits", "full_numbers"):
        write_parquet(tmp_path / "svhn" / config / "train-0.parquet", [pixels(0)], [0])
    with pytest.raises(DataError, match="more than one set: cropped_digits, full_numbers"):
        data.load("svhn", root=tmp_path)


def test_parquet_columns_go_by_other_names_too(tmp_path):
    write_parquet(tmp_path / "a.parquet", [pixels(0), pixels(1)], ["dog", "cat"], image="image", label="label")
    source = data.load(f"parquet:{tmp_path / 'a.parquet'}")
    assert_holds(source, [pixels(0), pixels(1)], [1, 0], ["cat", "dog"])


def test_parquet_without_labels_has_none_and_minus_one_is_no_label(tmp_path):
    write_parquet(tmp_path / "a.parquet", [pixels(0)])
    assert_holds(data.load(f"parquet:{tmp_path}"), [pixels(0)])
    write_parquet(tmp_path / "b" / "a.parquet", [pixels(0), pixels(1)], [-1, -1])
    assert_holds(data.load(f"parquet:{tmp_path / 'b'}"), [pixels(0), pixels(1)])


def test_a_parquet_column_orders_a_stream_and_skipped_rows_leave_it_aligned(tmp_path):
    table = pa.table({"image": [png(pixels(0)), b"broken", png(pixels(2))], "taken_at": [30, 20, 10]})
    pq.write_table(table, tmp_path / "a.parquet")
    source = data.load(f"parquet:{tmp_path}", on_bad_image="skip")
    assert source.column("taken_at").tolist() == [30, 10]
    stream = data.streams.ordered(keys=source.column("taken_at"), stream_batch=2)
    assert [batch.tolist() for batch in stream] == [[1, 0]]
    with pytest.raises(ConfigError, match="no column 'when'"):
        source.column("when")


def test_parquet_without_images_and_broken_parquet_are_named(tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "numbers.parquet")
    with pytest.raises(DataError, match=r"numbers\.parquet has no column of encoded images; it has x"):
        data.load(f"parquet:{tmp_path / 'numbers.parquet'}")
    write(tmp_path / "broken.parquet", b"PAR1 and no more")
    with pytest.raises(DataError, match=r"broken\.parquet is not a readable parquet file"):
        data.load(f"parquet:{tmp_path / 'broken.parquet'}")


def test_the_hub_is_asked_for_the_right_files(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    write_parquet(tmp_path / "plain_text" / "train-00000-of-00001.parquet", [pixels(0)], [0])
    listed = ["README.md", "plain_text/train-00000-of-00001.parquet", "plain_text/test-00000-of-00001.parquet"]
    branches = {None: listed, "refs/convert/parquet": ["default/train/0000.parquet", "other/train/0000.parquet"]}
    asked = []

    def list_files(self, repository, *, repo_type, revision=None):
        assert (repository, repo_type) in {("owner/set", "dataset"), ("owner/converted", "dataset")}
        return ["data.csv"] if repository == "owner/converted" and revision is None else branches[revision]

    def fetch(repository, name, *, repo_type, revision):
        asked.append((repository, name, revision))
        return str(tmp_path / "plain_text" / "train-00000-of-00001.parquet")

    monkeypatch.setattr(hub.HfApi, "list_repo_files", list_files)
    monkeypatch.setattr(hub, "hf_hub_download", fetch)
    assert_holds(data.load("hf:owner/set"), [pixels(0)], [0])
    assert asked == [("owner/set", "plain_text/train-00000-of-00001.parquet", None)]
    with pytest.raises(DataError, match=r"choose a configuration of 'owner/converted'.*default, other"):
        data.load("hf:owner/converted")
    data.load("hf:owner/converted/other")
    assert asked[-1] == ("owner/converted", "other/train/0000.parquet", "refs/convert/parquet")
    with pytest.raises(DataError, match="hf:OWNER/NAME"):
        data.load("hf:nothing")


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


def test_a_folder_with_splits_gives_the_asked_one_and_one_without_has_no_test(tmp_path):
    write(tmp_path / "s" / "train" / "1.png", png(pixels(0)))
    write(tmp_path / "s" / "val" / "1.png", png(pixels(1)))
    assert_holds(data.load(f"folder:{tmp_path / 's'}", split="test"), [pixels(1)])
    with pytest.raises(DataError, match="has no test split"):
        data.load(f"folder:{tmp_path / 's' / 'train'}", split="test")


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


def test_tars_without_labels_and_named_labels(tmp_path):
    make_tar(tmp_path / "a.tar", {"x.png": png(pixels(0)), "y.png": png(pixels(1))}, "w")
    assert_holds(data.load(f"tar:{tmp_path / 'a.tar'}"), [pixels(0), pixels(1)])
    members = {"x.cls": b"dog\n", "x.png": png(pixels(0)), "y.png": png(pixels(1)), "y.cls": b"cat"}
    make_tar(tmp_path / "b.tar", members, "w")
    assert_holds(data.load(f"tar:{tmp_path / 'b.tar'}"), [pixels(0), pixels(1)], [1, 0], ["cat", "dog"])


# Iterables, shapes, names ---------------------------------------------------------------------------------------------


def test_any_iterable_of_images_becomes_a_source():
    array = pixels(0)
    kinds = (each for each in [array, torch.from_numpy(chw(array).copy()), Image.fromarray(array), png(array)])
    assert_holds(data.from_iterable(kinds), [array] * 4)


def test_grey_and_transparent_arrays_become_rgb():
    grey = pixels(0, 8, 8)
    clear = np.dstack([pixels(1, 8, 8, 3), np.zeros((8, 8), dtype=np.uint8)])
    source = data.from_iterable([grey, grey[..., None], torch.from_numpy(grey), torch.from_numpy(grey)[None], clear])
    expected = [np.dstack([grey] * 3)] * 4 + [np.full((8, 8, 3), 255, dtype=np.uint8)]
    assert_holds(source, expected)


def test_an_iterable_of_something_else_is_refused():
    with pytest.raises(DataError, match="iterable:1 cannot be used: it is a str, not an image"):
        data.from_iterable([pixels(0), "picture"])
    with pytest.raises(DataError, match="pixels are float64, not uint8"):
        data.from_iterable([np.zeros((8, 8, 3))])
    with pytest.raises(DataError, match="none of the 0 images"):
        data.from_iterable([])


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
    with pytest.raises(ConfigError, match="image_size must be at least one pixel, not 0"):
        data.load("shapes", image_size=0)
    with pytest.raises(DataError, match="needs a path after the colon"):
        data.load("folder:")
    with pytest.raises(DataError, match=r"there is no \.parquet file at"):
        data.load("parquet:/nowhere/at/all")


def test_the_root_comes_from_the_environment(tmp_path, monkeypatch):
    write_parquet(tmp_path / "cifar100" / "train-0.parquet", [pixels(0)], [0])
    monkeypatch.setenv("OCSSL_DATA", str(tmp_path))
    assert_holds(data.load("cifar100"), [pixels(0)], [0])
