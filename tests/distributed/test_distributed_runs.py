"""``torchrun -m ocssl run``: one run over several processes, stopped, resumed, killed and held up."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import crew
import pytest

pytestmark = pytest.mark.scale

SETTINGS = {
    "samples_per_class": 40,
    "image_size": 8,
    "experiences": 3,
    "stream_batch": 8,
    "passes": 1,
    "memory_size": 40,
    "backbone": "convnet-w4",
    "hidden_dim": 16,
    "output_dim": 32,
    "precision": "fp64",
    "knn": "false",
    "references": "false",
    "evaluate": "final",
    "log_every": 1,
    "checkpoint_minutes": 0,
    "checkpoint_samples": 80,
}
RUN = ["run", "--dataset", "shapes", "--strategy", "cla-r", "--memory", "reservoir", "--batch", 24, "--lr", 0.02]
RUN += [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
MINUTE = 60


def metrics(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def assert_same_run(run: Path, other: Path) -> None:
    """Every loss along the way, and what was measured at the end."""
    lines, expected = metrics(run), metrics(other)
    assert len(lines) == len(expected)
    for line, wanted in zip(lines, expected, strict=True):
        assert line.keys() == wanted.keys()
        assert line["samples"] == wanted["samples"]
        assert line.get("losses", {}) == pytest.approx(wanted.get("losses", {}), rel=1e-6)
    result, wanted = (json.loads((folder / "result.json").read_text()) for folder in (run, other))
    assert result["final"] == pytest.approx(wanted["final"], abs=0.5)
    assert all(result[name] == wanted[name] for name in ("cbp_spent", "samples", "fingerprint", "borders"))


def wait_for(run: Path, lines: int) -> None:
    """Until the run has logged so many minibatches."""
    deadline = time.monotonic() + MINUTE
    while not (run / "metrics.jsonl").exists() or len(metrics(run)) < lines:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def end(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """Exit code and stderr of each, once all have ended."""
    deadline = time.monotonic() + MINUTE
    told = [process.communicate(timeout=deadline - time.monotonic())[1] for process in processes]
    return [(process.returncode, text) for process, text in zip(processes, told, strict=True)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run as one process makes it."""
    place = tmp_path_factory.mktemp("runs") / "alone"
    subprocess.run([sys.executable, "-m", "ocssl", *map(str, RUN), "-o", place], check=True, capture_output=True)
    return place


def test_torchrun_makes_the_run_that_one_process_makes(alone: Path, tmp_path: Path) -> None:
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        f"--master-port={crew.free_port()}",
    ]
    words = [*launcher, "-m", "ocssl", *map(str, RUN), "-o", tmp_path / "run"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=2 * MINUTE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Final") == 1  # one process speaks
    assert_same_run(tmp_path / "run", alone)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["hardware"]["processes"] == 2


def test_stopped_in_two_it_goes_on_in_one_and_in_two(alone: Path, tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    processes = crew.start(["-m", "ocssl", *RUN, "-o", run], 2)
    wait_for(run, 12)
    processes[1].send_signal(signal.SIGTERM)  # one is asked, all stop
    codes = [code for code, _ in end(processes)]
    assert codes == [128 + signal.SIGTERM] * 2
    assert not (run / "result.json").exists()
    shutil.copytree(run, copy)
    subprocess.run([sys.executable, "-m", "ocssl", "run", "--resume", run, "-q"], check=True, capture_output=True)
    assert_same_run(run, alone)
    assert [code for code, _ in end(crew.start(["-m", "ocssl", "run", "--resume", copy, "-q"], 2))] == [0, 0]
    assert_same_run(copy, alone)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_who_is_left_ends_within_a_minute_and_names_the_one_that_is_not(
    how: signal.Signals, alone: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    processes = crew.start(["-m", "ocssl", *RUN, "-o", run, "-q"], 2)
    wait_for(run, 15)
    processes[1].send_signal(how)
    ((code, said),) = end(processes[:1])
    processes[1].kill()
    assert code == 2
    assert "rank 1 of 2 has died or cannot be reached" in said
    assert not list(run.glob("checkpoints/draft-*"))
    assert not list(run.glob(".*.*"))
    subprocess.run([sys.executable, "-m", "ocssl", "run", "--resume", run, "-q"], check=True, capture_output=True)
    assert_same_run(run, alone)


HUNG = """
import time, ocssl
from ocssl.data.shapes import draw
from ocssl.distributed import process_group
with process_group() as group:
    learner = ocssl.Learner(strategy="er", backbone="convnet-w4", image_size=8, batch=20, device="cpu", memory_size=30)
    images = draw(60, size=8, seed=0)[0]
    learner.partial_fit(images[group.share(60)])
    if group.rank == 0:
        time.sleep(300)
    learner.partial_fit(images[group.share(60)])
"""


def test_one_that_hangs_is_named_even_if_it_is_the_one_that_keeps_the_group_together(tmp_path: Path) -> None:
    script = tmp_path / "hung.py"
    script.write_text(HUNG)
    processes = crew.start([script], 2, OCSSL_PEER_TIMEOUT="20")
    ((code, said),) = end(processes[1:])
    processes[0].kill()
    processes[0].communicate()
    assert code == 2
    assert "rank 0 of 2 hangs" in said


def test_one_that_never_begins_is_waited_for_no_longer_than_that() -> None:
    port = crew.free_port()
    words = [sys.executable, "-c", "from ocssl.distributed import process_group\nwith process_group(): pass"]
    environment = {**crew.environment(0, 2, port), "OCSSL_PEER_TIMEOUT": "8"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=MINUTE, env=environment)
    assert done.returncode == 2
    assert "rank 1 of 2 has died or cannot be reached" in done.stderr


def test_an_error_of_one_is_told_by_all_the_others(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "strange.txt").write_text("not a run")
    first, second = end(crew.start(["-m", "ocssl", *RUN, "-o", tmp_path / "run"], 2))
    assert (first[0], second[0]) == (2, 2)
    assert "exists and is not empty" in first[1]
    assert "rank 0 of 2 failed" in second[1]
    assert "exists and is not empty" in second[1]
