"""The real CIFAR-100, where a copy lies beside the checkout or below OCSSL_DATA."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from ocssl import data
from ocssl.data.catalog import dataset_spec

BESIDE_THE_CHECKOUT = Path(__file__).parents[3] / "shared" / "data"
ROOT = Path(os.environ.get("OCSSL_DATA") or BESIDE_THE_CHECKOUT)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        dataset_spec("cifar100").locate(ROOT, "train") is None,
        reason=f"CIFAR-100 is not below {ROOT}; put it there or set OCSSL_DATA",
    ),
]


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    """Both splits, decoded afresh."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCSSL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return {split: data.load("cifar100", split=split, root=ROOT) for split in ("train", "test")}


def test_both_splits_are_complete_and_balanced(splits):
    for split, per_class in {"train": 500, "test": 100}.items():
        source = splits[split]
        assert len(source) == 100 * per_class
        assert source.labels.bincount().tolist() == [per_class] * 100
        assert len(source.classes) == 100
        assert source.images([0]).shape == (1, 3, 32, 32)
    assert splits["train"].classes[:3] == ("apple", "aquarium_fish", "baby")


def test_the_channels_have_the_stated_mean_and_spread(splits):
    source = splits["train"]
    images = source.images(range(len(source)))
    levels = torch.arange(256, dtype=torch.float64) / 255
    for channel in range(3):
        counts = images[:, channel].flatten().bincount(minlength=256)
        share = counts.double() / counts.sum()
        mean = float(share @ levels)
        std = float(share @ (levels - mean) ** 2) ** 0.5
        assert round(mean, 4) == source.mean[channel] == (0.5071, 0.4865, 0.4409)[channel]
        assert round(std, 4) == source.std[channel] == (0.2673, 0.2564, 0.2762)[channel]


def test_split_cifar100_is_the_papers_stream(splits):
    labels = splits["train"].labels
    train, validation = data.streams.split_validation(labels, fraction=0.1, seed=0)
    stream = data.streams.class_incremental(labels, 20, indices=train, data_seed=0, stream_batch=10)
    assert len(validation) == 5_000
    assert labels[validation].bincount().tolist() == [50] * 100
    experiences = [stream.indices(number) for number in range(stream.experiences)]
    assert [len(each) for each in experiences] == [2_250] * 20
    assert [len(labels[each].unique()) for each in experiences] == [5] * 20
    together = torch.cat(experiences)
    assert torch.equal(together.sort().values, train)
    assert len(stream) == 45_000
    assert sum(1 for _ in stream) == 4_500
