"""Whatever is wrong with an image: named and stopped at, or left out, counted and named in a log."""

from __future__ import annotations

import io
import logging
import os
import struct
import tarfile
import zlib

import numpy as np
import pytest
import torch
from pictures import chw, encoded, make_tar, pixels, png, write
from PIL import ExifTags, Image, ImageOps

from ocssl import data, imaging
from ocssl.errors import DataError
from ocssl.imaging import BadImage, decode

GOOD = pixels(0, 32, 32, 3)
JPEG = encoded(Image.fromarray(GOOD), "JPEG")


def png_claiming(width: int, height: int) -> bytes:
    """A tiny PNG whose header announces a huge image."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


UNUSABLE = {
    "truncated": ("2.jpg", JPEG[: len(JPEG) // 2], "it is broken"),
    "empty": ("2.jpg", b"", "it is empty"),
    "not an image": ("2.png", b"#!/bin/sh\necho hello\n", "it is not an image"),
    "another size": ("2.png", png(pixels(5, 40, 40, 3)), "it is 40×40 and the first one 32×32: set image_size"),
    "not square": ("2.png", png(pixels(5, 32, 40, 3)), "it is 40×32, not square: set image_size"),
    "a bomb": ("2.png", png_claiming(60_000, 60_000), "pixels that are allowed"),
    "a small bomb": ("2.png", png_claiming(9_000, 9_000), "9000×9000 pixels, more than"),
    "floats": ("2.tiff", encoded(Image.fromarray(np.zeros((32, 32), np.float32)), "TIFF"), "floating point"),
    "32 bits": ("2.tiff", encoded(Image.fromarray(np.full((32, 32), 1 << 20, np.int32)), "TIFF"), "more than 16 bits"),
}


@pytest.fixture(params=UNUSABLE)
def spoiled(request, tmp_path):
    """A folder with two good pictures and a bad one between them."""
    name, content, reason = UNUSABLE[request.param]
    write(tmp_path / "pile" / "1.png", png(GOOD))
    bad = write(tmp_path / "pile" / name, content)
    write(tmp_path / "pile" / "3.png", png(pixels(3)))
    return tmp_path / "pile", bad, reason


def test_error_stops_and_names_the_file(spoiled):
    folder, bad, reason = spoiled
    with pytest.raises(DataError, match=f"image .*{bad.name} cannot be used: .*{reason}"):
        data.load(f"folder:{folder}")


def test_skip_leaves_it_out_counts_it_and_names_it_in_a_log(spoiled, own_cache, caplog):
    folder, bad, reason = spoiled
    with caplog.at_level(logging.WARNING, logger="ocssl"):
        source = data.load(f"folder:{folder}", on_bad_image="skip")
    assert torch.equal(source.images([0, 1]), torch.from_numpy(np.stack([chw(GOOD), chw(pixels(3))])))
    [skipped] = source.skipped
    assert skipped.name == str(bad)
    assert reason in skipped.reason
    assert "left out 1 bad image, named in" in caplog.text
    [log] = own_cache.glob("*/skipped.txt")
    assert log.read_text(encoding="utf-8").startswith(f"{bad}\t")


def test_a_cache_with_gaps_is_no_excuse_under_error(spoiled):
    folder, bad, _ = spoiled
    data.load(f"folder:{folder}", on_bad_image="skip")
    with pytest.raises(DataError, match=bad.name):
        data.load(f"folder:{folder}", on_bad_image="error")


def test_a_pile_of_nothing_but_bad_images_is_an_error(tmp_path):
    write(tmp_path / "pile" / "1.jpg", b"")
    for options in ({}, {"image_size": 8}):
        with pytest.raises(DataError, match=r"1 image file in .*: not one image can be used"):
            data.load(f"folder:{tmp_path / 'pile'}", on_bad_image="skip", **options)


def test_a_first_image_that_is_bad_does_not_set_the_size(tmp_path):
    write(tmp_path / "pile" / "0.png", png(pixels(0, 10, 12, 3)))
    write(tmp_path / "pile" / "1.png", png(GOOD))
    source = data.load(f"folder:{tmp_path / 'pile'}", on_bad_image="skip")
    assert (len(source), source.image_size) == (1, 32)


def test_dangling_files_are_named(tmp_path):
    write(tmp_path / "pile" / "1.png", png(GOOD))
    (tmp_path / "pile" / "2.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(DataError, match=r"2\.png cannot be used: it is not there"):
        data.load(f"folder:{tmp_path / 'pile'}")
    source = data.load(f"folder:{tmp_path / 'pile'}", on_bad_image="skip")
    assert [each.reason for each in source.skipped] == ["it is not there"]


def test_an_error_of_the_system_is_no_bad_image(tmp_path, monkeypatch, own_cache):
    write(tmp_path / "pile" / "1.png", png(GOOD))
    write(tmp_path / "pile" / "2.png", png(GOOD))
    real = imaging.read_file

    def guarded(path, limit):
        if path.name == "2.png":
            raise PermissionError(13, "Permission denied")
        return real(path, limit)

    with monkeypatch.context() as faulty:
        faulty.setattr(imaging, "read_file", guarded)
        with pytest.raises(DataError, match=r"2\.png could not be read: Permission denied"):
            data.load(f"folder:{tmp_path / 'pile'}", on_bad_image="skip")
    assert not list(own_cache.glob("*/index.json"))
    assert len(data.load(f"folder:{tmp_path / 'pile'}", on_bad_image="skip")) == 2


def test_a_bad_image_whose_name_is_not_utf8_is_left_out_too(tmp_path, own_cache):
    write(tmp_path / "pile" / "1.png", png(GOOD))
    bad = write(tmp_path / "pile" / os.fsdecode(b"caf\xe9.png"), b"")
    source = data.load(f"folder:{tmp_path / 'pile'}", on_bad_image="skip")
    assert [each.name for each in source.skipped] == [str(bad)]
    [log] = own_cache.glob("*/skipped.txt")
    assert "caf\\udce9.png\tit is empty" in log.read_text(encoding="utf-8")


def test_odd_members_of_an_archive_are_bad_images_and_lead_nowhere(tmp_path):
    path = tmp_path / "shard.tar"
    with tarfile.open(path, "w") as archive:

        def add(name, content=b"", **attributes):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for attribute, value in attributes.items():
                setattr(member, attribute, value)
            archive.addfile(member, io.BytesIO(content))

        add("good.png", png(GOOD))
        add("../escape.png", png(GOOD))
        add("/absolute.png", png(GOOD))
        add("soft.png", type=tarfile.SYMTYPE, linkname="/etc/passwd")
        add("hard.png", type=tarfile.LNKTYPE, linkname="good.png")
        add("pipe.png", type=tarfile.FIFOTYPE)
    with pytest.raises(DataError, match=r"escape\.png cannot be used: its path leads out of the archive"):
        data.load(f"tar:{path}")
    source = data.load(f"tar:{path}", on_bad_image="skip")
    assert len(source) == 1
    assert [each.name.rpartition(":")[2] for each in source.skipped] == [
        "../escape.png",
        "/absolute.png",
        "soft.png",
        "hard.png",
        "pipe.png",
    ]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["cache", "shard.tar"]


@pytest.mark.parametrize("damage", ["a flipped bit", "cut in a header", "cut in an image", "cut between images"])
def test_a_tar_that_is_damaged_in_the_middle_does_not_end_there(tmp_path, damage):
    path = make_tar(tmp_path / "shard.tar", {f"{number}.png": png(pixels(number)) for number in range(3)}, "w")
    content = bytearray(path.read_bytes())
    second = content.index(b"1.png")
    content[second] ^= damage == "a flipped bit"
    cuts = {"cut in a header": second + 200, "cut in an image": second + 1000, "cut between images": second}
    path.write_bytes(content[: cuts.get(damage)])
    with pytest.raises(DataError, match=r"shard\.tar is not a readable tar file"):
        data.load(f"tar:{path}")


# Unusual images that are perfectly usable -----------------------------------------------------------------------------


def test_cmyk_becomes_rgb():
    cmyk = Image.fromarray(GOOD).convert("CMYK")
    assert decode(encoded(cmyk, "JPEG", quality=95)).shape == (3, 32, 32)
    solid = Image.new("CMYK", (8, 8), (0, 255, 255, 0))  # no cyan, all magenta and yellow: red
    red = decode(encoded(solid, "TIFF"))
    assert red[:, 0, 0].tolist() == [255, 0, 0]


def test_sixteen_bits_are_scaled_to_eight():
    deep = (np.arange(64, dtype=np.uint16).reshape(8, 8)) * 1024
    for form in ("PNG", "TIFF"):
        np.testing.assert_array_equal(decode(encoded(Image.fromarray(deep), form))[1], deep >> 8)


def test_palettes_give_their_colours_and_transparency_lies_on_white():
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    assert decode(encoded(palette, "PNG"))[:, 3, 3].tolist() == [10, 20, 30]
    assert decode(encoded(palette, "PNG", transparency=1))[:, 3, 3].tolist() == [255, 255, 255]
    clear = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    for image in (clear, clear.convert("RGBa"), clear.quantize()):
        assert decode(image)[:, 3, 3].tolist() == [255, 255, 255]
    assert decode(encoded(clear, "PNG"))[:, 3, 3].tolist() == [255, 255, 255]
    grey = Image.new("LA", (8, 8), (100, 255))
    assert decode(encoded(grey, "PNG"))[:, 3, 3].tolist() == [100, 100, 100]


def test_of_an_animation_the_first_frame_counts():
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    animated = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decode(animated)[:, 0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_a_photograph_is_turned_upright(form, orientation):
    corners = np.kron(np.array([[0, 80], [160, 240]], dtype=np.uint8), np.ones((16, 24), dtype=np.uint8))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    content = encoded(Image.fromarray(corners).convert("RGB"), form, exif=exif)
    slow = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content))))
    for size in (32, 4):  # 4 is small enough for a JPEG to be decoded straight to less
        ours = decode(content, size)[0][[0, 0, -1, -1], [0, -1, 0, -1]]
        np.testing.assert_allclose(ours, slow[[0, 0, -1, -1], [0, -1, 0, -1], 0], atol=12)


def test_a_broken_note_on_how_the_camera_was_held_is_no_harm():
    content = encoded(Image.fromarray(GOOD), "JPEG", exif=b"Exif\x00\x00MM\x00\x2a\xff\xff\xff\xffgarbage")
    np.testing.assert_array_equal(decode(content), decode(JPEG))


def test_black_and_white_is_black_and_white():
    bits = Image.fromarray(np.eye(8, dtype=bool))
    np.testing.assert_array_equal(decode(encoded(bits, "PNG"))[2], np.eye(8, dtype=np.uint8) * 255)


@pytest.mark.parametrize(("width", "height"), [(48, 32), (32, 48), (40, 40), (7, 100)])
def test_resizing_takes_the_largest_centred_square(width, height):
    image = Image.fromarray(pixels(1, height, width, 3))
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    slow = image.resize((16, 16), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side))
    np.testing.assert_array_equal(decode(encoded(image, "PNG"), 16), chw(np.asarray(slow)))


def test_a_shrunken_jpeg_looks_like_one_decoded_in_full():
    ramp = np.linspace(0, 255, 512).astype(np.uint8)
    smooth = np.dstack([np.broadcast_to(ramp, (512, 512)), np.broadcast_to(ramp[:, None], (512, 512))] * 2)[..., :3]
    content = encoded(Image.fromarray(np.ascontiguousarray(smooth)), "JPEG", quality=95)
    full = np.asarray(Image.open(io.BytesIO(content)).convert("RGB").resize((32, 32), Image.Resampling.BICUBIC))
    assert np.abs(decode(content, 32).astype(int) - chw(full).astype(int)).max() <= 3


def test_an_array_of_the_wrong_shape_is_refused():
    with pytest.raises(BadImage, match="broken"):
        decode(np.zeros((8, 8, 3, 2), dtype=np.uint8))
