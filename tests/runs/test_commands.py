"""The commands that look at runs: show, compare, probe, list, budget; and the trackers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from ocssl.runs.result import read_result

from helpers.command import TINY, Command, as_options
from ocssl import memory, methods, strategies
from ocssl.data import names
from ocssl.errors import DataError

SHORT = TINY | {"samples_per_class": 10, "experiences": 2, "stream_batch": 8, "batch": 16}


@pytest.fixture(scope="module")
def runs(ocssl_module: Command) -> list[Path]:
    """CLA-E and ER, finished."""
    for strategy in ("cla-e", "er"):
        code, _, err = ocssl_module("run", "-q", "-o", strategy, *as_options(SHORT | {"strategy": strategy}))
        assert code == 0, err
    return [ocssl_module.folder / "cla-e", ocssl_module.folder / "er"]


def test_show_tells_what_a_finished_run_found(ocssl: Command, runs: list[Path]) -> None:
    code, out, _ = ocssl("show", runs[0], "--matrix", "--settings")
    result = read_result(runs[0])
    assert code == 0
    for words in (f"{result.final:.2f} %", f"{result.cbp_spent:,} of", "untrained", "pixels", "k-NN", "momentum: 0.9"):
        assert words in out
    assert out.count("e2") == 2  # the matrix: a column and a row


def test_show_tells_how_far_an_unfinished_run_got(ocssl: Command, tmp_path: Path) -> None:
    ocssl("run", "-q", "-o", "run", *as_options(SHORT | {"checkpoint_samples": 80, "log_every": 2}), die_at_sync=8)
    code, out, _ = ocssl("show", "run")
    assert code == 0
    for words in ("not finished", "got to", "checkpoints/000001", "ocssl run --resume run"):
        assert words in out


def test_compare_puts_runs_side_by_side_and_draws_them(ocssl: Command, tmp_path: Path, runs: list[Path]) -> None:
    from PIL import Image

    code, out, err = ocssl("compare", *runs, "--plot", "curves.png")
    assert code == 0, err
    for run in runs:
        assert f"{read_result(run).final:.2f}" in out
    assert "shapes untrained" in out
    assert Image.open(tmp_path / "curves.png").size == (1050, 630)


def test_compare_refuses_half_a_result(ocssl: Command, tmp_path: Path, runs: list[Path]) -> None:
    text = (runs[0] / "result.json").read_text()
    (tmp_path / "half.json").write_text(text[: len(text) // 2])
    code, _, err = ocssl("compare", "half.json")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "is not a complete result" in err
    (tmp_path / "poor.json").write_text(json.dumps({k: v for k, v in json.loads(text).items() if k != "protocol"}))
    with pytest.raises(DataError, match="protocol"):
        read_result(tmp_path / "poor.json")


def test_compare_says_when_protocols_differ(ocssl: Command, tmp_path: Path, runs: list[Path]) -> None:
    other = json.loads((runs[0] / "result.json").read_text()) | {"protocol": "authors"}
    (tmp_path / "authors.json").write_text(json.dumps(other))
    assert "do not compare" in ocssl("compare", runs[0], "authors.json")[1]
    assert "do not compare" not in ocssl("compare", *runs)[1]


def test_compare_tells_runs_apart_that_differ_in_their_folders_alone(
    ocssl: Command, tmp_path: Path, runs: list[Path]
) -> None:
    twins = [tmp_path / lr / "seed0" for lr in ("lr0.1", "lr0.3")]
    for twin in twins:
        shutil.copytree(runs[0], twin)
    code, out, err = ocssl("compare", *twins, "--plot", "curves.svg")
    assert code == 0, err
    drawn = (tmp_path / "curves.svg").read_text()
    for name in ("(lr0.1/seed0)", "(lr0.3/seed0)"):
        assert name in out
        assert name in drawn


def test_numbers_of_validation_images_are_called_that(ocssl: Command, tmp_path: Path, runs: list[Path]) -> None:
    code, out, err = ocssl("run", "-q", "-o", "run", *as_options(SHORT | {"measure_on": "validation"}))
    assert code == 0, err
    assert "validation images" in out
    assert "validation" in ocssl("show", "run")[1]
    assert "validation" not in ocssl("show", runs[0])[1]
    assert "measured on validation images, others on test images" in ocssl("compare", runs[0], "run")[1]
    assert "of 180 test images" in ocssl("probe", "run", "-q")[1]  # ten of each class


def test_probe_notices_that_the_images_have_changed(ocssl: Command, tmp_path: Path, runs: list[Path]) -> None:
    from PIL import Image

    for split, count in (("train", 20), ("test", 10)):
        for label in range(2):
            (tmp_path / "set" / split / str(label)).mkdir(parents=True)
            for number in range(count):
                colour = (200 * label, 10 * number, 100)
                Image.new("RGB", (8, 8), colour).save(tmp_path / "set" / split / str(label) / f"{number}.png")
    measure = ("probe", runs[0], "--dataset", f"folder:{tmp_path / 'set'}", "-q")
    before = ocssl(*measure)[1]
    assert "linear 50.00 %" not in before
    assert ocssl(*measure)[1] == before
    for image in (tmp_path / "set").rglob("*.png"):
        Image.new("RGB", (8, 8), (77, 77, 77)).save(image)
    assert "linear 50.00 %" in ocssl(*measure)[1]


def test_probe_repeats_a_runs_final_number_and_keeps_the_features(ocssl: Command, runs: list[Path]) -> None:
    final = read_result(runs[0]).final
    for cached in (False, True):
        code, out, err = ocssl("probe", runs[0])
        assert code == 0, err
        assert f"shapes: linear {final:.2f} %" in out
        assert ("features" in err) == (not cached)  # extraction shows its progress
        assert json.loads((runs[0] / "probes" / "shapes.json").read_text())["features_cached"] == cached


def test_probe_tells_its_numbers_where_it_cannot_keep_them(ocssl: Command, tmp_path: Path, runs: list[Path]) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs[0], run, ignore=shutil.ignore_patterns("features", "probes"))
    for folder in ("features", "probes"):
        (run / folder).touch()  # nothing can be written below a file, whoever tries
    code, out, err = ocssl("probe", run, "-q")
    assert (code, f"linear {read_result(run).final:.2f} %" in out) == (0, True), err
    features, record = err.splitlines()
    assert "warning: could not keep the features" in features
    assert f"warning: could not write '{run / 'probes' / 'shapes.json'}'" in record


def test_probe_keeps_features_for_everybody_who_may_read_the_run(ocssl: Command, runs: list[Path]) -> None:
    assert ocssl("probe", runs[0], "-q")[0] == 0
    (kept,) = (runs[0] / "features").glob("shapes-*")
    assert kept.stat().st_mode == (runs[0] / "result.json").stat().st_mode


def test_probe_measures_on_another_data_set(ocssl: Command, runs: list[Path], cifar100: Path) -> None:
    code, out, err = ocssl("probe", runs[1], "--dataset", f"parquet:{cifar100 / 'cifar100'}", "--no-cache", "-q")
    assert code == 0, err
    assert "of 400 test images" in out
    assert not (runs[1] / "features").exists()
    found = json.loads(next((runs[1] / "probes").iterdir()).read_text())
    assert (found["train"], found["validation"], found["test"]) == (1100, 100, 400)


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("strategies", strategies.names()),
        ("methods", methods.names()),
        ("memories", memory.names()),
        ("datasets", names()),
    ],
)
def test_list_has_every_name_with_a_line_on_it(ocssl: Command, kind: str, known: list[str]) -> None:
    code, out, _ = ocssl("list", kind)
    first_words = {line.split()[0]: line.split()[1:] for line in out.splitlines() if not line.startswith(" ")}
    assert code == 0
    assert list(first_words) == known
    assert all(first_words.values())


def test_budget_knows_the_papers_two(ocssl: Command) -> None:
    rows = [line.split() for line in ocssl("budget")[1].splitlines()]
    assert ["3", "138", "128", "13,500", "3,726,000", "42"] in rows
    rows = [line.split() for line in ocssl("budget", "--cbp", 270_000)[1].splitlines()]
    assert rows[1:] == [
        ["1", "30", "20", "4,500", "270,000", "3"],
        ["2", "15", "5", "9,000", "270,000", "3"],
        ["3", "10", "0", "13,500", "270,000", "3"],
    ]
    assert "3,726,000" in ocssl("budget", "--batch", 138, "--passes", 3)[1]


def test_budget_refuses_what_buys_nothing(ocssl: Command) -> None:
    code, _, err = ocssl("budget", "--cbp", 10)
    assert (code, err) == (2, "ocssl: 10 CBP do not pay for that; the least is 90000\n")


def test_the_python_example_in_the_docs_runs_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "runs.md").read_text()
    program = page.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    assert read_result(tmp_path / "runs" / "shapes-er").strategy == "er"


# ---------------------------------------------------------------------- trackers

WANDB = """
import json
class Run:
    def __init__(self): self.summary, self.lines = {}, []
    def log(self, numbers): self.lines.append(numbers)
    def finish(self): json.dump([self.lines, self.summary], open("wandb.json", "w"))
def init(**settings):
    json.dump(settings, open("wandb-init.json", "w"))
    return Run()
"""
MLFLOW = """
import json
said = []
def set_experiment(name): said.append(["experiment", name])
class Run:
    class info: run_id = "r1"
def start_run(run_name=None, run_id=None):
    said.append(["start", run_name, run_id])
    return Run
def log_params(settings): said.append(["params", settings])
def log_metrics(numbers, step=None): said.append(["metrics", numbers, step])
def end_run(): json.dump(said, open("mlflow.json", "w"))
"""
TENSORBOARD = """
import json
class SummaryWriter:
    def __init__(self, folder): self.folder, self.said = folder, []
    def add_text(self, name, text): pass
    def add_scalar(self, name, value, step=None): self.said.append([name, value, step])
    def close(self): json.dump([self.folder, self.said], open("tensorboard.json", "w"))
"""


def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on(ocssl: Command, tmp_path: Path) -> None:
    broken = "def init(**settings): raise OSError('no route to host')"
    settings = SHORT | {"trackers": ["wandb"], "evaluate": "never"}
    code, _, err = ocssl("run", "-q", "-o", "run", *as_options(settings), modules={"wandb": broken})
    assert code == 0
    assert err == "ocssl: warning: wandb failed and is left out from here on: no route to host\n"
    assert read_result(tmp_path / "run").warnings == [err.removeprefix("ocssl: warning: ").strip()]


def test_a_resumed_run_goes_on_under_its_name_at_the_tracker(ocssl: Command, tmp_path: Path) -> None:
    settings = SHORT | {"trackers": ["mlflow"], "evaluate": "never", "checkpoint_samples": 40}
    stand_in = {"modules": {"mlflow": MLFLOW}}
    ocssl("run", "-q", "-o", "run", *as_options(settings), **stand_in, die_at_sync=12)
    code, _, err = ocssl("run", "-q", "--resume", "run", **stand_in)
    assert code == 0, err
    said = json.loads((tmp_path / "mlflow.json").read_text())
    assert [entry for entry in said if entry[0] in ("start", "params")] == [["start", None, "r1"]]


def test_trackers_get_a_copy_of_every_number(ocssl: Command, tmp_path: Path) -> None:
    settings = SHORT | {"trackers": ["wandb", "mlflow", "tensorboard"], "references": False}
    stand_ins = {"wandb": WANDB, "mlflow": MLFLOW, "torch.utils.tensorboard": TENSORBOARD}
    code, _, err = ocssl("run", "-q", "-o", "run", *as_options(settings), modules=stand_ins)
    assert code == 0, err
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [(line["samples"], line["losses"]["total"]) for line in lines if line["kind"] == "train"]
    probes = [(line["samples"], line["linear"]) for line in lines if line["kind"] == "probe"]
    final = read_result(tmp_path / "run").final

    sent, summary = json.loads((tmp_path / "wandb.json").read_text())
    assert [(n["samples"], n["loss/total"]) for n in sent if "loss/total" in n] == losses
    assert [(n["samples"], n["probe/linear"]) for n in sent if "probe/linear" in n] == probes
    assert summary["final"] == final
    assert json.loads((tmp_path / "wandb-init.json").read_text())["config"]["lr"] == 0.1

    said = json.loads((tmp_path / "mlflow.json").read_text())
    sent = [entry[1:] for entry in said if entry[0] == "metrics"]
    assert [(step, numbers["loss/total"]) for numbers, step in sent if "loss/total" in numbers] == losses
    assert sent[-1][0]["final"] == final

    folder, said = json.loads((tmp_path / "tensorboard.json").read_text())
    assert Path(folder) == Path("run") / "tensorboard"
    assert [(step, value) for name, value, step in said if name == "loss/total"] == losses
