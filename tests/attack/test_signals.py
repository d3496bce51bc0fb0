"""Signals end a command within seconds wherever it waits; pipes and devices in place of files make nobody wait."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from attacking import LEARN, RUN, Attack

from helpers.command import Process, wait_for
from ocssl.common import signals
from ocssl.common.signals import AT_ONCE, Interrupted, StopRequest

attack_only = pytest.mark.attack
FOLLOW = ("learn", "imgs", "--state", "state", "--follow", *LEARN)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_learner_that_follows_a_folder_saves_and_ends(attack: Attack, number: int) -> None:
    process = attack.start("learn", "imgs", "--state", "new", "--follow", *LEARN)
    wait_for(lambda: (attack.folder / "new" / "encoder" / "encoder.json").exists())
    process.kill(number)
    assert attack.end(process) == 128 + number
    assert len([line for line in process.err.splitlines() if "warning: convnet" not in line]) == 1
    assert "stopped and saved" in process.err


def test_a_run_is_saved_when_its_terminal_closes(attack: Attack) -> None:
    process = attack.start("run", *RUN, "--samples-per-class", 400, "--output", "p")
    wait_for(lambda: (attack.folder / "p" / "checkpoints" / "000001").exists())
    process.kill(signal.SIGHUP)
    assert attack.end(process) == 128 + signal.SIGHUP
    assert "stopped and saved" in process.err


@pytest.fixture
def waiting(attack: Attack) -> Iterator[Process]:
    """A learner that waits for the folder of its encoder, which another program holds."""
    (attack.folder / "state" / "encoder" / "encoder.json").unlink()  # so that it has something to publish
    folder = os.open(attack.folder / "state" / "encoder", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    before = set((attack.folder / "state" / "checkpoints").iterdir())
    process = attack.start(*FOLLOW)
    wait_for(lambda: set((attack.folder / "state" / "checkpoints").iterdir()) != before)
    yield process
    os.close(folder)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=attack_only)])
def test_a_learner_that_waits_for_a_lock_ends(attack: Attack, waiting: Process, number: int) -> None:
    waiting.kill(number)
    began, load = time.monotonic(), max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert attack.end(waiting) == 128 + number
    assert time.monotonic() - began < 5 * load  # five seconds are promised; a busy machine has less time for each
    assert "stopped while it waited" in waiting.err


def test_a_second_signal_ends_at_once(attack: Attack, waiting: Process) -> None:
    waiting.kill(signal.SIGTERM)
    time.sleep(AT_ONCE + 0.3)
    waiting.kill(signal.SIGTERM)
    assert attack.end(waiting) == 128 + signal.SIGTERM
    assert waiting.err == "" or "stopped while it waited" in waiting.err  # the latter if it was three seconds late


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.pending
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_kind_of_signal_later_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "AT_ONCE", 0.0)

    def work() -> None:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            wait_for(lambda: stop.number)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)
            assert stop.number == signal.SIGHUP

    with pytest.raises(Interrupted):
        work()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_terminal_is_told_what_a_second_ctrl_c_does(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal, os.fdopen(ours) as screen:
        monkeypatch.setattr(sys, "stderr", terminal)
        with pytest.raises(Interrupted), StopRequest():
            signal.raise_signal(number)
        terminal.write("end")
        terminal.flush()
        said = ""
        while not said.endswith("end"):
            said += os.read(screen.fileno(), 1000).decode()
    assert said.replace("\r\n", "\n") == (signals.NOTED if number == signal.SIGINT else "") + "end"


def test_signals_that_come_together_are_one_request() -> None:
    def work() -> None:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.pending
            assert stop.number in (signal.SIGHUP, signal.SIGTERM)

    with pytest.raises(Interrupted):
        work()


def test_a_request_counts_for_work_that_begins_inside() -> None:
    inner = StopRequest()

    def work() -> None:
        with StopRequest():
            os.kill(os.getpid(), signal.SIGTERM)
            with inner:
                pass

    with pytest.raises(Interrupted):
        work()
    assert inner.pending
    assert inner.number == signal.SIGTERM


def test_a_request_that_comes_when_the_work_is_done_ends_the_series() -> None:
    begun: list[int] = []

    def series() -> None:
        for number in range(3):
            with StopRequest():
                begun.append(number)
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="what had begun is complete") as ended:
        series()
    assert begun == [0]
    assert ended.value.exit_code == 128 + signal.SIGTERM


def test_a_request_that_comes_while_a_run_fails_ends_the_series() -> None:
    """The series goes on after a run that fails, but not after a request to stop."""
    begun: list[int] = []

    def series() -> None:
        with StopRequest() as stop:
            for number in range(3):
                if stop.pending:
                    return
                with contextlib.suppress(ZeroDivisionError), StopRequest():
                    begun.append(number)
                    os.kill(os.getpid(), signal.SIGTERM)
                    raise ZeroDivisionError

    with pytest.raises(Interrupted) as ended:
        series()
    assert begun == [0]
    assert ended.value.exit_code == 128 + signal.SIGTERM


# ---------------------------------------------------------------------- pipes, devices, folders, loops

READ = [
    ("results/r0.json", "compare results/r0.json"),
    ("enc.safetensors", "embed enc.safetensors imgs -o o.parquet"),
    ("state/encoder/encoder.json", "embed state imgs -o o.parquet"),
    ("state/encoder/encoder.json", "learn imgs --state state LEARN"),
    ("state/metrics.jsonl", "learn imgs --state state LEARN"),
    ("state/ledger.sqlite", "learn imgs --state state LEARN"),
    ("state/checkpoints/*/state.json", "learn imgs --state state LEARN"),
    ("state/checkpoints/*/learner/learner.json", "learn imgs --state state LEARN"),
    ("run/result.json", "show run"),
    ("open/metrics.jsonl", "show open"),
    ("open/metrics.jsonl", "run --resume open -q"),
    ("open/log.txt", "run --resume open -q"),
    ("open/checkpoints/*/state.json", "run --resume open -q"),
    ("open/checkpoints/*/learner/learner.json", "run --resume open -q"),
    ("run/encoder.safetensors", "probe run -q"),
    ("state/checkpoints/*/learner/learner.json", "embed state/checkpoints/000001/learner imgs -o o.parquet"),
    ("open/config.yaml", "show open"),
    ("open/config.yaml", "run --resume open -q"),
    ("swept/trials.jsonl", "sweep --resume swept -q"),
    ("swept/sweep.yaml", "sweep --resume swept -q"),
]


def replace(path: Path, how: str) -> None:
    """Put something else in place of a file."""
    path.unlink(missing_ok=True)
    if how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if how == "device" else path.name)


@pytest.mark.parametrize(
    ("name", "command", "how"),
    [
        pytest.param(name, command, how, marks=() if number % 10 == 0 else attack_only)
        for number, (name, command, how) in enumerate(
            (name, command, how) for how in ("pipe", "device", "folder", "loop") for name, command in READ
        )
    ],
)
def test_what_is_no_file_is_refused(attack: Attack, name: str, command: str, how: str) -> None:
    for path in sorted(attack.folder.glob(name)):
        replace(path, how)
    words = command.replace("LEARN", " ".join(LEARN)).split()
    code, err = attack.call(*words)
    assert code == 2, err
    assert err.count("\n") == 1, err
    assert len(err) < 600


@pytest.mark.parametrize("name", ["r.json", pytest.param("tuned/high-simsiam@cifar100@clean.yaml", marks=attack_only)])
@pytest.mark.parametrize("command", ["report results -o out --format markdown", "paper list --results results"])
def test_a_pipe_among_results_is_named_and_the_rest_goes_on(attack: Attack, name: str, command: str) -> None:
    path = attack.folder / "results" / name
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    process = attack.start(*command.split())
    assert attack.end(process) == 0, process.err
    assert "not a regular file" in process.out + process.err


@pytest.mark.parametrize("name", ["out/report.md", "out/demo.png"])
def test_a_pipe_in_place_of_an_output_is_refused(attack: Attack, name: str) -> None:
    (attack.folder / "out").mkdir()
    os.mkfifo(attack.folder / name)
    command = "demo --quick --output out" if "demo" in name else "report results -o out --format markdown"
    attack.refuse(*command.split(), says="not a regular file")


# ---------------------------------------------------------------------- standard output, faults


@pytest.mark.parametrize(
    ("command", "target", "says"),
    [
        pytest.param(command, *target, marks=() if number in (0, 5) else attack_only)
        for number, (command, target) in enumerate(
            itertools.product(
                ("list strategies", "data list", "budget", "show RUN"),
                ((">/dev/full", "No space left on device"), (">&-", "it is closed")),
            )
        )
    ],
)
def test_standard_output_that_takes_nothing_is_one_sentence(template: Path, command: str, target: str, says: str):
    words = command.replace("RUN", str(template / "run"))
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m ocssl {words} {target}"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr == f"ocssl: cannot write to standard output: {says}\n"


FAULT = "import ocssl.budget\ndef fails(*_, **__): raise {}\nocssl.budget.plan = fails\n"


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        ("ZeroDivisionError('two\\nlines')", 70),
        ("RecursionError('deep')", 70),
        ("MemoryError()", 2),
        ("OSError(36, 'File name too long', 'x' * 5000)", 2),
    ],
)
def test_whatever_escapes_is_one_sentence(attack: Attack, raised: str, code: int) -> None:
    found, err = attack.call("budget", modules={"broken": FAULT.format(raised)})
    assert found == code, err
    assert err.count("\n") == 1, err
    assert len(err) < 400
    assert ("issue tracker" in err) == (code == 70)


def test_the_traceback_is_there_for_those_who_ask() -> None:
    source = f"{FAULT.format('ZeroDivisionError()')}\nimport sys\nsys.argv = ['ocssl', 'budget']\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{source}from ocssl.cli import main\nmain()"],
        env={**os.environ, "OCSSL_DEBUG": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 70
    assert "Traceback" in done.stderr
