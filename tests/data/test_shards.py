"""Parquet, and the splits of shards: those of the Hub, of parquet and of tar files, read back bit by bit."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pictures import assert_holds, make_tar, pixels, png, write, write_parquet

from ocssl import data
from ocssl.data.formats.hub import shards_by_config
from ocssl.data.formats.parquet import ParquetReader
from ocssl.errors import ConfigError, DataError

# Parquet --------------------------------------------------------------------------------------------------------------


def test_parquet_columns_go_by_other_names_too(tmp_path):
    write_parquet(tmp_path / "a.parquet", [pixels(0), pixels(1)], ["dog", "cat"], image="image", label="label")
    source = data.load(f"parquet:{tmp_path / 'a.parquet'}")
    assert_holds(source, [pixels(0), pixels(1)], [1, 0], ["cat", "dog"])


@pytest.mark.parametrize(
    ("binary", "text"),
    [
        (pa.large_binary(), pa.large_string()),
        (pa.binary_view(), pa.string_view()),
        (pa.dictionary(pa.int32(), pa.binary()), pa.dictionary(pa.int32(), pa.string())),
    ],
)
def test_parquet_columns_of_every_type_for_bytes_and_texts_are_read(tmp_path, binary, text):
    image, label = pa.array([png(pixels(0)), png(pixels(1))]).cast(binary), pa.array(["dog", "cat"]).cast(text)
    pq.write_table(pa.table({"image": image, "label": label}), tmp_path / "a.parquet")
    assert_holds(data.load(f"parquet:{tmp_path}"), [pixels(0), pixels(1)], [1, 0], ["cat", "dog"])


def test_parquet_without_labels_has_none_and_minus_one_is_no_label(tmp_path):
    write_parquet(tmp_path / "a.parquet", [pixels(0)])
    assert_holds(data.load(f"parquet:{tmp_path}"), [pixels(0)])
    write_parquet(tmp_path / "b" / "a.parquet", [pixels(0), pixels(1)], [-1, -1])
    assert_holds(data.load(f"parquet:{tmp_path / 'b'}"), [pixels(0), pixels(1)])


def test_a_data_set_without_columns_says_where_they_come_from():
    with pytest.raises(ConfigError, match="shapes has no column 'light'; parquet files have columns, and image files"):
        data.load("shapes", split="test").column("light")


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


def test_a_shard_with_other_columns_is_named(tmp_path):
    pq.write_table(pa.table({"image": [png(pixels(0))], "label": [0], "when": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"image": [png(pixels(1))]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet has no column 'label', which a\.parquet has"):
        data.load(f"parquet:{tmp_path}")
    with pytest.raises(ConfigError, match=r"b\.parquet has no column 'when'"):
        ParquetReader([tmp_path / "a.parquet", tmp_path / "b.parquet"]).column("when")


@pytest.mark.parametrize("labels", [[[0, 1], [2]], [b"a", b"b"], [0.5, 1.0], [{"id": 1}, {"id": 2}]])
def test_a_label_column_of_neither_whole_numbers_nor_texts_is_none(tmp_path, labels):
    images = [png(pixels(0)), png(pixels(1))]
    pq.write_table(pa.table({"image": images, "label": labels, "cls": [3, 4]}), tmp_path / "a.parquet")
    assert_holds(data.load(f"parquet:{tmp_path}"), [pixels(0), pixels(1)], [3, 4])


def test_a_folder_called_like_a_shard_is_looked_into(tmp_path):
    write_parquet(tmp_path / "pile" / "set.parquet" / "part-0.parquet", [pixels(0)], [0])
    assert_holds(data.load(f"parquet:{tmp_path / 'pile'}"), [pixels(0)], [0])


# Splits of shards -----------------------------------------------------------------------------------------------------


def test_shards_that_number_their_classes_differently_are_refused(tmp_path):
    for number, names in enumerate([["cat", "dog"], ["dog", "cat"]]):
        write_parquet(tmp_path / f"train-{number}.parquet", [pixels(0), pixels(1)], [0, 1], names=names)
    with pytest.raises(DataError, match=r"train-1\.parquet has other class names than train-0\.parquet"):
        data.load(f"parquet:{tmp_path}")


def test_validation_shards_are_not_mixed_into_the_test_split(tmp_path):
    for number, name in enumerate(["train", "validation", "test"]):
        write_parquet(tmp_path / "set" / f"{name}-0.parquet", [pixels(number)], [number])
    assert_holds(data.load(f"parquet:{tmp_path / 'set'}", split="test"), [pixels(2)], [2])
    (tmp_path / "set" / "test-0.parquet").unlink()
    assert_holds(data.load(f"parquet:{tmp_path / 'set'}", split="test"), [pixels(1)], [1])


@pytest.mark.parametrize("names", [("train0", "test0"), ("train2017", "val2017"), ("Training1", "testing1")])
def test_numbers_may_follow_the_split_in_the_names_of_shards(tmp_path, names):
    for value, name in enumerate(names):
        make_tar(tmp_path / f"{name}.tar", {"0.png": png(pixels(value))}, "w")
    for value, split in enumerate(("train", "test")):
        assert_holds(data.load(f"tar:{tmp_path}", split=split), [pixels(value)])


def test_training_shards_asked_for_by_name_are_no_test_split(tmp_path):
    write_parquet(tmp_path / "train-0.parquet", [pixels(0)], [0])
    with pytest.raises(DataError, match="has no test split"):
        data.load(f"parquet:{tmp_path / 'train-0.parquet'}", split="test")
    write_parquet(tmp_path / "test-0.parquet", [pixels(1)], [1])
    pattern = f"parquet:{tmp_path / '*.parquet'}"
    assert_holds(data.load(pattern), [pixels(0)], [0])
    assert_holds(data.load(pattern, split="test"), [pixels(1)], [1])
    assert_holds(data.load(f"parquet:{tmp_path / 'test-0.parquet'}"), [pixels(1)], [1])  # asked for by name, so be it


def write_named_parquet(path, names):
    write_parquet(path.with_suffix(".parquet"), [pixels(0)] * len(names), names, label="label")


def write_named_tar(path, names):
    members = {}
    for number, name in enumerate(names):
        members |= {f"{number}.png": png(pixels(0)), f"{number}.cls": name.encode()}
    make_tar(path.with_suffix(".tar"), members, "w")


@pytest.mark.parametrize(("scheme", "write_shard"), [("parquet", write_named_parquet), ("tar", write_named_tar)])
def test_named_labels_have_one_number_in_both_splits(tmp_path, scheme, write_shard):
    write_shard(tmp_path / "train-0", ["ant", "bee", "cat"])
    write_shard(tmp_path / "test-0", ["cat", "dog"])
    train, test = (data.load(f"{scheme}:{tmp_path}", split=split) for split in ("train", "test"))
    assert train.classes == test.classes == ("ant", "bee", "cat", "dog")
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 1, 2], [2, 3])
    write_shard(tmp_path / "test-0", ["aal", "dog"])  # which renumbers the training images, too
    assert data.load(f"{scheme}:{tmp_path}").labels.tolist() == [1, 2, 3]


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


def test_a_split_that_the_hub_does_not_have_is_named(monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.HfApi, "list_repo_files", lambda *args, **options: ["default/train/0000.parquet"])
    with pytest.raises(DataError, match="'owner/set' has no parquet files of a test split"):
        data.load("hf:owner/set", split="test")


def test_each_configuration_on_the_hub_has_test_images_by_its_own_name():
    names = ["a/test-0.parquet", "a/validation-0.parquet", "b/validation-0.parquet"]
    assert shards_by_config(names, "test") == {"a": ["a/test-0.parquet"], "b": ["b/validation-0.parquet"]}


@pytest.mark.parametrize("home", ["", "data/"])
def test_hub_shards_without_a_configuration_belong_together(home):
    names = [f"{home}train-0000{shard}-of-00002.parquet" for shard in range(2)]
    assert list(shards_by_config(names, "train").values()) == [names]


def test_a_hub_out_of_reach_is_one_sentence(monkeypatch):
    hub = pytest.importorskip("huggingface_hub")

    def unreachable(*args, **options):
        raise RuntimeError("name or service not known")

    monkeypatch.setattr(hub.HfApi, "list_repo_files", unreachable)
    with pytest.raises(DataError, match="could not get 'owner/set' from the Hugging Face Hub: name or service"):
        data.load("hf:owner/set")


def test_labels_are_not_numbered_over_one_split_because_the_other_cannot_be_had(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    write_named_parquet(tmp_path / "train-0", ["cat"])

    def fetch(repository, name, **options):
        if name.startswith("test"):
            raise RuntimeError("name or service not known")
        return str(tmp_path / name)

    monkeypatch.setattr(hub.HfApi, "list_repo_files", lambda *args, **options: ["train-0.parquet", "test-0.parquet"])
    monkeypatch.setattr(hub, "hf_hub_download", fetch)
    with pytest.raises(DataError, match="could not get 'owner/set' from the Hugging Face Hub: name or service"):
        data.load("hf:owner/set")
