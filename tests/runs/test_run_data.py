"""Images read ahead are the images that were asked for."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from ocssl.runs.feed import Prefetcher
from ocssl.runs.material import Pool
from torch import Tensor

from ocssl.data.dataset import DatasetInfo, ResidentDataset
from ocssl.distributed import Group
from ocssl.errors import DataError
from ocssl.runs import feed

SIZE, COUNT = 4, 50


class Numbered(ResidentDataset):
    """Image i is filled with i; remembers who read it."""

    def __init__(self) -> None:
        pixels = torch.arange(COUNT, dtype=torch.uint8).view(-1, 1, 1, 1).expand(COUNT, 3, SIZE, SIZE)
        super().__init__(pixels.contiguous(), DatasetInfo("numbered"), labels=torch.zeros(COUNT, dtype=torch.int64))
        self.readers: list[tuple[str, int]] = []

    def images(self, indices: Tensor) -> Tensor:  # type: ignore[override]
        self.readers.append((threading.current_thread().name, len(indices)))
        return super().images(indices)


class Backwards:
    """A route through all images from the last to the first."""

    def __len__(self) -> int:
        return COUNT

    def indices(self, start: int, stop: int) -> Tensor:
        return COUNT - 1 - torch.arange(start, stop)


@pytest.fixture
def source() -> Numbered:
    return Numbered()


def make(source: Numbered, *, ahead: bool, group: Group | None = None) -> Prefetcher:
    return Prefetcher(Pool(source, torch.device("cpu")), Backwards(), group or Group(), ahead=ahead)  # type: ignore[arg-type]


@pytest.mark.parametrize("block", [1, 7, 50, 1000])
@pytest.mark.parametrize("ahead", [True, False])
def test_stretches_of_any_length_get_their_images_in_order(
    source: Numbered, ahead: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "BLOCK_BYTES", block * 3 * SIZE**2)
    subject = make(source, ahead=ahead)
    found = [subject.take(start, stop) for start, stop in ((0, 3), (3, 4), (4, 21), (21, 50))]
    subject.close()
    assert torch.cat(found)[:, 0, 0, 0].tolist() == list(range(COUNT - 1, -1, -1))


def test_each_block_is_read_once_and_by_the_other_thread(source: Numbered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "BLOCK_BYTES", 10 * 3 * SIZE**2)
    subject = make(source, ahead=True)
    for start in range(0, COUNT, 5):
        subject.take(start, start + 5)
    subject.close()
    assert [count for _, count in source.readers] == [10, 10, 10, 10, 10]
    assert all(name.startswith("ocssl-feed") for name, _ in source.readers)


def test_the_next_block_is_on_its_way_before_it_is_asked_for(source: Numbered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "BLOCK_BYTES", 10 * 3 * SIZE**2)
    subject = make(source, ahead=True)
    subject.take(0, 1)
    deadline = time.monotonic() + 30
    while len(source.readers) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    subject.close()
    assert len(source.readers) == 2


def test_a_resumed_run_begins_in_the_middle(source: Numbered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "BLOCK_BYTES", 8 * 3 * SIZE**2)
    subject = make(source, ahead=True)
    assert subject.take(30, 33)[:, 0, 0, 0].tolist() == [19, 18, 17]
    subject.close()


def test_in_a_group_each_reads_its_share_of_a_stretch(source: Numbered) -> None:
    shares = [make(source, ahead=False, group=Group(rank, 3)).take(10, 20) for rank in range(3)]
    assert [len(share) for share in shares] == [4, 3, 3]
    assert torch.cat(shares)[:, 0, 0, 0].tolist() == list(range(39, 29, -1))


def test_an_image_that_cannot_be_read_is_told_where_it_is_asked_for(
    source: Numbered, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(indices: Tensor) -> Tensor:
        raise DataError("image 7 is broken")

    monkeypatch.setattr(source, "images", broken)
    subject = make(source, ahead=True)
    with pytest.raises(DataError, match="image 7"):
        subject.take(0, 1)
    subject.close()
