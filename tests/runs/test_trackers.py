"""Metrics sent to TensorBoard, Weights & Biases and MLflow, each a stand-in that notes what it is given."""

from __future__ import annotations

import json
from pathlib import Path

from helpers.command import SHORT, Command, as_options
from ocssl.results import read_result

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
    assert json.loads((tmp_path / "wandb-init.json").read_text())["config"]["lr"] == 0.2

    said = json.loads((tmp_path / "mlflow.json").read_text())
    sent = [entry[1:] for entry in said if entry[0] == "metrics"]
    assert [(step, numbers["loss/total"]) for numbers, step in sent if "loss/total" in numbers] == losses
    assert sent[-1][0]["final"] == final

    folder, said = json.loads((tmp_path / "tensorboard.json").read_text())
    assert Path(folder) == Path("run") / "tensorboard"
    assert [(step, value) for name, value, step in said if name == "loss/total"] == losses
