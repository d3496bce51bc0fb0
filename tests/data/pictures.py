"""Small pictures for tests, and the files that hold them."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image


def pixels(seed: int, *shape: int) -> np.ndarray:
    """Random uint8 pixels, (32, 32, 3) unless told otherwise."""
    return np.random.default_rng(seed).integers(0, 256, shape or (32, 32, 3), dtype=np.uint8)


def png(image: np.ndarray) -> bytes:
    """A lossless file, so that what comes out can be compared bit by bit."""
    return encoded(Image.fromarray(image), "PNG")


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def chw(image: np.ndarray) -> np.ndarray:
    return image.transpose(2, 0, 1)


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


def make_tar(path, members, mode="w:gz"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


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


def cifar_batch(images, label_key, labels):
    rows = np.stack([chw(image).reshape(-1) for image in images])
    return pickle.dumps({b"data": rows, label_key: labels, b"batch_label": b"test"}, protocol=2)
