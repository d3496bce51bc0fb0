"""The cache of decoded images: decoded once, resumed after a break, mapped when large, verified on demand."""

from __future__ import annotations

import errno
import os
import threading
import weakref

import numpy as np
import pytest
import torch
from pictures import chw, encoded, pixels, png, write
from PIL import Image

from ocssl import data, imaging
from ocssl.data import cache, cache_writer
from ocssl.data.dataset import MappedDataset, ResidentDataset
from ocssl.errors import ConfigError, DataError, InputError

COUNT, PER_CHUNK = 23, 5


@pytest.fixture
def pile(tmp_path, monkeypatch):
    """23 pictures of 8×8 in two class folders, decoded in chunks of five."""
    for number in range(COUNT):
        write(tmp_path / "pile" / "ab"[number % 2] / f"{number:02d}.png", png(pixels(number, 8, 8, 3)))
    monkeypatch.setattr(cache_writer, "CHUNK_BYTES", PER_CHUNK * 3 * 8 * 8)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    return tmp_path / "pile"


@pytest.fixture
def decoded(monkeypatch):
    """Names of the pictures that were decoded, in order."""
    names = []
    real = imaging.decode

    def recording(picture, *how):
        names.append(picture.name)
        return real(picture, *how)

    monkeypatch.setattr(imaging, "decode", recording)
    return names


def expected():
    numbers = [*range(0, COUNT, 2), *range(1, COUNT, 2)]
    images = torch.from_numpy(np.stack([chw(pixels(number, 8, 8, 3)) for number in numbers]))
    return images, [0] * len(range(0, COUNT, 2)) + [1] * len(range(1, COUNT, 2))


def assert_complete(dataset):
    images, labels = expected()
    assert torch.equal(dataset.images(range(COUNT)), images)
    assert dataset.labels.tolist() == labels
    assert dataset.classes == ("a", "b")


def load(pile, **options):
    return data.load(f"folder:{pile}", image_size=8, **options)


def break_after(monkeypatch, count):
    """Decoding stops with an error after so many pictures."""
    done = []
    real = imaging.decode

    def failing(picture, *how):
        if len(done) == count:
            raise KeyboardInterrupt
        done.append(picture)
        return real(picture, *how)

    monkeypatch.setattr(imaging, "decode", failing)


def test_the_second_start_decodes_nothing(pile, decoded):
    assert_complete(load(pile))
    assert len(decoded) == COUNT
    assert_complete(load(pile))
    assert len(decoded) == COUNT


def test_a_changed_file_is_noticed(pile, decoded):
    load(pile)
    write(pile / "a" / "00.png", png(pixels(99, 8, 8, 3)))
    assert torch.equal(load(pile).images([0])[0], torch.from_numpy(chw(pixels(99, 8, 8, 3)).copy()))
    assert len(decoded) == 2 * COUNT


def test_another_size_is_another_cache(pile):
    load(pile)
    assert data.load(f"folder:{pile}", image_size=4).image_size == 4
    assert_complete(load(pile))


def test_another_pixel_range_is_another_cache(tmp_path):
    values = np.arange(64, dtype=np.uint16).reshape(8, 8) * 65  # 0 … 4095
    path = write(tmp_path / "deep" / "a" / "0.png", png(values))
    dark, bright, whole = (
        load(path.parents[1], pixel_range=given).images([0])[0] for given in (None, (0, 4095), [0, 65_535.0])
    )
    assert (dark.max(), bright.max()) == (15, 255)
    assert np.array_equal(bright, imaging.decode(path, 8, "crop", (0, 4095)))
    assert np.array_equal(whole, imaging.decode(path, 8, "crop", (0, 65_535)))


def test_floats_have_the_size_of_the_first_image_where_their_range_is_given(tmp_path):
    write(tmp_path / "floats" / "0.tiff", encoded(Image.fromarray(np.full((8, 8), 0.5, np.float32)), "TIFF"))
    assert data.load(f"folder:{tmp_path / 'floats'}", pixel_range=(0, 1)).images([0]).unique().tolist() == [128]


@pytest.mark.parametrize("given", [(1, 0), (0, 0), (0,), "ab", 5, (0, float("nan")), (0, float("inf"))])
def test_a_pixel_range_is_two_numbers_the_lower_one_first(pile, given):
    with pytest.raises(ConfigError, match="pixel_range must be two numbers, the lower one first, not"):
        load(pile, pixel_range=given)


def test_an_interrupted_preparation_goes_on_where_it_stopped(pile, own_cache, monkeypatch, decoded):
    with monkeypatch.context() as interrupted:
        break_after(interrupted, 12)
        with pytest.raises(KeyboardInterrupt):
            load(pile)
    before = len(decoded)
    assert_complete(load(pile, verify=True))
    again = len(decoded) - before
    assert COUNT - 12 <= again <= COUNT - PER_CHUNK  # at least one whole chunk was not done twice
    assert not list(own_cache.glob("*.part"))


@pytest.mark.parametrize("damage", ["pixels", "short", "journal", "garbage"])
def test_what_a_break_damaged_is_done_again(pile, own_cache, monkeypatch, damage):
    with monkeypatch.context() as interrupted:
        break_after(interrupted, 22)
        with pytest.raises(KeyboardInterrupt):
            load(pile)
    [draft] = own_cache.glob("*.part")
    images, journal = draft / "images.u8", draft / "journal.jsonl"
    content = bytearray(images.read_bytes())
    if damage == "pixels":
        content[len(content) // 2] ^= 1
        images.write_bytes(content)
    elif damage == "short":
        images.write_bytes(content[: len(content) // 2])
    elif damage == "journal":
        journal.write_text(journal.read_text()[:-20])
    else:
        journal.write_bytes(b"\xff\x00 not json\n" + journal.read_bytes())
    assert_complete(load(pile, verify=True))


def test_verification_finds_a_flipped_bit(pile, own_cache):
    load(pile)
    [images] = own_cache.glob("*/images.u8")
    content = bytearray(images.read_bytes())
    content[700] ^= 1
    images.write_bytes(content)
    load(pile)
    with pytest.raises(DataError, match="is damaged; delete it and prepare it again"):
        load(pile, verify=True)


@pytest.mark.parametrize(
    ("name", "kept"),
    [("images.u8", -100), ("index.json", -100), ("labels.npy", 0), ("labels.npy", -4), ("labels.npy", None)],
)
def test_a_cut_off_cache_is_never_served(pile, own_cache, name, kept):
    load(pile)
    [file] = own_cache.glob(f"*/{name}")
    content = file.read_bytes()
    file.unlink()
    if kept is not None:
        file.write_bytes(content[:kept])
    with pytest.raises(DataError, match="is damaged; delete it and prepare it again"):
        load(pile)


def test_the_cache_may_lie_below_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OCSSL_CACHE", "~/decoded")
    assert cache.cache_root() == tmp_path / "decoded"


def test_large_sets_are_mapped_and_give_the_same_images(pile, monkeypatch):
    assert isinstance(load(pile), ResidentDataset)
    monkeypatch.setattr(cache, "RESIDENT_BYTES", 0)
    monkeypatch.setattr(MappedDataset, "_GIVE_BACK_BYTES", 100)
    dataset = load(pile)
    assert isinstance(dataset, MappedDataset)
    assert_complete(dataset)
    chosen = torch.tensor([7, 0, 7, 22])
    assert torch.equal(dataset.images(chosen), expected()[0][chosen])


@pytest.mark.parametrize("wrong", [torch.arange(COUNT) < 2, [0.5], [-1], [COUNT], 3, [[0, 1]]])
def test_what_is_no_list_of_positions_is_refused(pile, monkeypatch, wrong):
    for limit in (1 << 30, 0):
        monkeypatch.setattr(cache, "RESIDENT_BYTES", limit)
        dataset = load(pile)
        with pytest.raises(InputError, match=r"indices must be whole numbers from 0 to 22, \(n,\), not"):
            dataset.images(wrong)
        assert dataset.images([]).shape == (0, 3, dataset.image_size, dataset.image_size)
        assert torch.equal(dataset.images(np.array([3, 1], np.uint8)), dataset.images(torch.tensor([3, 1])))


def test_images_are_copies_that_a_caller_may_change(pile, monkeypatch):
    for limit in (1 << 30, 0):
        monkeypatch.setattr(cache, "RESIDENT_BYTES", limit)
        dataset = load(pile)
        dataset.images([0]).zero_()
        assert_complete(dataset)


def test_an_iterable_too_large_for_memory_is_mapped(own_cache, monkeypatch):
    monkeypatch.setattr(cache, "RESIDENT_BYTES", 0)
    dataset = data.from_iterable(pixels(number, 8, 8, 3) for number in range(10))
    assert isinstance(dataset, MappedDataset)
    assert torch.equal(dataset.images([9])[0], torch.from_numpy(chw(pixels(9, 8, 8, 3)).copy()))
    assert list(own_cache.iterdir()) == []


def test_two_who_want_the_same_set_decode_it_once(pile, decoded):
    datasets = []
    threads = [threading.Thread(target=lambda: datasets.append(load(pile))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(decoded) == COUNT
    assert len(datasets) == 2


def test_too_little_space_is_told_before_anything_is_written(pile, monkeypatch):
    usage = cache_writer.shutil.disk_usage(pile)
    monkeypatch.setattr(cache_writer.shutil, "disk_usage", lambda path: usage._replace(free=100))
    with pytest.raises(DataError, match=r"needs 0\.0 GB and 0\.0 GB are free; free some space"):
        load(pile)


def test_a_disk_that_fills_up_keeps_what_was_done(pile, monkeypatch, decoded):
    written = []

    def filling(path, mode="r", **options):
        if str(path).endswith("images.u8") and mode == "ab":
            written.append(path)
            if len(written) == 4:
                raise OSError(errno.ENOSPC, "No space left on device")
        return open(path, mode, **options)

    with monkeypatch.context() as full:
        full.setattr(cache_writer, "open", filling, raising=False)
        with pytest.raises(
            DataError, match=r"cannot write '.*': No space left on device; free some space or point OCSSL_CACHE"
        ):
            load(pile)
    before = len(decoded)
    assert_complete(load(pile, verify=True))
    assert len(decoded) - before == COUNT - 2 * PER_CHUNK


def test_a_cache_that_cannot_be_written_names_itself(pile, tmp_path, monkeypatch):
    write(tmp_path / "occupied", b"")
    monkeypatch.setenv("OCSSL_CACHE", str(tmp_path / "occupied"))
    with pytest.raises(DataError, match="point OCSSL_CACHE elsewhere"):
        load(pile)


def test_every_decoder_thread_keeps_the_order(pile, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert_complete(load(pile))


def waiting_at_most(monkeypatch, images):
    """How many of the pictures given were ever alive at once, of 200 that are all to become 8×8."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    known, most = [], 0

    def given():
        nonlocal most
        for image in images(200):
            known.append(weakref.ref(image))
            most = max(most, sum(each() is not None for each in known))
            yield image

    assert len(data.from_iterable(given(), image_size=8)) == 200
    return most


def test_large_pictures_that_become_small_do_not_pile_up_in_memory(monkeypatch):
    monkeypatch.setattr(cache_writer, "CHUNK_BYTES", 10 * 3 * 64 * 64)
    assert waiting_at_most(monkeypatch, lambda count: (pixels(i, 64, 64, 3) for i in range(count))) <= 45


def test_opened_images_do_not_keep_more_files_open_than_a_process_may(tmp_path, monkeypatch):
    write(tmp_path / "1.png", png(pixels(0, 8, 8, 3)))
    assert waiting_at_most(monkeypatch, lambda count: (Image.open(tmp_path / "1.png") for _ in range(count))) <= 70


def test_the_digest_is_of_pixels_and_labels_however_they_are_held(tmp_path, monkeypatch):
    for label in "ab":
        for number in range(3):
            write(tmp_path / "set" / label / f"{number}.png", png(pixels(number, 8, 8, 3)))
    address = f"folder:{tmp_path / 'set'}"
    resident = data.load(address)
    monkeypatch.setattr(cache, "RESIDENT_BYTES", 0)
    mapped = data.load(address)
    assert isinstance(mapped, MappedDataset)
    digest = resident.digest()
    assert mapped.digest() == digest
    assert len([*cache.cache_root().glob("*/images.sha256")]) == 1
    monkeypatch.setattr(MappedDataset, "images", None)  # not read again
    assert data.load(address).digest() == digest
    labels = torch.zeros_like(resident.labels)
    assert ResidentDataset(resident.images(range(6)), resident.info, labels).digest() != digest
    assert ResidentDataset(resident.images([1, 0, 2, 3, 4, 5]), resident.info, resident.labels).digest() != digest


def test_a_kept_digest_does_not_outlive_its_pixels(tmp_path):
    file = tmp_path / "images.u8"
    file.write_bytes(bytes(192))
    info = data.DatasetInfo("mapped")
    before = MappedDataset(file, 8, info).digest()
    file.write_bytes(bytes(191) + b"1")
    os.utime(file, ns=(0, 0))
    assert MappedDataset(file, 8, info).digest() != before
