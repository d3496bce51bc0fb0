"""Small files that claim gigabytes: refused, or read in bounded memory; and the parts that bound it."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile import LEARN, Make, images, png, sampled
from PIL import Image

from ocssl import imaging
from ocssl.data.formats import parquet
from ocssl.data.formats.parquet import ParquetReader
from ocssl.data.formats.unpickle import load_arrays
from ocssl.data.reader import Item, Reader
from ocssl.errors import DataError
from ocssl.export import of_learner
from ocssl.export.features import embed
from ocssl.imaging import BadImage, decode
from ocssl.learner import Learner

MIB = 1 << 20


def _repeated(path: Path) -> None:
    """Kilobytes: 32 rows of one value of 60 MiB, in a dictionary."""
    values = pa.array([png() + bytes(60 * MIB)], pa.binary())
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 32, pa.int32()), values)
    pq.write_table(
        pa.table({"image": column}), path, compression="zstd", dictionary_pagesize_limit=1 << 30, store_schema=False
    )


def _sparse(path: Path) -> None:
    images(path, 2)
    with open(path / "a.png", "wb") as file:
        file.truncate(6 << 30)


def _long_name(path: Path) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT) + bytes(MIB))


def _members(path: Path) -> None:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for number in range(3):
            info = tarfile.TarInfo(f"{number}.png")
            info.size = 80 * MIB
            archive.addfile(info, io.BytesIO(bytes(info.size)))
        info = tarfile.TarInfo("good.png")
        info.size = len(png())
        archive.addfile(info, io.BytesIO(png()))


def _several(path: Path, image: Image.Image) -> None:
    """As many as two threads decode at once, and as many again."""
    path.mkdir()
    content = png(image)
    for number in range(4):
        (path / f"{number}.png").write_bytes(content)


def _alpha(path: Path) -> None:
    _several(path, Image.new("RGBA", (8900, 8900)))


def _deep(path: Path) -> None:
    _several(path, Image.fromarray(np.zeros((8900, 8900), np.uint16)))


INPUTS = {
    "a sparse file": ("sparse", _sparse, 0),
    "a repeated value": ("x.parquet", _repeated, 0),
    "a long name": ("x.tar.gz", _long_name, 2),
    "large members": ("x.tar.gz", _members, 0),
    "transparent images": ("alpha", _alpha, 0),
    "16-bit images": ("deep", _deep, 0),
}


@pytest.mark.parametrize("case", sampled(INPUTS, 6))
@pytest.mark.parametrize(
    "command",
    [
        "embed STATE NAME -o f.parquet -q",
        f"learn NAME --state s {LEARN}",
        pytest.param(
            "data prepare KIND:NAME --split train --image-size 16 --on-bad-image skip", marks=pytest.mark.attack
        ),
    ],
)
def test_what_claims_gigabytes_takes_no_more_memory(make: Make, state: Path, tmp_path: Path, case, command) -> None:
    """The limit is that of every command here, :data:`hostile.PEAK`."""
    name, put, code = case
    put(tmp_path / name)
    kind = "tar" if "tar" in name else "parquet" if "parquet" in name else "folder"
    words = command.replace("STATE", str(state)).replace("KIND", kind).replace("NAME", name).split()
    ended = make(tmp_path)(*words)
    assert ended.code == code, ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_long_header_of_a_tar_is_refused_before_it_is_read(make: Make, tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, 1 << 30
    (tmp_path / "x.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(MIB))
    make(tmp_path)("data", "prepare", "tar:x.tar", "--split", "train").refused("a header has 1,073,741,824 bytes")


def test_headers_that_lead_to_headers_end(make: Make, tmp_path: Path) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2
    (tmp_path / "x.tar").write_bytes((info.tobuf(tarfile.GNU_FORMAT) + b"a\0".ljust(512, b"\0")) * 5000)
    make(tmp_path)("data", "prepare", "tar:x.tar", "--split", "train").refused("is not a readable tar file")


# Parts ----------------------------------------------------------------------------------------------------------------


def test_an_encoded_image_has_at_most_64_mib(tmp_path: Path) -> None:
    for picture in (png() + bytes(64 * MIB), tmp_path / "a.png"):
        if isinstance(picture, Path):
            picture.write_bytes(png())
            with open(picture, "ab") as file:
                file.truncate(64 * MIB + 1)
        with pytest.raises(BadImage, match="more than the 67,108,864 that are allowed"):
            decode(picture)


def test_rows_of_parquet_are_read_so_that_they_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"image": pa.array([bytes(1000)] * 100, pa.binary())})
    pq.write_table(table, tmp_path / "x.parquet", compression=None, write_statistics=False)
    for at_once, rows in ((64 * MIB, 32), (4000, 3), (100, 1)):
        monkeypatch.setattr(parquet, "BYTES_AT_ONCE", at_once)
        assert parquet._rows_at_once(tmp_path / "x.parquet", ["image"]) == rows
        assert len(list(ParquetReader([tmp_path / "x.parquet"]).items(40))) == 60


def test_a_column_that_grows_beyond_reason_is_a_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BOMB_BYTES", MIB)
    table = pa.table({"image": pa.array([bytes(2 * MIB)], pa.binary())})
    pq.write_table(table, tmp_path / "x.parquet", compression="zstd", use_dictionary=False)
    with pytest.raises(DataError, match="is a decompression bomb"):
        next(ParquetReader([tmp_path / "x.parquet"]).items())


class _Frames(Reader):
    """Large frames, of which it counts those that somebody holds."""

    def __init__(self) -> None:
        self.held = self.most = 0

    def describe(self) -> str:
        return "frames"

    def identity(self) -> str:
        return "frames"

    def items(self, start: int = 0) -> Iterator[Item]:
        for number in range(start, 20):
            frame = np.full((72, 128, 3), number, np.uint8)
            self.held += 1
            self.most = max(self.most, self.held)
            weakref.finalize(frame, self._gone)
            yield Item(str(number), frame)
            del frame

    def _gone(self) -> None:
        self.held -= 1


def test_embed_keeps_few_large_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ocssl.export.features.MAX_DECODERS", 1)
    encoder = of_learner(Learner(backbone="convnet-w4", image_size=8, hidden_dim=8, output_dim=8, device="cpu"))
    frames = _Frames()
    assert embed(encoder, frames, tmp_path / "f.parquet", batch=8, part=10).count == 20
    assert frames.most <= 3  # one is decoded, one waits, one was decoded
    assert pq.read_table(tmp_path / "f.parquet")["id"].to_pylist() == list(range(20))


def _images_to_widen() -> dict[str, Image.Image]:
    rng = np.random.default_rng(0)
    palette = Image.fromarray(rng.integers(0, 256, (301, 203, 3), dtype=np.uint8)).quantize(16)
    palette.info["transparency"] = 3
    return {
        "RGBA": Image.fromarray(rng.integers(0, 256, (301, 203, 4), dtype=np.uint8)),
        "LA": Image.fromarray(rng.integers(0, 256, (301, 203, 2), dtype=np.uint8)),
        "I;16": Image.fromarray(rng.integers(0, 1 << 16, (301, 203), dtype=np.uint16)),
        "L": Image.fromarray(rng.integers(0, 256, (301, 203), dtype=np.uint8)),
        "P": palette,
    }


@pytest.mark.parametrize("mode", _images_to_widen())
def test_strips_give_the_same_pixels(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    image = _images_to_widen()[mode]
    expected, small = np.asarray(imaging._to_rgb(image, None, False, imaging._check_bits)), decode(image, 16)
    monkeypatch.setattr(imaging, "STRIP_PIXELS", 203 * 10)
    np.testing.assert_array_equal(np.asarray(imaging._to_rgb_in_strips(image, 1, None, False)), expected)
    monkeypatch.setattr(imaging, "LARGE_PIXELS", 1)
    assert np.abs(decode(image, 16).astype(int) - small.astype(int)).max() <= 24  # noise: a box filter comes first
    smooth = image.resize((203, 301), Image.Resampling.NEAREST, box=(50, 50, 53, 54))
    with monkeypatch.context() as whole:
        whole.setattr(imaging, "LARGE_PIXELS", 1 << 40)
        expected = decode(smooth, 16)
    assert np.abs(decode(smooth, 16).astype(int) - expected.astype(int)).mean() < 6


def test_all_threads_together_decode_no_more_pixels_than_one_may() -> None:
    allowance, now, most, lock = imaging._Allowance(100), [0], [0], threading.Lock()

    def work(pixels: int) -> None:
        for _ in range(50):
            with allowance.taken(pixels):
                with lock:
                    now[0] += pixels
                    most[0] = max(most[0], now[0])
                with lock:
                    now[0] -= pixels

    threads = [threading.Thread(target=work, args=(pixels,)) for pixels in (30, 60, 100, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert now == [0]
    assert 0 < most[0] <= 100


def test_shared_lists_of_a_pickle_are_built_once() -> None:
    value: list[object] = [0]
    for _ in range(28):
        value = [value, value]
    found = load_arrays(pickle.dumps({"data": value}, 2), "batch")["data"]
    assert found[0] is found[1]
