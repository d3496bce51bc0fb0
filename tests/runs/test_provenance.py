"""What a run was made of: images, order and plugins are in its files, and a resumed run finds them unchanged."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drawing import draw
from PIL import Image

from helpers.command import TINY, Command, as_options, refused, wait_for
from ocssl.engines import jobs
from ocssl.engines.jobs import Job, run_once
from ocssl.errors import BusyError
from ocssl.results import read_result
from ocssl.results.result import Result
from ocssl.runs import environment
from ocssl.runs.run import resume

PLUGIN = """
from pathlib import Path

from ocssl.data.streams import ClassIncremental
from ocssl.data.streams import register as register_stream
from ocssl.options import setting
from ocssl.strategies import ExperienceReplay, register

K = 1.0


@register("mine")
class Mine(ExperienceReplay):
    class Options(ExperienceReplay.Options):
        strength: float = setting(1.0, "Strength.", ge=0)

    def penalty(self, step):
        return {"mine": 0.1 * K * step.features.projected.square().mean()}


@register_stream("by-file")
class ByFile(ClassIncremental):
    def build(self, labels, **how):
        return super().build(labels, order_seed=int(Path("order.txt").read_text()), **how)
"""

SETTINGS = {
    **TINY,
    "dataset": "folder:imgs",
    "samples_per_class": None,
    "experiences": 2,
    "strategy": "mine",
    "strength": 0.5,
    "method": "simclr",
    "stream": "by-file",
    "evaluate": "final",
    "references": False,
    "knn": False,
    "probe": {"max_epochs": 2},
}
RUN = as_options({name: value for name, value in SETTINGS.items() if value is not None})
"""54 images in the stream."""
MYLAB = ("--plugin", "mylab")


@pytest.fixture(scope="module")
def begun(ocssl_module: Command) -> Path:
    """A folder with images, a plugin and a run of both that was killed after its first checkpoint."""
    here = ocssl_module.folder / "lab"
    here.mkdir()
    for label in range(3):
        draw(here / "imgs" / "train" / f"c{label}", 20, seed=label)
        draw(here / "imgs" / "test" / f"c{label}", 4, seed=10 + label)
    (here / "order.txt").write_text("0")
    (here / "mylab.py").write_text(PLUGIN)
    command = Command(ocssl_module._server, here)
    command("run", "-q", "--plugin", "mylab", "-o", "cut", *RUN, "--set", "checkpoint_samples=24", die_at_sync=8)
    assert (here / "cut" / "checkpoints" / "000001").exists()
    assert not (here / "cut" / "result.json").exists()
    return here


@pytest.fixture
def lab(begun: Path, ocssl: Command) -> tuple[Command, Path]:
    """A copy of that folder, and the command line in it."""
    here = ocssl.folder / "lab"
    shutil.copytree(begun, here, ignore=shutil.ignore_patterns("process-*"))
    return Command(ocssl._server, here), here


def test_a_run_goes_on_where_nothing_changed_but_the_times_of_files(lab: tuple[Command, Path]) -> None:
    ocssl, here = lab
    for file in here.glob("imgs/train/*/*.png"):
        Image.open(file).save(file, compress_level=1)
    code, _, err = ocssl("run", "-q", "--resume", "cut", *MYLAB)
    assert (code, err) == (0, "")
    assert read_result(here / "cut").warnings == []


def other_pixels(here: Path) -> None:
    draw(here / "imgs" / "train" / "c1", 20, seed=99)


def other_test_pixels(here: Path) -> None:
    draw(here / "imgs" / "test" / "c1", 1, seed=99)


def more_images(here: Path) -> None:
    draw(here / "imgs" / "train" / "c1", 8, seed=99, first=20)


def other_order(here: Path) -> None:
    (here / "order.txt").write_text("1")


def other_code(here: Path) -> None:
    (here / "mylab.py").write_text(PLUGIN.replace("K = 1.0", "K = -3.0"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_pixels, "the pixels or labels of the train images changed"),
        (other_test_pixels, "the pixels or labels of the test images changed"),
        (more_images, "the number of train images changed from 60 to 68"),
        (other_order, "the order of the stream changed"),
        (other_code, "the code of plugin module 'mylab' changed"),
    ],
)
def test_a_run_is_not_resumed_on_something_else(
    lab: tuple[Command, Path], change: Callable[[Path], None], words: str
) -> None:
    ocssl, here = lab
    change(here)
    metrics = (here / "cut" / "metrics.jsonl").read_bytes()
    line = refused(ocssl, "run", "--resume", "cut", *MYLAB)
    saved = "cut/checkpoints/000001"
    seen = json.loads((here / saved / "state.json").read_text())["samples"]
    assert line == (
        f"ocssl: since '{saved}' was saved, {words}; undo that, or go on all the same with: ocssl run --resume cut "
        "--plugin mylab --force\n"
    )
    assert (here / "cut" / "metrics.jsonl").read_bytes() == metrics
    code, _, err = ocssl(*shlex.split(line.partition("with: ocssl ")[2]), "-q")
    assert code == 0, err
    assert read_result(here / "cut").warnings == [f"at image {seen} the run was resumed with --force, although {words}"]


def test_a_checkpoint_of_an_earlier_version_says_nothing_and_is_gone_on_with(lab: tuple[Command, Path]) -> None:
    ocssl, here = lab
    state = here / "cut" / "checkpoints" / "000001" / "state.json"
    saved = json.loads(state.read_text())
    del saved["provenance"], saved["checksum"]
    state.write_text(json.dumps(saved))
    other_pixels(here)
    assert ocssl("run", "-q", "--resume", "cut", *MYLAB)[0] == 0
    assert read_result(here / "cut").warnings == []


def test_force_is_for_resuming(lab: tuple[Command, Path]) -> None:
    assert "--force is for --resume" in refused(lab[0], "run", "--force", *RUN)


# ---------------------------------------------------------------------- plugins


def test_a_run_names_its_plugins_in_all_its_files(lab: tuple[Command, Path]) -> None:
    ocssl, here = lab
    assert ocssl("run", "-q", "--resume", "cut", *MYLAB)[0] == 0
    result = read_result(here / "cut")
    latest = max((here / "cut" / "checkpoints").glob("[0-9]*"))
    (plugin,) = json.loads((latest / "learner" / "learner.json").read_text())["facts"]["plugins"]
    assert result.plugins is not None
    assert [entry.model_dump() for entry in result.plugins] == [plugin]
    assert json.loads((latest / "state.json").read_text())["provenance"]["plugins"] == [plugin]
    source = hashlib.sha256(b"mylab.py\0" + PLUGIN.encode() + b"\0").hexdigest()
    assert plugin == {
        "module": "mylab",
        "version": None,
        "digest": source,
        "names": ["strategy mine", "stream by-file"],
    }
    assert result.pixels is not None
    assert result.pixels.keys() == {"train", "test"}
    assert f"plugins     mylab {source[:8]}" in ocssl("show", "cut")[1]


def test_a_run_imports_its_plugin_from_the_path(lab: tuple[Command, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab[1])
    monkeypatch.setenv("OCSSL_CACHE", str(lab[1] / "cache"))
    monkeypatch.syspath_prepend(lab[1])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    try:
        assert resume("cut").warnings == []
    finally:
        sys.modules.pop("mylab", None)


def test_without_its_plugin_a_run_says_which_is_missing(lab: tuple[Command, Path]) -> None:
    """A module in the current folder is imported only if the user names it."""
    for command in (["run", "--resume", "cut"], ["show", "cut"]):
        assert refused(lab[0], *command) == (
            "ocssl: 'cut/config.yaml': stream 'by-file' comes from plugin module 'mylab', which cannot be imported "
            "(ModuleNotFoundError: No module named 'mylab'); add --plugin mylab in the folder that has it, or put that "
            "folder on PYTHONPATH\n"
        )
    assert lab[0]("show", "cut", *MYLAB)[0] == 0
    line = refused(lab[0], "run", "--config", "cut/config.yaml", "-o", "another")  # has settings of the plugin's parts
    assert line.startswith("ocssl: 'cut/config.yaml': stream 'by-file' comes from plugin module 'mylab', which cannot")


def test_a_plugin_that_lost_a_part_is_named(lab: tuple[Command, Path]) -> None:
    ocssl, here = lab
    (here / "mylab.py").write_text("")
    assert "comes from plugin module 'mylab', which does not register it any more" in refused(
        ocssl, "show", "cut", *MYLAB
    )


def test_a_finished_run_is_shown_without_its_plugin(lab: tuple[Command, Path]) -> None:
    ocssl, here = lab
    assert ocssl("run", "-q", "--resume", "cut", *MYLAB)[0] == 0
    (here / "mylab.py").unlink()
    code, out, err = ocssl("show", "cut", "--settings")
    assert code == 0, err
    assert "strength: 0.5" in out


def test_the_printed_command_goes_on_as_it_is(lab: tuple[Command, Path]) -> None:
    ocssl, here = lab
    process = ocssl.start("run", "-q", "--plugin", "mylab", "-o", "a run", *RUN, "--set", "log_every=1")
    wait_for(lambda: (here / "a run" / "metrics.jsonl").exists())
    process.kill(signal.SIGTERM)
    assert process.wait() == 143
    (line,) = re.findall("go on with: ocssl (.*)", process.err)
    assert line == "run --resume 'a run' --plugin mylab"
    code, _, err = ocssl(*shlex.split(line), "-q")
    assert code == 0, err
    assert read_result(here / "a run").final is not None


def test_the_best_of_a_sweep_runs_as_printed(lab: tuple[Command, Path]) -> None:
    ocssl, here = lab
    settings = {name: value for name, value in SETTINGS.items() if value is not None}
    (here / "few.yaml").write_text(json.dumps({"settings": settings, "space": {"lr": [0.1]}}))
    code, out, err = ocssl("sweep", "few.yaml", "--plugin", "mylab", "-q")
    assert code == 0, err
    (line,) = re.findall("best: ocssl (.*)", out)
    assert line == "run --config sweeps/few/best.yaml --plugin mylab"
    code, _, err = ocssl(*shlex.split(line), "-q", "-o", "best")
    assert code == 0, err
    assert read_result(here / "best").config["strength"] == 0.5
    assert "cannot import plugin 'mylab' of the sweep" in refused(ocssl, "sweep", "--resume", "sweeps/few", "-q")
    assert ocssl("sweep", "--resume", "sweeps/few", "-q", *MYLAB)[0] == 0
    other_code(here)
    assert "since trial 1 was finished, the code of plugin module 'mylab' changed" in refused(
        ocssl, "sweep", "--resume", "sweeps/few", "-q", *MYLAB
    )


@pytest.mark.parametrize(
    "words", [["--plugin", "mylab", "list", "strategies"], ["list", "strategies", "--plugin=mylab"]]
)
def test_every_command_takes_plugins_before_and_after_its_name(lab: tuple[Command, Path], words: list[str]) -> None:
    code, out, err = lab[0](*words)
    assert code == 0, err
    assert "mine" in out
    assert "mine" not in lab[0]("list", "strategies")[1]


def test_commands_that_paper_prints_name_their_plugins(lab: tuple[Command, Path]) -> None:
    for words in (["show", "smoke"], ["list", "--seeds", "0"]):
        _, out, _ = lab[0]("paper", *words, *MYLAB)
        printed = [line for line in out.splitlines() if "ocssl paper run" in line]
        assert printed
        assert all(line.endswith(" --plugin mylab") for line in printed)


def test_a_plugin_that_is_not_there_is_named(lab: tuple[Command, Path]) -> None:
    assert refused(lab[0], "paper", "list", "--plugin", "no_such").startswith(
        "ocssl: cannot import plugin 'no_such' of --plugin: ModuleNotFoundError: No module named 'no_such'; "
    )
    code, _, err = lab[0]("list", "--plugin")
    assert (code, "'--plugin' requires an argument" in err) == (2, True)


def test_versions_of_a_plugin_are_two_experiments_and_reports_need_neither(lab: tuple[Command, Path]) -> None:
    ocssl, here = lab
    assert ocssl("run", "-q", "--plugin", "mylab", "-o", "runs/one", *RUN)[0] == 0
    other_code(here)
    assert ocssl("run", "-q", "--plugin", "mylab", "-o", "runs/two", *RUN, "--seed", "1")[0] == 0
    one, two = (read_result(here / "runs" / name) for name in ("one", "two"))
    assert one.key != two.key
    assert (one.label, one.overrides) == (two.label, two.overrides)
    formats = [word for name in ("markdown", "csv", "html") for word in ("--format", name)]
    assert ocssl("report", "runs", "-o", "with", "--plugin", "mylab", *formats)[0] == 0
    (here / "mylab.py").unlink()
    assert ocssl("report", "runs", "-o", "without", *formats)[0] == 0
    pages = [
        {path.relative_to(here / name): path.read_bytes() for path in (here / name).rglob("*.*")}
        for name in ("with", "without")
    ]
    assert len(pages[0]) > 2
    assert pages[0] == pages[1]


# ---------------------------------------------------------------------- results


def test_results_of_earlier_versions_do_not_say_what_they_were_made_of() -> None:
    first = Path(__file__).parents[2] / "results" / "cifar100-simsiam-cla-e-fifo-high-clean-seed0.json"
    content = json.loads(first.read_text())
    assert {"pixels", "plugins"}.isdisjoint(content)
    result = read_result(first)
    assert (result.pixels, result.plugins) == (None, None)
    other = result.model_copy(update={"pixels": {"train": "1"}})
    assert result.same_stream(other)
    assert not other.same_stream(result.model_copy(update={"pixels": {"train": "2"}}))


def test_the_code_of_a_result_is_that_of_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    environment.revision.cache_clear()
    environment.check_environment()
    monkeypatch.setattr(environment.subprocess, "run", lambda *_, **__: pytest.fail("asked again"))
    assert environment.revision().startswith(("git ", "ocssl "))


def test_only_changes_of_the_package_make_its_commit_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, results = tmp_path / "src" / "ocssl", tmp_path / "results"
    files = (package / "runs" / "environment.py", package / "step.py", results / "a.json")
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1\n")
    monkeypatch.setattr(environment, "__file__", str(files[0]))
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init",), ("add", "."), (*author, "commit", "-m", "First")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)

    def stamp() -> str:
        environment.revision.cache_clear()
        return environment.revision()

    clean = stamp()
    assert re.fullmatch("git [0-9a-f]{7,}", clean)
    files[2].write_text("2\n")
    (results / "b.json").touch()
    assert stamp() == clean
    files[1].write_text("2\n")
    assert stamp() == f"{clean}-dirty"
    files[1].write_text("1\n")
    (package / "new.py").touch()
    assert stamp() == f"{clean}-dirty"
    environment.revision.cache_clear()


def test_a_run_that_another_command_begins_at_the_same_moment_is_waited_for(
    lab: tuple[Command, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, here = lab
    job = Job("twice", TINY | {"samples_per_class": 10, "evaluate": "never"}, here / "twice")

    def begun_elsewhere(*given: Any) -> Result:
        monkeypatch.undo()
        jobs.start(*given)
        raise BusyError("another process is working here")

    monkeypatch.setattr(jobs, "start", begun_elsewhere)
    attempt = run_once(job)
    assert (attempt.error, attempt.result) == (None, read_result(here / "twice"))


def test_a_result_without_plugins_says_so_and_is_not_that_of_a_run_with_one(lab: tuple[Command, Path]) -> None:
    ocssl, here = lab
    short = TINY | {"samples_per_class": 10, "evaluate": "never"}
    assert ocssl("run", "-q", "-o", "plain", *as_options(short))[0] == 0
    assert read_result(here / "plain").plugins == []
    assert "plugins" not in (here / "plain" / "config.yaml").read_text()
    file = here / "plain" / "result.json"
    content = json.loads(file.read_text())
    assert Result.model_validate(content).pixels is not None
    job = Job("plain", short, here / "plain")
    assert run_once(job).error is None
    content["plugins"] = [{"module": "mylab", "version": None, "digest": "0", "names": ["memory his"]}]
    file.write_text(json.dumps(content))
    assert run_once(job).error == (
        f"since '{here / 'plain'}' was finished, plugin module 'mylab' is not used any more; remove that run, or undo "
        "the change"
    )
