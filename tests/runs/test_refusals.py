"""What goes wrong before, during and after a run: one clear line, exit code 2, nothing overwritten."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from drawing import draw

from helpers.command import TINY, Command, as_options, refused
from helpers.results import CLA_E
from ocssl.runs.loop import RunLoop
from ocssl.runs.run import resume

SHORT = TINY | {"samples_per_class": 10, "experiences": 2, "stream_batch": 8, "batch": 16, "evaluate": "never"}


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file below a folder with a digest of its contents; a lock is no content."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def finished(ocssl_module: Command) -> Path:
    assert ocssl_module("run", "-q", "-o", "finished", *as_options(SHORT))[0] == 0
    return ocssl_module.folder / "finished"


@pytest.fixture(scope="module")
def killed(ocssl_module: Command) -> Path:
    """A run that was killed after its first checkpoint."""
    options = as_options(SHORT | {"checkpoint_samples": 40})
    ocssl_module("run", "-q", "-o", "killed", *options, die_at_sync=8)
    assert (ocssl_module.folder / "killed" / "checkpoints" / "000001").exists()
    return ocssl_module.folder / "killed"


@pytest.fixture
def stopped(killed: Path, tmp_path: Path) -> Path:
    """A copy of that run."""
    return shutil.copytree(killed, tmp_path / "stopped")


def test_a_folder_that_holds_a_finished_run_is_left_alone(ocssl: Command, finished: Path) -> None:
    before = fingerprint(finished)
    line = refused(ocssl, "run", "-o", finished, *as_options(SHORT))
    assert "holds a finished run" in line
    assert fingerprint(finished) == before


def test_a_folder_that_holds_a_stopped_run_is_left_alone(ocssl: Command, stopped: Path) -> None:
    before = fingerprint(stopped)
    line = refused(ocssl, "run", "-o", stopped, *as_options(SHORT))
    assert f"ocssl run --resume {stopped}" in line
    assert fingerprint(stopped) == before


def test_a_folder_with_other_things_in_it_is_left_alone(ocssl: Command, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    line = refused(ocssl, "run", "-o", "thesis", *as_options(SHORT))
    assert "is not empty" in line
    assert fingerprint(tmp_path / "thesis").keys() == {"chapter1.tex"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--lr", "0.7"], "lr 0.2, which a resumed run cannot change to 0.7"),
        (["--set", "tau=0.5"], "tau 0.999"),
        (["--stream", "iid"], "stream class-incremental, which a resumed run cannot change to iid"),
        (["--strategy", "er"], "strategy cla-e, which a resumed run cannot change to er"),
        (["--backbone", "convnet-w4"], "backbone convnet"),
        (["--lr", "-1"], "lr 0.2, which a resumed run cannot change to -1"),
        (["--set", "probe.max_epochs=5"], "probe"),
        (["--output", "elsewhere"], "leave --output out"),
    ],
)
def test_a_resumed_run_cannot_change_what_decides_its_numbers(
    ocssl: Command, stopped: Path, change: list[str], words: str
) -> None:
    before = fingerprint(stopped)
    assert words in refused(ocssl, "run", "--resume", stopped, *change)
    assert fingerprint(stopped) == before


def test_a_finished_run_cannot_change_them_either(ocssl: Command, finished: Path) -> None:
    assert "lr 0.2, which a resumed run cannot change to 0.7" in refused(
        ocssl, "run", "--resume", finished, "--lr", "0.7"
    )
    code, out, _ = ocssl("run", "--resume", finished, "--lr", "0.2", "--device", "cpu")
    assert (code, "finished" in out) == (0, True)


def test_the_setting_that_may_not_change_is_named_and_no_other(ocssl: Command, stopped: Path) -> None:
    changes = as_options({"checkpoint_samples": 48, "tau": 0.5})
    assert "tau 0.999" in refused(ocssl, "run", "--resume", stopped, *changes)


def test_a_resumed_run_takes_as_many_threads_as_before(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = max((stopped / "checkpoints").glob("[0-9]*")) / "state.json"
    saved = json.loads(state.read_text())
    assert saved["threads"] >= 1
    del saved["checksum"]
    state.write_text(json.dumps(saved | {"threads": 2}))
    seen = []
    monkeypatch.setattr(RunLoop, "complete", lambda run: seen.append(torch.get_num_threads()))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        resume(stopped)
        monkeypatch.setattr("os.cpu_count", lambda: 1)
        resume(stopped)
        assert (seen, torch.get_num_threads()) == ([2, 1], 1)
    finally:
        torch.set_num_threads(before)


def test_a_resumed_run_may_change_where_and_how_often_it_is_saved(ocssl: Command, stopped: Path) -> None:
    changes = as_options({"checkpoint_samples": 16, "keep_checkpoints": 1})
    code, _, err = ocssl("run", "-q", "--resume", stopped, *changes)
    assert code == 0, err
    assert len(list((stopped / "checkpoints").iterdir())) == 1


def test_an_edited_configuration_is_noticed(ocssl: Command, stopped: Path) -> None:
    config = stopped / "config.yaml"
    config.write_text(config.read_text().replace("lr: 0.2", "lr: 0.3"))
    before = fingerprint(stopped)
    assert "config.yaml' was changed since the checkpoint" in refused(ocssl, "run", "--resume", stopped)
    assert fingerprint(stopped) == before


def test_a_setting_that_a_runs_configuration_cannot_have_is_named_with_its_file(ocssl: Command, stopped: Path) -> None:
    config = stopped / "config.yaml"
    config.write_text(config.read_text() + "brand_new: 3\n")
    for command in (["run", "--resume"], ["show"]):
        assert f"'{config}': unknown setting 'brand_new'" in refused(ocssl, *command, stopped)


@pytest.mark.parametrize("file", ["learner/*.safetensors", "learner/learner.json", "state.json"])
@pytest.mark.parametrize("spoil", [lambda data: data[: len(data) // 2], lambda data: b"\x80\x04K." + data[4:]])
def test_an_unreadable_checkpoint_is_named(ocssl: Command, stopped: Path, file: str, spoil: object) -> None:
    latest = max((stopped / "checkpoints").glob("[0-9]*"))
    victim = next(latest.glob(file))
    victim.write_bytes(spoil(victim.read_bytes()))  # type: ignore[operator]
    before = fingerprint(stopped)
    assert f"; remove '{latest}' to " in refused(ocssl, "run", "--resume", stopped)
    assert fingerprint(stopped) == before


@pytest.mark.parametrize("text", ["{", "{}"])
def test_a_damaged_result_is_made_again_without_its_file(
    ocssl: Command, finished: Path, tmp_path: Path, text: str
) -> None:
    run = shutil.copytree(finished, tmp_path / "damaged")
    whole = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(text)
    line = refused(ocssl, "run", "--resume", run)
    assert f"; once it is removed, ocssl run --resume {run} makes it again" in line
    (run / "result.json").unlink()
    assert ocssl("run", "-q", "--resume", run)[0] == 0
    again = json.loads((run / "result.json").read_text())
    assert again["cbp_spent"] == whole["cbp_spent"]


@pytest.mark.parametrize("lost", ["metrics_bytes", "finished"])
def test_a_checkpoint_of_another_version_is_named(ocssl: Command, stopped: Path, lost: str) -> None:
    latest = max((stopped / "checkpoints").glob("[0-9]*"))
    saved = json.loads((latest / "state.json").read_text())
    del saved[lost], saved["checksum"]
    (latest / "state.json").write_text(json.dumps(saved))
    before = fingerprint(stopped)
    assert f"; remove '{latest}' to begin again" in refused(ocssl, "run", "--resume", stopped)
    assert fingerprint(stopped) == before
    shutil.rmtree(latest)
    assert ocssl("run", "-q", "--resume", stopped)[0] == 0


def test_a_learner_of_another_run_is_noticed(ocssl: Command, stopped: Path) -> None:
    ocssl("run", "-q", "-o", "other", *as_options(SHORT | {"lr": 0.3}))
    latest, other = (max((run / "checkpoints").glob("[0-9]*")) for run in (stopped, stopped.with_name("other")))
    shutil.rmtree(latest / "learner")
    shutil.copytree(other / "learner", latest / "learner")
    assert f"'{latest / 'learner'}' is the learner of another run" in refused(ocssl, "run", "--resume", stopped)


def test_a_place_that_is_no_run_cannot_be_resumed_or_shown(ocssl: Command, tmp_path: Path) -> None:
    for command in (["run", "--resume"], ["show"], ["probe"]):
        assert "is not a run" in refused(ocssl, *command, tmp_path)


@pytest.mark.parametrize(("name", "extra"), [("wandb", "wandb"), ("mlflow", "mlflow"), ("tensorboard", "tensorboard")])
def test_a_missing_extra_stops_the_run_before_anything_is_written(
    ocssl: Command, tmp_path: Path, name: str, extra: str
) -> None:
    hidden = [name, "torch.utils.tensorboard"]
    line = refused(ocssl, "run", "-o", "run", *as_options(SHORT | {"trackers": [name]}), hidden=hidden)
    assert f"pip install 'ocssl[{extra}]'" in line
    assert not (tmp_path / "run").exists()


def test_a_plot_without_matplotlib_names_the_extra(ocssl: Command) -> None:
    _, _, err = ocssl("compare", CLA_E, "--plot", "curve.png", hidden=["matplotlib"])
    assert "pip install 'ocssl[plot]'" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "learning_rate=0.1"], "unknown setting 'learning_rate'"),
        (["--set", "bacth=8"], "did you mean 'batch'?"),
        (["--set", "probe.max_epoch=8"], "did you mean 'probe.max_epochs'?"),
        (["--set", "probe.max_epochs=2.5"], "probe.max_epochs must be a whole number of at least 1, not 2.5"),
        (["--set", "probe.batch=true"], "probe.batch must be a whole number of at least 1, not True"),
        (["--set", "probe=3"], "probe is a group of settings, such as probe.lr, and cannot be 3"),
        (["--set", "lr"], "'lr' must have the form key=value"),
        (["--set", "lr=fast"], "lr must be a number of at least 0, not 'fast'"),
        (["--lr", "fast"], "lr must be a number of at least 0, not 'fast'"),
        (["--set", "passes=2.5"], "passes must be a whole number from 1 to 10,000, not 2.5"),
        (["--set", "lr=-1"], "lr must be a number of at least 0, not -1"),
        (["--strategy", "cla_e"], "did you mean 'cla-e'?"),
        (["--method", "simsam"], "did you mean 'simsiam'?"),
        (["--strategy", "scale", "--method", "simclr"], "has a loss of its own; leave method 'simclr' out"),
        (["--dataset", "cifar-100"], "did you mean 'cifar100'?"),
        (["--set", "trackers=wandb"], "trackers must be a list, each 'tensorboard', 'wandb' or 'mlflow'"),
        (["--strategy", "er", "--omega", "3"], "strategy 'er' does not read omega, a setting of strategies"),
        (["--strategy", "finetune"], "strategy 'finetune' keeps no memory and does not read memory_size"),
        (["--overlap", "0.3"], "stream 'class-incremental' does not read overlap, a setting of streams blurred"),
        (
            ["--strategy", "finetune", "--budget", "high"],
            "strategy 'finetune' with 2 views cannot have the paper's high budget",
        ),
        (["--stream", "iid", "--strategy", "cla-e"], "iid training has no strategy"),
        (["--normalize-first"], "set the protocol alone"),
        (["--set", "experiences=30"], "18 classes cannot make 30 experiences; set experiences to a number from 1"),
        (["--set", "stream_batch=300", "--set", "memory_size=300", "--batch", "400"], "use fewer experiences"),
        (["--samples-per-class", "5"], "holds out no image"),
        (["--init-from", "nowhere"], "there is no folder 'nowhere'"),
        (["--set", "cbp=3"], "can spend from"),
        (["--device", "quantum"], "device 'quantum' cannot be used"),
    ],
)
def test_a_run_that_cannot_be_leaves_no_folder(
    ocssl: Command, tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "short.yaml").write_text(json.dumps(SHORT))  # YAML, too
    assert words in refused(ocssl, "run", "-o", "run", "--config", "short.yaml", *arguments)
    assert not (tmp_path / "run").exists()


def test_a_run_that_could_not_be_measured_is_not_begun(ocssl: Command, tmp_path: Path) -> None:
    for place, count in {"train/cat": 20, "train/dog": 20, "test/cat": 4}.items():
        draw(tmp_path / "pets" / place, count)
    options = as_options(SHORT | {"dataset": "folder:pets", "samples_per_class": None})
    line = refused(ocssl, "run", "-q", "-o", "run", *options, "--set", "evaluate=final")
    assert "folder:pets has no test image of experience " in line
    assert not (tmp_path / "run").exists()
    assert ocssl("run", "-q", "-o", "run", *options)[0] == 0, "without evaluation it can be run"


def test_a_diverging_run_names_the_step_the_part_and_the_last_good_checkpoint(ocssl: Command, tmp_path: Path) -> None:
    options = as_options(SHORT | {"lr": 1e25, "checkpoint_samples": 8})
    line = refused(ocssl, "run", "-q", "-o", "run", *options)
    assert "NaN or infinite at step 2 (part: ssl" in line
    assert str(Path("run") / "checkpoints" / "000001") in line
    assert "NaN or infinite" in (tmp_path / "run" / "log.txt").read_text()
    saved = json.loads((tmp_path / "run" / "checkpoints" / "000001" / "state.json").read_text())
    assert saved["samples"] == 8


def test_two_processes_cannot_work_in_one_folder(ocssl: Command, stopped: Path) -> None:
    from filelock import FileLock

    with FileLock(stopped / ".lock"):
        assert "another process is working" in refused(ocssl, "run", "--resume", stopped)
