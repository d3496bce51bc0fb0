"""The images of a run: held-out splits, the schedule of the stream, and reading ahead."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from drawing import draw
from PIL import Image
from torch import Tensor

from helpers.command import TINY
from ocssl import data
from ocssl.data.dataset import DatasetInfo, ResidentDataset
from ocssl.distributed import ProcessGroup
from ocssl.errors import ConfigError, DataError
from ocssl.imaging import decode
from ocssl.runs import data as run_data
from ocssl.runs.config import RunConfig
from ocssl.runs.data import DeviceDataset, Prefetcher, Schedule, Subset, load_splits, make_schedule
from ocssl.runs.presets import resolve
from ocssl.runs.run import start

SIZE, COUNT = 4, 50

# ---------------------------------------------------------------------- splits


@pytest.fixture
def untested(tmp_path: Path) -> dict[str, object]:
    """Settings of a run on a folder of images that has no test split at all."""
    for label in range(4):
        draw(tmp_path / "images" / "train" / str(label), 10, seed=label)
    return TINY | {"dataset": f"folder:{tmp_path / 'images'}", "experiences": 2, "samples_per_class": None}


def test_a_run_that_measures_on_validation_never_opens_the_test_images(
    untested: dict[str, object], tmp_path: Path
) -> None:
    config = resolve(untested | {"measure_on": "validation"})
    result = start(config, tmp_path / "run")
    assert result.final is not None
    assert result.measured_on == "validation"
    with pytest.raises(DataError, match="test"):
        start(resolve(untested), tmp_path / "other")


def test_it_is_scored_on_the_held_out_images_which_the_stream_does_not_hold(untested: dict[str, object]) -> None:
    splits = load_splits(resolve(untested | {"measure_on": "validation"}), torch.device("cpu"))
    assert len(splits.train) == 36
    assert splits.test.indices.tolist() == splits.validation.indices.tolist()
    assert not set(splits.test.indices.tolist()) & set(splits.train.indices.tolist())


@pytest.mark.parametrize("names", [("cat", "dog", "owl"), ("cat", "dog"), (), ("cat", "owl")])
def test_splits_that_number_their_classes_differently_are_refused(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(dataset: str, *, split: str, **_: object) -> data.Dataset:
        info = DatasetInfo("animals", classes=("cat", "dog", "owl") if split == "train" else names)
        return ResidentDataset(torch.zeros(30, 3, SIZE, SIZE, dtype=torch.uint8), info, labels=torch.arange(30) % 2)

    monkeypatch.setattr(run_data.data, "load", load)
    config = resolve(TINY | {"samples_per_class": None, "image_size": SIZE})
    if names != ("cat", "owl"):
        assert len(load_splits(config, torch.device("cpu")).test) == 30
        return
    with pytest.raises(DataError, match="label 1 of shapes is 'dog' in split train and 'owl' in split test"):
        load_splits(config, torch.device("cpu"))


def test_images_of_twelve_bits_are_read_in_the_range_of_the_learner(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    for place in (f"{split}/{label}/{number}.png" for split in ("train", "test") for label in "ab" for number in "01"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.integers(0, 4096, (8, 8), dtype=np.uint16)).save(tmp_path / place)
    given = {"dataset": f"folder:{tmp_path}", "pixel_range": [0, 4095], "validation_fraction": 0.5}
    config = resolve({name: TINY[name] for name in ("image_size", "device")} | given)
    for part in load_splits(config, torch.device("cpu")).subsets:
        assert part[:].max() > 200
    assert torch.equal(part[:1][0], torch.from_numpy(decode(tmp_path / "test/a/0.png", 8, "crop", (0, 4095))))


# ---------------------------------------------------------------------- schedule


@pytest.fixture(scope="module")
def train() -> Subset:
    """20 classes with 45 images each."""
    labels = torch.arange(20).repeat_interleave(45)
    source = ResidentDataset(
        torch.zeros(900, 3, 8, 8, dtype=torch.uint8), DatasetInfo("blank"), labels, columns=lambda name: -np.arange(900)
    )
    return Subset(DeviceDataset(source, torch.device("cpu")), torch.arange(900))


def settings(**given: object) -> RunConfig:
    return resolve({"experiences": 10, "stream_batch": 10, "batch": 30, "passes": 2, **given})


def test_a_stream_whose_borders_lie_inside_minibatches_is_refused(
    train: Subset, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Carrying(data.streams.StreamType):
        def build(self, labels, *, indices, stream_batch, **unused):
            return data.streams.ordered(indices=indices, experiences=7, stream_batch=stream_batch)

    monkeypatch.setitem(data.streams.registry._entries, "carrying", Carrying)
    config = resolve({"stream": "carrying", "stream_batch": 10, "batch": 30})
    with pytest.raises(ConfigError, match="experience 0 of stream 'carrying' ends at sample 129, inside a minibatch"):
        make_schedule(config, train)


def test_a_stream_that_cannot_be_built_as_a_run_does_is_refused(train: Subset, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unasked(data.streams.StreamType):
        def build(self, labels):
            raise AssertionError("it is not called")

    monkeypatch.setitem(data.streams.registry._entries, "unasked", Unasked)
    config = resolve({"stream": "unasked", "stream_batch": 10, "batch": 30})
    with pytest.raises(ConfigError, match=r"build\(\) of Unasked cannot be called as a run does \(.*'indices'\); its"):
        make_schedule(config, train)


def test_the_schedule_is_the_stream_cut_anywhere(train: Subset) -> None:
    schedule = make_schedule(settings(), train)
    stream = data.streams.class_incremental(train.dataset.labels, 10, indices=train.indices, stream_batch=10)
    assert schedule.borders == stream.borders == tuple(range(90, 901, 90))
    whole = torch.cat(list(stream))
    assert torch.equal(schedule.indices(0, 900), whole)
    assert torch.equal(schedule.indices(85, 271), whole[85:271])
    assert schedule.cbp == 2 * 30 * 2 * 90
    assert [len(classes) for classes in schedule.experiences] == [2] * 10
    assert schedule.fingerprint == stream.fingerprint()


def test_passes_of_the_first_images_are_planned(train: Subset) -> None:
    early = {"passes": 1, "early_passes": 4, "early_images": 295}
    schedule = make_schedule(settings(**early), train)
    assert schedule.cbp == 2 * 30 * (4 * 30 + 60)
    part = make_schedule(settings(**early, cbp=2 * 30 * (4 * 30 + 7) + 59), train)
    assert (len(part), part.cbp) == (370, 2 * 30 * (4 * 30 + 7))
    with pytest.raises(ConfigError, match="from 240 to 10800 CBP, not 239"):
        make_schedule(settings(**early, cbp=239), train)
    with pytest.raises(ConfigError, match="not 10860"):
        make_schedule(settings(**early, cbp=10860), train)
    with pytest.raises(ConfigError, match="no early_passes"):
        make_schedule(settings(stream="iid", **early), train)
    with pytest.raises(ConfigError, match="set early_images, too"):
        settings(early_passes=2)


def test_a_stream_without_sharp_borders_has_the_same_samples_and_cost(train: Subset) -> None:
    sharp, blurred = (make_schedule(settings(stream=name), train) for name in ("class-incremental", "blurred"))
    assert blurred.cbp == sharp.cbp
    assert blurred.fingerprint != sharp.fingerprint
    assert torch.equal(blurred.indices(0, 900).sort().values, train.indices)
    assert [len(classes) for classes in blurred.experiences] == [4, *[6] * 8, 4]


@pytest.mark.parametrize("stream", ["class-incremental", "blurred", "iid"])
def test_the_order_inside_experiences_can_be_that_of_the_runs_seed(train: Subset, stream: str) -> None:
    def made(**given: object) -> Schedule:
        return make_schedule(settings(stream=stream, **given), train)

    usual, first, second = made(seed=2), made(seed=1, sample_order="seed"), made(seed=2, sample_order="seed")
    assert made(seed=1).fingerprint == usual.fingerprint
    assert len({usual.fingerprint, first.fingerprint, second.fingerprint}) == 3
    assert (first.borders, first.cbp) == (usual.borders, usual.cbp)
    if stream == "class-incremental":
        assert first.experiences == usual.experiences
        assert torch.equal(first.indices(0, 90).sort().values, usual.indices(0, 90).sort().values)


def test_the_usual_order_is_in_no_digest() -> None:
    usual, changed = settings(), settings(sample_order="seed")
    assert usual.to_dict()["sample_order"] == "data"
    assert "sample_order" not in usual.only("experiment")
    assert changed.only("experiment")["sample_order"] == "seed"
    assert usual.digest() != changed.digest()
    assert usual.difference(changed) == changed.difference(usual) == "sample_order"


def test_an_ordered_stream_follows_a_column_of_the_data_set(train: Subset) -> None:
    plain = make_schedule(settings(stream="ordered"), train)
    assert torch.equal(plain.indices(0, 900), train.indices)
    backwards = make_schedule(settings(stream="ordered", sort_by="age"), train)
    assert torch.equal(backwards.indices(0, 900), train.indices.flip(0))
    assert backwards.experiences[0] == (18, 19)


def test_iid_training_costs_what_the_stream_would(train: Subset) -> None:
    online, iid = (make_schedule(settings(stream=name, batch=37), train) for name in ("class-incremental", "iid"))
    assert iid.cbp == online.cbp
    assert len(iid) * 2 == iid.cbp
    assert len(iid.borders) == 1
    first_epoch = iid.indices(0, 900)
    assert torch.equal(first_epoch.sort().values, train.indices)
    assert not torch.equal(first_epoch, iid.indices(900, 1800))


def test_iid_training_costs_no_more_than_a_stream_that_drops_incomplete_minibatches(train: Subset) -> None:
    online, iid = (
        make_schedule(settings(stream=name, stream_batch=8, batch=8, **more), train)
        for name, more in (("class-incremental", {"strategy": "finetune"}), ("iid", {}))
    )
    assert online.cbp == 2 * 8 * 2 * (10 * (90 // 8))
    assert iid.cbp == online.cbp


@pytest.mark.parametrize("stream", ["class-incremental", "iid"])
def test_a_total_cbp_ends_the_stream_within_one_batch_and_counts_what_was_spent_before(
    train: Subset, stream: str
) -> None:
    schedule = make_schedule(settings(stream=stream, cbp=7_777), train, spent=1_000)
    least_step = 2 * 30 * (1 if stream == "iid" else 2)
    assert 0 <= 6_777 - schedule.cbp < least_step
    with pytest.raises(ConfigError, match="1000 were spent before"):
        make_schedule(settings(stream=stream, cbp=1_000), train, spent=1_000)


def test_a_stream_cannot_spend_more_than_it_has(train: Subset) -> None:
    with pytest.raises(ConfigError, match="can spend from 120 to 10800 CBP"):
        make_schedule(settings(cbp=20_000), train)
    assert make_schedule(settings(cbp=20_000, stream="iid"), train).cbp == 19_980


# ---------------------------------------------------------------------- reading ahead


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
    """A schedule through all images from the last to the first."""

    def __len__(self) -> int:
        return COUNT

    def indices(self, start: int, stop: int) -> Tensor:
        return COUNT - 1 - torch.arange(start, stop)


@pytest.fixture
def source() -> Numbered:
    return Numbered()


def make(source: Numbered, *, ahead: bool, group: ProcessGroup | None = None) -> Prefetcher:
    return Prefetcher(DeviceDataset(source, torch.device("cpu")), Backwards(), group or ProcessGroup(), ahead=ahead)  # type: ignore[arg-type]


@pytest.mark.parametrize("block", [1, 7, 50, 1000])
@pytest.mark.parametrize("ahead", [True, False])
def test_stretches_of_any_length_get_their_images_in_order(
    source: Numbered, ahead: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_data, "BLOCK_BYTES", block * 3 * SIZE**2)
    subject = make(source, ahead=ahead)
    found = [subject.take(start, stop) for start, stop in ((0, 3), (3, 4), (4, 21), (21, 50))]
    subject.close()
    assert torch.cat(found)[:, 0, 0, 0].tolist() == list(range(COUNT - 1, -1, -1))


def test_each_block_is_read_once_and_by_the_other_thread(source: Numbered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_data, "BLOCK_BYTES", 10 * 3 * SIZE**2)
    subject = make(source, ahead=True)
    for first in range(0, COUNT, 5):
        subject.take(first, first + 5)
    subject.close()
    assert [count for _, count in source.readers] == [10, 10, 10, 10, 10]
    assert all(name.startswith("ocssl-prefetch") for name, _ in source.readers)


def test_the_next_block_is_on_its_way_before_it_is_asked_for(source: Numbered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_data, "BLOCK_BYTES", 10 * 3 * SIZE**2)
    subject = make(source, ahead=True)
    subject.take(0, 1)
    deadline = time.monotonic() + 30
    while len(source.readers) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    subject.close()
    assert len(source.readers) == 2


def test_a_resumed_run_begins_in_the_middle(source: Numbered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_data, "BLOCK_BYTES", 8 * 3 * SIZE**2)
    subject = make(source, ahead=True)
    assert subject.take(30, 33)[:, 0, 0, 0].tolist() == [19, 18, 17]
    subject.close()


def test_in_a_group_each_reads_its_share_of_a_stretch(source: Numbered) -> None:
    shares = [make(source, ahead=False, group=ProcessGroup(rank, 3)).take(10, 20) for rank in range(3)]
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
