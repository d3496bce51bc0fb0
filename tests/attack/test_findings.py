"""What attacks and the fuzzer found, each with a test of its own."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import fuzz
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attacking import Attack
from hostile import png, sampled

from ocssl import Learner, export
from ocssl.common.checkpoints import CheckpointFolder
from ocssl.common.files import atomic_write, remove_drafts, unseal
from ocssl.data.catalog import dataset_spec
from ocssl.data.formats import parquet
from ocssl.data.formats.pages import column_chunks
from ocssl.data.formats.parquet import ParquetReader
from ocssl.data.formats.tar import TarReader
from ocssl.errors import CheckpointError, ConfigError, DataError
from ocssl.live.sources import open_reader
from ocssl.nn import build_backbone
from ocssl.results import read_result
from ocssl.runs.environment import _kernels
from ocssl.sweeps import search
from ocssl.sweeps.log import TrialLog
from ocssl.sweeps.plan import parse_sweep

# ---------------------------------------------------------------------- fuzzing


@pytest.mark.parametrize("name", fuzz.TARGETS)
@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.attack)])
def test_damaged_files_are_refused_or_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, count: int):
    monkeypatch.setenv("OCSSL_CACHE", str(tmp_path / "cache"))
    assert fuzz.work([name], 0, tmp_path, count) == []


def test_the_fuzzer_finds_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = fuzz.TARGETS["pickle"]
    monkeypatch.setitem(fuzz.TARGETS, "pickle", fuzz.Target(good.make, lambda path: json.loads(path.read_bytes())))
    (found,) = fuzz.work(["pickle"], 0, tmp_path, 5)[:1]
    assert found.startswith("pickle ")
    assert "Traceback" in found


def test_the_same_seed_damages_in_the_same_way() -> None:
    one, other = (fuzz.damaged(b"abc" * 100, "x", random.Random(3)) for _ in range(2))
    assert one == other != b"abc" * 100


def _header_alone(path: Path) -> None:
    path.write_bytes(b"\x1f\x8b\x08")


def _negative_size(path: Path) -> None:
    info = tarfile.TarInfo("a.png")
    header = bytearray(info.tobuf())
    header[124:136] = b"\xff" * 12
    path.write_bytes(bytes(header) + bytes(1024))


@pytest.mark.parametrize("put", [_header_alone, _negative_size])
def test_a_tar_that_ends_in_its_header_is_refused(tmp_path: Path, put) -> None:
    put(tmp_path / "x.tar.gz")
    with pytest.raises(DataError, match="is not a readable tar file"):
        list(TarReader([tmp_path / "x.tar.gz"]).items())


def test_a_parquet_file_whose_schema_is_no_text_is_refused(tmp_path: Path) -> None:
    table = pa.table({"image": pa.array([png()], pa.binary())})
    pq.write_table(table, tmp_path / "x.parquet", store_schema=False)
    content = (tmp_path / "x.parquet").read_bytes().replace(b"image", b"\xff\xed\xfe\xffe")
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.parquet"):
        list(ParquetReader([tmp_path / "x.parquet"]).items())


def test_a_parquet_column_with_statistics_of_another_size_is_refused(tmp_path: Path) -> None:
    """pyarrow aborts the process when somebody asks it for the metadata of such a column."""
    path = tmp_path / "x.parquet"
    schema = pa.schema([pa.field("image", pa.binary())])
    pq.write_table(pa.table({"image": [png(), None]}, schema=schema), path, store_schema=False)
    content, optional = path.read_bytes(), b"\x15\x0c\x25\x02\x18\x05image"  # type, repetition and name of the column
    assert content.count(optional) == 1
    path.write_bytes(content.replace(optional, optional.replace(b"\x02", b"\x00")))  # it has no levels any more
    with pytest.raises(DataError, match="histogram size mismatch"):
        list(ParquetReader([path]).items())


def test_the_footer_of_a_parquet_file_is_what_pyarrow_reads(tmp_path: Path) -> None:
    images = pa.array([{"bytes": png(), "path": "a"}] * 9)
    table = pa.table({"image": images, "label": [*"abcabcabc"], "is": [True] * 9, "x": [0.5] * 9})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=4, write_page_index=True)
    facts = pq.ParquetFile(tmp_path / "x.parquet").metadata
    expected = [[facts.row_group(row).column(one) for one in range(facts.num_columns)] for row in range(3)]
    with (tmp_path / "x.parquet").open("rb") as file:
        found = column_chunks(file)
    assert [[(chunk.column, chunk.size, chunk.packed, chunk.start) for chunk in group] for group in found] == [
        [
            (
                chunk.path_in_schema.partition(".")[0],
                chunk.total_uncompressed_size,
                chunk.total_compressed_size,
                min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset),
            )
            for chunk in group
        ]
        for group in expected
    ]


@pytest.mark.parametrize("name", ["camera:" + "9" * 5000, "camera:99999999999"])
def test_a_camera_of_many_digits_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="a camera is given by its number"):
        open_reader(name)


def test_a_seed_of_many_digits_is_refused() -> None:
    with pytest.raises(ConfigError, match="at most 18 digits"):
        dataset_spec("imagenet100:authors:" + "9" * 5000)


TRIAL = {"trial": 1, "values": {"lr": 0.1}, "seeds": [0], "scores": [None], "cbp": [None], "reasons": [None]}
TRIALS = {
    f"{key} {value!r}": (key, value)
    for key, value in (
        ("values", 3.5), ("values", {"lr": []}), ("seeds", []), ("seeds", [-1]), ("seeds", ["x"]), ("scores", ["x"]),
        ("scores", [None, None]), ("cbp", [1.5]), ("cbp", [-1]), ("reasons", [3]), ("folder", "/tmp"), ("trial", 0),
        ("folder", "../../elsewhere"), ("folder", "trials/.."), ("folder", 3), ("trial", 2), ("trial", None),
    )
}  # fmt: skip


@pytest.mark.parametrize("case", sampled(TRIALS, 4))
def test_a_list_of_trials_that_does_not_fit_is_refused(tmp_path: Path, case) -> None:
    key, value = case
    line = {**TRIAL, "folder": "trials/001", key: value}
    (tmp_path / "trials.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(CheckpointError, match="is not a list of trials"):
        TrialLog(tmp_path / "trials.jsonl")


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", float("nan")), ("stream_batch", {}), ("batch", None), ("memory", []), ("strategy", 3), ("stream", "iid")],
)
def test_a_result_with_settings_of_other_types_is_refused(tmp_path: Path, name: str, value: object) -> None:
    content = json.loads(fuzz.RESULT.read_text())
    content["config"][name] = value
    (tmp_path / "r.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="is not a complete result: config: "):
        read_result(tmp_path / "r.json")


# ---------------------------------------------------------------------- tuned values


def test_a_long_tuned_value_is_one_sentence(attack: Attack) -> None:
    attack.put("tuned.yaml", f"cla-e: {{lr: [{'x, ' * 9000} x]}}")
    err = attack.refuse("paper", "run", "high-simsiam", "--tuned", "tuned.yaml", says="numbers of at least 0")
    assert len(err) < 1000


# ---------------------------------------------------------------------- facts of saved states


def _learner() -> Learner:
    return Learner(backbone="convnet-w4", image_size=8, hidden_dim=8, output_dim=8, batch=12, device="cpu")


def test_a_fact_that_was_changed_is_noticed(tmp_path: Path) -> None:
    learner = _learner()
    learner.save(tmp_path / "saved")
    export.publish(learner, tmp_path / "encoder")
    for index, load in (
        (tmp_path / "saved/learner.json", Learner.load),
        (tmp_path / "encoder/encoder.json", export.load),
    ):
        whole = index.read_text()
        content = json.loads(whole)
        content["facts"]["seen"] += 1
        index.write_text(json.dumps(content))
        with pytest.raises(CheckpointError, match="changed after it was saved"):
            load(index.parent)
        index.write_text(json.dumps(unseal(json.loads(whole))))
        load(index.parent)  # as versions before had it
    folder = CheckpointFolder(tmp_path / "checkpoints")
    saved = folder.save(lambda draft: None, {"samples": 3}, 1)
    (saved / "state.json").write_text((saved / "state.json").read_text().replace("3", "4", 1))
    with pytest.raises(CheckpointError, match="changed after it was saved"):
        folder.read_state(saved)


def test_an_encoder_that_claims_a_large_network_takes_no_memory_for_it(tmp_path: Path) -> None:
    export.publish(_learner(), tmp_path / "encoder")
    index = tmp_path / "encoder" / "encoder.json"
    content = unseal(json.loads(index.read_text()))
    content["facts"] |= {"backbone": "convnet", "width": 4096}
    index.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="does not fit the backbone"):
        export.load(tmp_path / "encoder")


# ---------------------------------------------------------------------- searches


class _Study:
    """Proposes the same again and again."""

    def add_trial(self, trial: object) -> None:
        pass

    def ask(self, space: object) -> SimpleNamespace:
        return SimpleNamespace(params={"lr": 0.1})


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optuna that has one idea."""
    optuna = SimpleNamespace(
        create_study=lambda **_: _Study(),
        samplers=SimpleNamespace(TPESampler=lambda **_: None),
        trial=SimpleNamespace(TrialState=SimpleNamespace(RUNNING=0), create_trial=lambda **_: None),
        distributions=SimpleNamespace(
            CategoricalDistribution=lambda values: values, FloatDistribution=lambda *_, **__: 0
        ),
    )
    monkeypatch.setattr(search, "import_optuna", lambda: optuna)


@pytest.mark.usefixtures("stubborn")
def test_a_search_of_a_space_that_is_used_up_ends(tmp_path: Path) -> None:
    """Between these two ends there are two numbers, not the five that are asked for."""
    space = {"lr": {"low": 0.1, "high": 0.10000000000000002}}
    sweep = parse_sweep(
        {"settings": {"dataset": "shapes", "strategy": "er"}, "search": "tpe", "trials": 5, "space": space}
    )
    log = TrialLog(tmp_path / "trials.jsonl")

    def ended() -> Iterator[object]:
        for trial in search.next_trials(sweep, log, lambda: 1):
            assert trial is not None
            log.record(trial, 0, 50.0, 1)
            yield trial

    assert 1 <= len(list(ended())) < 5


# ---------------------------------------------------------------------- parquet, timm, drafts, kernels


def test_a_page_that_claims_too_much_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [os.urandom(1000)] * 3 + [os.urandom(100_000)]
    table = pa.table({"image": pa.array(rows, pa.binary()), "label": ["a", "b", "c" * 3000, "d"]})
    for number, (packed, words) in enumerate((p, w) for p in ("none", "zstd") for w in (True, False)):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(table, path, compression=packed, use_dictionary=words)
        monkeypatch.setattr(parquet, "MAX_PAGE_BYTES", 1 << 20)
        assert len(list(ParquetReader([path]).items())) == 4
        monkeypatch.setattr(parquet, "MAX_PAGE_BYTES", 100_000)
        with pytest.raises(DataError, match="has a page of 10"):
            list(ParquetReader([path]).items())
        monkeypatch.setattr(parquet, "MAX_PAGE_BYTES", 1000)
        with pytest.raises(DataError, match="has a page of 3"):
            ParquetReader([path]).column("label")


@pytest.mark.parametrize(
    "name", ["hf-hub:a/b", "hf_hub:a/b", "local-dir:/etc", "a/b", "../x", "resnet18.a.b", "http://a", "no"]
)
def test_a_timm_name_reaches_neither_a_network_nor_a_folder(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def create_model(*_: object, **__: object) -> None:
        raise AssertionError("timm was asked")

    timm = SimpleNamespace(
        create_model=create_model, is_model=lambda name: name == "resnet18", list_models=lambda _: []
    )
    monkeypatch.setitem(sys.modules, "timm", timm)
    with pytest.raises(ConfigError, match="unknown timm backbone"):
        build_backbone(f"timm:{name}", 8)


def test_drafts_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    dead, other = tmp_path / ".a.txt.0123456789ab", tmp_path / ".b.txt.0123456789ab"
    folder = tmp_path / ".a.txt.ba9876543210"
    dead.touch()
    other.touch()
    folder.mkdir()
    (folder / "a.txt").touch()
    alive: list[str] = []

    def write(draft: Path) -> None:
        draft.write_text("new")
        remove_drafts(tmp_path, "a.txt")  # as another process would
        alive.extend(path.name for path in tmp_path.iterdir() if path == draft.parent)

    atomic_write(tmp_path / "a.txt", write)
    assert len(alive) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.txt.0123456789ab", "a.txt"]
    assert (tmp_path / "a.txt").read_text() == "new"


def test_an_embedding_that_is_killed_while_it_tidies_up_goes_on(attack: Attack) -> None:
    """The folder of parts keeps the file that says whose it is until all parts are gone."""
    parts = "import os, pathlib, signal\nreal = pathlib.Path.unlink\n"
    parts += "def unlink(path, **_):\n    real(path, **_)\n"
    parts += "    path.suffix in ('.parquet', '.txt') and path.parent.suffix == '.parts' and os.kill(os.getpid(), 9)\n"
    small = "import ocssl.export.features as features; features.embed.__kwdefaults__['part'] = 3\n"
    words = ("embed", "state", "imgs", "-q", "-o", "f.parquet")
    assert (
        attack.end(attack.start(*words, modules={"small": small, "dies": f"{parts}pathlib.Path.unlink = unlink"})) == -9
    )
    assert (attack.folder / "f.parquet.parts" / "made-from.txt").exists()
    assert attack.call(*words)[0] == 0
    assert not (attack.folder / "f.parquet.parts").exists()


def test_compiled_kernels_lie_in_a_folder_of_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCSSL_CACHE", str(tmp_path))
    assert _kernels().name == f"compiled-{os.getuid()}"
    assert _kernels().stat().st_mode & 0o077 == 0
    _kernels().chmod(0o777)
    with pytest.raises(ConfigError, match="compiled kernels are code"):
        _kernels()


def test_report_and_tables_are_refused_before_anything_is_printed(attack: Attack) -> None:
    attack.put("t.csv")
    for words in ("compare results/r0.json -o t.csv", "report results -o out --format csv --format html --format png"):
        if words.startswith("report"):
            attack.put("out/report.html")
        process = attack.start(*words.split())
        assert attack.end(process) == 2, process.err
        assert process.out == ""
        assert not (attack.folder / "out" / "tables").exists()


def test_a_working_folder_that_was_deleted_is_named(tmp_path: Path) -> None:
    """Not in this process: it is the import of torch that fails there."""
    script = f"mkdir gone && cd gone && rmdir ../gone && exec {shlex.quote(sys.executable)} -m ocssl show robot"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("ocssl: the working folder was deleted; change to one that is there\n")
