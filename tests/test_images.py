"""Whatever a user calls images: what is taken, and what is refused with the reason."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ocssl import imaging
from ocssl.common import console
from ocssl.errors import InputError
from ocssl.image_batch import as_uint8
from ocssl.imaging import BadImage, decode

SIZE = 8


def pixels(n: int = 5) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, SIZE, SIZE, 3), dtype=np.uint8)


@pytest.fixture
def told(monkeypatch) -> list[str]:
    """Warnings of a test, as if no test before had given any."""
    lines: list[str] = []
    monkeypatch.setattr(console, "warn", lines.append)
    console.warn_once.cache_clear()
    return lines


def channels_first(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.moveaxis(array, -1, 1).copy())


# ------------------------------------------------------------------------------------------------------ what is taken


def test_arrays_tensors_and_pil_images_of_the_same_pixels_are_the_same():
    array = pixels()
    expected = channels_first(array)
    for images in (array, expected, [Image.fromarray(one) for one in array], tuple(Image.fromarray(o) for o in array)):
        got = as_uint8(images, SIZE)
        assert got.dtype == torch.uint8
        assert torch.equal(got, expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_byte_survives_the_way_through_floats(dtype):
    array = np.arange(256, dtype=np.uint8).repeat(3).reshape(4, SIZE, SIZE, 3)
    floats = (array.astype(np.float64) / 255).astype(dtype)
    expected = channels_first(array)
    assert torch.equal(as_uint8(floats, SIZE), expected)
    assert torch.equal(as_uint8(channels_first(floats), SIZE), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floats_between_two_bytes_are_rounded_alike_in_a_batch_and_in_a_list(dtype):
    middles = ((torch.arange(192) + 0.5) / 255).to(dtype)
    batch = middles.reshape(1, 3, SIZE, SIZE)
    below = batch - torch.finfo(dtype).eps * batch / 2
    for images in (batch, below):
        expected = (images.to(torch.promote_types(dtype, torch.float32)) * 255).round().to(torch.uint8)
        assert torch.equal(as_uint8(images, SIZE), expected)
        assert torch.equal(as_uint8([*images], SIZE), expected)


def test_views_into_larger_arrays_are_taken():
    array = pixels(10)
    assert torch.equal(as_uint8(array[::-2], SIZE), channels_first(array[::-2]))
    assert torch.equal(as_uint8(array[..., ::-1], SIZE), channels_first(array[..., ::-1]))


def test_arrays_that_may_not_be_written_are_taken_without_a_warning():
    """Memory-mapped data sets are such arrays."""
    array = pixels()
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(as_uint8(array, SIZE), channels_first(array))


@pytest.mark.parametrize("side", [1, SIZE])
def test_decoded_pixels_are_an_array_of_their_own(side):
    """That of a single pixel was a view that may not be written, and one with channels first a view of the caller's."""
    picture = pixels(1)[0, :side, :side]
    channels = np.ascontiguousarray(picture.transpose(2, 0, 1))
    for given in (Image.fromarray(picture), picture, channels.transpose(1, 2, 0)):
        decoded = decode(given, side)
        assert np.array_equal(decoded, channels)
        assert decoded.flags.writeable
        assert not np.shares_memory(decoded, np.asarray(given))


@pytest.mark.parametrize("mode", ["L", "P", "1", "CMYK"])
def test_pil_images_of_any_mode_become_rgb(mode):
    picture = Image.fromarray(pixels(1)[0]).convert(mode)
    assert torch.equal(as_uint8([picture], SIZE)[0], channels_first(np.asarray(picture.convert("RGB"))[None])[0])


def test_pil_images_of_another_size_are_resized_each_on_its_own():
    grey = [Image.new("RGB", size, (10, 20, 30)) for size in ((3, 50), (SIZE, SIZE), (64, 9))]
    got = as_uint8(grey, SIZE)
    assert torch.equal(got, torch.tensor([10, 20, 30], dtype=torch.uint8).view(1, 3, 1, 1).expand(3, 3, SIZE, SIZE))


def saved(name: str, image: Image.Image, folder: Path) -> Path:
    image.save(folder / name)
    return folder / name


def half_transparent(image: Image.Image) -> Image.Image:
    clear = image.copy()
    clear.putalpha(Image.linear_gradient("L").resize(image.size))
    return clear


PHOTO = Image.fromarray(pixels(30).reshape(40, 48, 3)).resize((60, 50))
FILES = {
    "wide.png": PHOTO,
    "tall.png": PHOTO.rotate(90, expand=True),
    "large.jpg": PHOTO.resize((400, 300)),  # Pillow decodes large JPEG files straight to a fraction of their size
    "sixteen-bits.png": Image.fromarray(np.asarray(PHOTO.convert("L")).astype(np.uint16) * 257),
    "rgba.png": half_transparent(PHOTO),
    "grey-with-alpha.png": half_transparent(PHOTO.convert("L")),
    "palette.png": PHOTO.convert("P"),
    "cmyk.jpg": PHOTO.convert("CMYK"),
    "grey.png": PHOTO.convert("L"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_pil_image_gives_the_bytes_that_its_file_gives(name, tmp_path):
    path = saved(name, FILES[name], tmp_path)
    expected = torch.from_numpy(decode(path, SIZE))
    with Image.open(path) as image:
        before = (image.size, image.mode)
        assert torch.equal(as_uint8([image], SIZE)[0], expected)
        assert (image.size, image.mode) == before
        assert np.array_equal(np.asarray(image), np.asarray(Image.open(path)))


# ----------------------------------------------------------------------------------------------------- what is refused


def refused(images, *words: str) -> None:
    with pytest.raises(InputError) as caught:
        as_uint8(images, SIZE)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("dtype", ["int64", "int8", "bool", "complex64", "object", ">f4"])
def test_an_array_of_the_wrong_dtype_is_refused_by_its_name(dtype):
    refused(pixels().astype(dtype), "uint8, uint16 or float in [0, 1]", dtype)
    refused([*pixels().astype(dtype)], "item 0", dtype)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool, torch.complex64])
def test_a_tensor_of_the_wrong_dtype_is_refused_by_its_name(dtype):
    refused(channels_first(pixels()).to(dtype), "uint8 or float in [0, 1]", str(dtype))


@pytest.mark.parametrize("shape", [(5, SIZE, SIZE, 2), (2, 5, SIZE, SIZE, 3), (SIZE,), (), (0,)])
def test_an_array_of_the_wrong_shape_is_refused_by_its_shape(shape):
    refused(np.zeros(shape, dtype=np.uint8), "(n, height, width, 3)", str(shape))


@pytest.mark.parametrize("shape", [(3, SIZE, SIZE), (5, 1, SIZE, SIZE), (5, SIZE, SIZE, 3), (2, 5, 3, SIZE, SIZE), ()])
def test_a_tensor_of_the_wrong_shape_is_refused_by_its_shape(shape):
    refused(torch.zeros(shape, dtype=torch.uint8), "(n, 3, height, width)", str(shape))


def test_a_tensor_with_channels_last_is_recognised():
    refused(torch.zeros(5, SIZE, SIZE, 3), "(channels last? permute it, or pass an array)")


def test_what_is_nearly_an_image_is_refused_with_the_way_to_make_it_one():
    array = pixels()
    for images in (array.astype(np.int64), [*array.astype(np.int64)]):
        refused(images, "int64", "; if they reach from 0 to 255, use .astype(np.uint8)")
    refused(channels_first(array).long(), "torch.int64; if they reach from 0 to 255, use .to(torch.uint8)")
    refused([b"encoded"], "item 0 is bytes: open it with PIL.Image.open(io.BytesIO(…))")
    refused(channels_first(array)[0], f"not (3, {SIZE}, {SIZE}) (one image? add an axis: images[None])")
    for images in ([*array.astype(np.float32)], [*channels_first(array).float()], array.astype(np.float64)[:, 1:]):
        refused(images, "item 0", "not in [0, 1]; divide them by 255")
    refused([array[0] - 300.0], "not in [0, 1]; clip or rescale them")
    refused([array[0] * np.nan], "not in [0, 1]; replace NaN and infinity")


def test_a_list_takes_tensors_of_bfloat16():
    given = torch.tensor([0.0, 0.25, 0.5, 1.0]).repeat(16).reshape(SIZE, SIZE).expand(3, SIZE, SIZE)
    assert torch.equal(as_uint8([given.bfloat16()], SIZE), as_uint8([given], SIZE))


@pytest.mark.parametrize("path", ["a.jpg", Path("a.jpg")])
def test_a_path_alone_is_told_to_come_in_a_list(path):
    refused(path, "put a path into a list")


def test_an_array_with_channels_first_is_recognised():
    refused(np.zeros((5, 3, SIZE, SIZE), dtype=np.uint8), "channels first?")


@pytest.mark.parametrize("height_width", [(SIZE, SIZE + 1), (SIZE + 1, SIZE), (2 * SIZE, 2 * SIZE), (0, 0)])
def test_tensors_of_another_size_are_refused_by_both_sizes(height_width):
    height, width = height_width
    words = (f"{height}×{width}", f"image_size={SIZE}", "resize them, or pass a list of tensors")
    refused(torch.zeros(5, 3, height, width, dtype=torch.uint8), *words)


@pytest.mark.parametrize("fit", ["crop", "squash"])
@pytest.mark.parametrize("channels", [(), (1,), (3,), (4,)])
@pytest.mark.parametrize("height_width", [(SIZE, SIZE), (SIZE + 3, SIZE), (2 * SIZE, 3 * SIZE)])
def test_arrays_of_any_size_and_number_of_channels_are_taken_as_images_are(height_width, channels, fit):
    array = np.random.default_rng(0).integers(0, 256, (3, *height_width, *channels), dtype=np.uint8)
    expected = np.stack([decode(Image.fromarray(one.squeeze()), SIZE, fit) for one in array])
    for given in (array, [*array], tuple(array)):
        np.testing.assert_array_equal(as_uint8(given, SIZE, fit).numpy(), expected)
    np.testing.assert_array_equal(as_uint8(array[0], SIZE, fit).numpy(), expected[:1])


def test_a_list_may_mix_images_arrays_tensors_and_paths_of_any_size(tmp_path):
    array = np.random.default_rng(0).integers(0, 256, (SIZE + 2, SIZE + 5, 3), dtype=np.uint8)
    image = Image.fromarray(array)
    image.save(tmp_path / "a.png")
    given = [image, array, torch.from_numpy(array).permute(2, 0, 1), tmp_path / "a.png", f"{tmp_path}/a.png"]
    given += [array / 255, (array / 255).astype(np.float32), array.astype(np.uint16) * 257]
    found = as_uint8(given, SIZE)
    assert all(torch.equal(found[0], other) for other in found)
    assert torch.equal(as_uint8(image, SIZE), found[:1])
    refused([np.zeros((0, 4, 3), dtype=np.uint8)], "item 0")
    refused([tmp_path / "b.png"], "item 0", "not there")
    refused([array / 255, array.astype(np.float32)], "item 1", "floats from 0 to 255")
    refused([np.full((4, 4), np.nan)], "item 0", "floats from nan")


def test_arrays_of_sixteen_bits_and_floats_are_taken_as_files_are():
    array = np.random.default_rng(0).integers(0, 4096, (3, SIZE + 2, SIZE, 3), dtype=np.uint16)
    scaled = (array / 4095 * 255).round().astype(np.uint8)
    for given in (array, [*array]):
        assert torch.equal(as_uint8(given, SIZE, "crop", (0, 4095)), as_uint8(scaled, SIZE))
        assert torch.equal(as_uint8(given, SIZE), as_uint8((array >> 8).astype(np.uint8), SIZE))
    gray = Image.fromarray(array[0, :, :, 0])
    assert torch.equal(as_uint8([gray], SIZE), as_uint8(array[:1, :, :, 0], SIZE))
    assert torch.equal(as_uint8(scaled / 255, SIZE), as_uint8(scaled, SIZE))


@pytest.mark.parametrize(("mode", "values"), [("I;16", [0, 1024, 4095, 9999]), ("F", [-1.0, 0.0, 4095.0, 1e9])])
def test_a_range_says_what_is_black_and_white(mode, values):
    dtype = np.uint16 if mode == "I;16" else np.float32
    image = Image.fromarray(np.array([values] * 4, dtype=dtype))
    wide = decode(image, 4, pixel_range=(0, 4095))[0, 0]
    assert [int(value) for value in wide] == [round(255 * min(max(value / 4095, 0), 1)) for value in values]
    if mode == "F":
        refused([image], "item 0", "set pixel_range")
        with pytest.raises(BadImage, match="NaN"):
            decode(Image.fromarray(np.full((4, 4), np.nan, np.float32)), 4, pixel_range=(0, 1))


def test_images_of_few_bits_in_sixteen_are_told_once(told):
    for highest in (4095, 4000, 16_383, 65_535, 255, 200, 0):
        decode(Image.fromarray(np.full((4, 4), highest, dtype=np.uint16)), 4)
    assert [line[line.index("[") : line.index("]")] for line in told] == ["[0, 4095", "[0, 16383", "[0, 255"]


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize(("shade", "told_of"), [(65_535, []), (4000, ["[0, 4095"])])
def test_a_large_image_is_judged_by_its_brightest_strip(monkeypatch, told, channels, shade, told_of):
    monkeypatch.setattr("ocssl.imaging.LARGE_PIXELS", 100)
    monkeypatch.setattr("ocssl.imaging.STRIP_PIXELS", 64)
    values = np.full((32, 32, channels), 100, np.uint16)
    values[16:] = shade
    decode(Image.fromarray(values[..., 0]) if channels == 1 else png_of_sixteen_bits(values), SIZE)
    assert [line[line.index("[") : line.index("]")] for line in told] == told_of


def png_of_sixteen_bits(pixels):
    """The content of a PNG file with 16 bits per colour, which Pillow cannot write."""
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 16, {2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    written = (struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


def test_colours_of_sixteen_bits_are_scaled_from_a_range_and_told_of(told):
    full = np.random.default_rng(0).integers(0, 65_536, (SIZE, SIZE, 3), dtype=np.uint16)
    found = decode(png_of_sixteen_bits(full), SIZE).transpose(1, 2, 0)
    np.testing.assert_array_equal(found, full >> 8)
    assert told == []
    dark = full >> 4
    assert decode(png_of_sixteen_bits(dark), SIZE).max() < 16
    assert ["[0, 4095]" in line for line in told] == [True]
    found = decode(png_of_sixteen_bits(dark), SIZE, "crop", (0, 4095)).transpose(1, 2, 0)
    assert np.abs(found - dark / 4095 * 255).max() <= 9  # Pillow gives the upper 8 of 16 bits, so 16 levels are left


def test_a_pil_image_of_sixteen_bits_gives_the_same_each_time():
    content = png_of_sixteen_bits(np.full((SIZE, SIZE, 3), 2048, np.uint16))
    image = Image.open(io.BytesIO(content))
    for _ in range(2):
        assert (decode(image, SIZE, "crop", (0, 4095)) == 136).all()


def test_a_pil_image_gives_the_frame_that_it_is_at():
    frames = [Image.new("RGB", (8 * SIZE, 8 * SIZE), shade) for shade in ("black", "white")]
    content = io.BytesIO()
    frames[0].save(content, "MPO", save_all=True, append_images=frames[1:])
    image = Image.open(content)
    image.seek(1)
    assert decode(image, SIZE).min() > 250


@pytest.mark.parametrize("colours", [1, 3])
def test_a_range_holds_for_sixteen_bits_with_alpha_too(colours):
    values = np.random.default_rng(0).integers(0, 4096, (SIZE, SIZE, colours), dtype=np.uint16)
    alpha = np.full((SIZE, SIZE, 1), 65_535, np.uint16)
    alpha[0] = 0
    found = decode(png_of_sixteen_bits(np.concatenate([values, alpha], axis=-1)), SIZE, "crop", (0, 4095))
    assert (found[:, 0] == 255).all()  # transparent pixels lie on white
    expected = np.broadcast_to(values / 4095 * 255, (SIZE, SIZE, 3)).transpose(2, 0, 1)
    assert np.abs(found.astype(float) - expected)[:, 1:].max() <= 9


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_a_range_holds_for_a_large_image_of_sixteen_bits_too(channels, monkeypatch):
    values = np.full((6 * SIZE, 6 * SIZE, channels), 65_535, np.uint16)
    values[..., : 1 if channels == 2 else 3] = 2048
    content = png_of_sixteen_bits(values)
    small = decode(content, SIZE, "crop", (0, 4095))
    assert (small == 136).all()  # Pillow gives the upper 8 of 16 bits, and the middle of what they stand for is taken
    monkeypatch.setattr(imaging, "LARGE_PIXELS", 1)
    monkeypatch.setattr(imaging, "STRIP_PIXELS", 6 * SIZE * 7)
    np.testing.assert_array_equal(decode(content, SIZE, "crop", (0, 4095)), small)


@pytest.mark.parametrize("fit", ["crop", "squash"])
def test_a_large_image_that_is_reduced_first_keeps_its_places(fit, monkeypatch):
    side = 7 * 2 * SIZE + 1  # reduced by 7, a single row and column of pixels are left over
    ramp = np.linspace(0, 255, side).astype(np.uint8)
    image = Image.fromarray(np.dstack([np.tile(ramp, (side, 1))] * 3 + [np.full((side, side), 255, np.uint8)]))
    expected = decode(image, SIZE, fit).astype(int)
    monkeypatch.setattr(imaging, "LARGE_PIXELS", 1)
    monkeypatch.setattr(imaging, "STRIP_PIXELS", side * 20)
    assert np.abs(decode(image, SIZE, fit) - expected).max() <= 3


def test_a_tiff_that_pillow_does_not_know_is_not_called_something_else():
    with pytest.raises(BadImage, match="a TIFF file of a kind that Pillow cannot read"):
        decode(b"II*\0" + bytes(100), SIZE)


@pytest.mark.parametrize("bad", [-0.01, 1.01, 255.0, float("inf"), float("-inf")])
def test_floats_outside_zero_to_one_are_refused_with_the_range_they_have(bad):
    array = pixels().astype(np.float32) / 255
    array[3, 2, 1, 0] = bad
    refused(array, "float images must lie in [0, 1]", f"{bad:g}")
    refused(channels_first(array), "float images must lie in [0, 1]", f"{bad:g}")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_single_nan_is_refused(dtype):
    array = (pixels() / 255).astype(dtype)
    array[4, 7, 7, 2] = np.nan
    refused(array, "NaN")
    refused(channels_first(array), "NaN")


@pytest.mark.parametrize(
    "nothing",
    [np.zeros((0, SIZE, SIZE, 3), np.uint8), torch.zeros(0, 3, SIZE, SIZE, dtype=torch.uint8), [], ()],
    ids=["array", "tensor", "list", "tuple"],
)
def test_an_empty_batch_is_refused(nothing):
    refused(nothing, "empty")


@pytest.mark.parametrize("thing", [None, 7, "images.npy", {"images": 1}])
def test_what_is_not_images_is_refused_by_its_type(thing):
    refused(thing, "list of PIL images", type(thing).__name__)


def test_a_list_with_something_else_in_it_is_refused_by_its_place():
    refused([Image.new("RGB", (SIZE, SIZE)), b"a.png"], "item 1", "bytes")


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_an_image_file_that_breaks_off_is_refused_by_its_place(kind):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(buffer, kind)
    broken = Image.open(io.BytesIO(buffer.getvalue()[: len(buffer.getvalue()) // 2]))
    refused([Image.new("RGB", (SIZE, SIZE)), broken], "item 1", "not readable")


def test_a_png_with_a_damaged_chunk_is_refused_by_its_place():
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(buffer, "PNG")
    damaged = bytearray(buffer.getvalue())
    middle = damaged.index(b"IDAT")
    damaged[middle + 4 : middle + 4 + 2000] = bytes(2000)
    refused([Image.open(io.BytesIO(bytes(damaged)))], "item 0", "not readable")


def test_a_pil_image_of_floating_point_numbers_is_refused_by_its_place():
    refused([Image.new("RGB", (SIZE, SIZE)), Image.new("F", (SIZE, SIZE))], "item 1", "floating point")
