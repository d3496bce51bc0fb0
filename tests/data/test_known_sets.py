"""The known sets, each in real files of its usual layouts, read back bit by bit."""

from __future__ import annotations

import pickle
import sys
import tarfile

import numpy as np
import pytest
import torch
from pictures import assert_holds, cifar_batch, encoded, make_tar, pixels, png, write, write_parquet
from PIL import Image

from ocssl import data
from ocssl.data import catalog
from ocssl.data.dataset import DatasetInfo, ResidentDataset
from ocssl.data.formats.imagenet import authors_classes, customary_classes
from ocssl.errors import ConfigError, DataError, InputError, MissingExtraError

# CIFAR ----------------------------------------------------------------------------------------------------------------


def cifar100_files():
    train, test = [pixels(i) for i in range(5)], [pixels(10 + i) for i in range(3)]
    names = {b"fine_label_names": [f"class{i}".encode() for i in range(100)], b"coarse_label_names": [b"x"]}
    files = {
        "meta": pickle.dumps(names, protocol=2),
        "train": cifar_batch(train, b"fine_labels", [4, 99, 0, 7, 4]),
        "test": cifar_batch(test, b"fine_labels", [1, 2, 3]),
    }
    return files, train, test


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


def test_a_cifar_archive_with_a_damaged_header_is_named(tmp_path):
    with tarfile.open(tmp_path / "cifar-100-python.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("cifar-100-python/train")
        member.pax_headers = {"GNU.sparse.map": "no numbers"}
        archive.addfile(member)
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


@pytest.mark.parametrize(("home", "packed"), [("", True), ("SVHN", False)])
def test_svhn_is_read_from_matlab_files_and_its_tens_are_zeros(tmp_path, home, packed):
    scipy_io = pytest.importorskip("scipy.io")
    images = [pixels(i) for i in range(4)]
    (tmp_path / home).mkdir(exist_ok=True)
    content = {"X": np.stack(images, axis=-1), "y": np.array([[1], [10], [9], [10]], dtype=np.uint8)}
    scipy_io.savemat(tmp_path / home / "train_32x32.mat", content, do_compression=packed)
    assert_holds(data.load("svhn", root=tmp_path), images, [1, 0, 9, 0], "0123456789")


def test_a_broken_matlab_file_is_named(tmp_path):
    write(tmp_path / "train_32x32.mat", b"MATLAB 5.0 MAT-file" + bytes(300))
    with pytest.raises(DataError, match=r"train_32x32\.mat is not a readable SVHN file"):
        data.load("svhn", root=tmp_path)


# ImageNet -------------------------------------------------------------------------------------------------------------


def jpeg(seed, width, height):
    return encoded(Image.fromarray(pixels(seed, height, width, 3)), "JPEG", quality=95)


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
    write(tree / "val" / "val_annotations.txt", b"val_0.png\tn03\t0\t0\t9\t9\nval_1.png\tn01\t0\t0\t9\t9\n\n")
    for number in range(2):
        write(tree / "val" / "images" / f"val_{number}.png", png(pixels(20 + number, 64, 64, 3)))
    assert_holds(data.load("tiny-imagenet", root=tmp_path), list(images.values()), [0, 1, 2], ["n01", "n02", "n03"])
    test = [pixels(20, 64, 64, 3), pixels(21, 64, 64, 3)]
    assert_holds(data.load("tiny-imagenet", root=tmp_path, split="test"), test, [2, 0], ["n01", "n02", "n03"])


def test_cars_are_read_from_class_folders_with_one_numbering_for_both_splits(tmp_path):
    for split, makes in {"train": ["Audi", "BMW", "Fiat"], "test": ["Fiat"]}.items():
        for number, make in enumerate(makes):
            write(tmp_path / "stanford_cars" / split / make / "1.jpg", jpeg(number, 50, 40))
    (tmp_path / "stanford_cars" / "train" / "annotations").mkdir()  # a folder without images is no class
    test = data.load("cars", root=tmp_path, split="test", image_size=16)
    assert test.labels.tolist() == [2]
    assert test.classes == ("Audi", "BMW", "Fiat")


@pytest.mark.parametrize("name", ["imagenet100", "imagenet100:authors", "tiny-imagenet", "cars"])
def test_a_missing_set_says_what_to_fetch_and_where_to_put_it(tmp_path, name):
    with pytest.raises(DataError, match=rf"{name} \(train\) was not found below .*: .*(get|unpack|put) "):
        data.load(name, root=tmp_path)


# Known sets as parquet ------------------------------------------------------------------------------------------------


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


# Optional packages ----------------------------------------------------------------------------------------------------


def test_a_missing_package_is_named_with_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ocssl\[hub\]'"):
        data.load("hf:owner/set", root=tmp_path)


# ------------------------------------------------------------------------------------------------- sets of a plugin

BLANK = torch.zeros(4, 3, 8, 8, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("drawn", "complaint"),
    [
        (lambda split, size: (BLANK, torch.arange(4)), "data set 'mine' must be drawn as a Dataset, not tuple"),
        (
            lambda split, size: ResidentDataset(BLANK, DatasetInfo("mine"), [0, 1, 2, 3]),
            "labels of data set 'mine' must be a tensor of int64, not list",
        ),
        (
            lambda split, size: ResidentDataset(BLANK, DatasetInfo("mine"), torch.zeros(4)),
            "labels of data set 'mine' must be a tensor of int64, not torch.float32",
        ),
    ],
)
def test_a_set_that_is_drawn_wrongly_is_refused(monkeypatch, drawn, complaint):
    spec = catalog.DatasetSpec("mine", "four blanks", "nothing is needed", 8, drawn=drawn)
    monkeypatch.setitem(catalog.registry._entries, "mine", spec)
    with pytest.raises((ConfigError, InputError), match=complaint):
        data.load("mine")


def test_a_class_registered_as_a_data_set_is_refused(monkeypatch):
    monkeypatch.setitem(catalog.registry._entries, "mine", ResidentDataset)
    with pytest.raises(ConfigError, match="data set 'mine' must be registered as a DatasetSpec, not as <class"):
        data.load("mine")
