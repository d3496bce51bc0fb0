"""Engines: every job once, whatever happens to it."""

from __future__ import annotations

import multiprocessing
import os
import re
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from sweeping import SHAPES, kill_worker, wait_for

from ocssl.engines import Job, JobResult, make_engine
from ocssl.errors import ConfigError, MissingExtraError, OutOfMemoryError
from ocssl.results.result import Result, read_result
from ocssl.runs.config import RunConfig
from ocssl.runs.progress import Progress
from ocssl.runs.run import start

TINY = SHAPES | {"experiences": 3, "strategy": "er"}


def job(name: str, folder: Path, **settings: object) -> Job:
    return Job(name, TINY | settings, folder / name)


def numbers(result: Result | None) -> dict[str, object]:
    """What a run found, without the times."""
    assert result is not None
    return {name: getattr(result, name) for name in ("curve", "cbp_spent", "fingerprint", "config")}


def test_a_job_is_begun_only_when_the_one_before_is_done(tmp_path: Path) -> None:
    events = []

    def jobs() -> Iterator[Job]:
        for name in ("one", "two"):
            events.append(f"asked for {name}")
            yield job(name, tmp_path)

    for done in make_engine(quiet=True).run(jobs()):
        assert (done.error, done.attempts) == (None, 1)
        assert done.result == read_result(done.job.folder)
        events.append(f"finished {done.job.name}")
    assert events == ["asked for one", "finished one", "asked for two", "finished two"]


def test_workers_share_a_device_which_runs_say_and_end_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two begin at once; the third is asked for until one of them is over."""
    from ocssl.engines import local

    made, done = [], list[JobResult]()

    class Noted(local._Worker):
        def __init__(self, slot: int, slots: int) -> None:
            super().__init__(slot, slots)
            made.append(self.process)

    def jobs() -> Iterator[Job | None]:
        yield job("one", tmp_path)
        yield job("two", tmp_path)
        while not done:
            yield None
        yield job("three", tmp_path)

    monkeypatch.setattr(local, "_Worker", Noted)
    for ended in make_engine(workers=2).run(jobs()):
        assert ended.error is None
        assert ended.result == read_result(ended.job.folder)
        done.append(ended)
    assert sorted(ended.job.name for ended in done) == ["one", "three", "two"]
    shared = [ended.result for ended in done]
    assert [process.exitcode for process in made] == [128 + 15] * 2, "killed by the signal: nothing is tidied up then"
    (alone,) = make_engine(quiet=True).run([job("alone", tmp_path)])
    monkeypatch.setenv("OCSSL_RUNS_AT_ONCE", "5")  # somebody else's work is on it as well
    (crowded,) = make_engine(quiet=True).run([job("crowded", tmp_path)])
    found = [result.hardware["runs_at_once"] for result in (*shared, alone.result, crowded.result) if result]
    assert found == [2, 2, 2, 1, 5]
    monkeypatch.setenv("OCSSL_RUNS_AT_ONCE", "many")
    (refused,) = make_engine(quiet=True).run([job("refused", tmp_path)])
    assert refused.error == "OCSSL_RUNS_AT_ONCE must be a whole number from 1, not 'many'"
    assert not (tmp_path / "refused").exists()


def test_what_fails_says_why_and_leaves_the_others_alone(tmp_path: Path) -> None:
    jobs = [job("wrong", tmp_path, strategy="err"), job("wild", tmp_path, lr=1e30), job("good", tmp_path)]
    wrong, wild, good = make_engine(quiet=True).run(jobs)
    assert "unknown strategy 'err'; did you mean 'er'?" in str(wrong.error)
    assert "the loss became NaN or infinite" in str(wild.error)
    assert (wrong.result, wrong.attempts, wild.result, wild.attempts) == (None, 1, None, 1)
    assert good.error is None


def test_an_unfinished_run_is_gone_on_with_and_a_finished_one_is_taken_as_it_is(tmp_path: Path) -> None:
    engine, wanted = make_engine(quiet=True), job("run", tmp_path)
    (first,) = engine.run([wanted])
    (again,) = engine.run([wanted])
    assert again.result == first.result
    assert "resumed" not in (wanted.folder / "log.txt").read_text()
    (wanted.folder / "result.json").unlink()
    (resumed,) = engine.run([wanted])
    assert numbers(resumed.result) == numbers(first.result)
    assert "resumed" in (wanted.folder / "log.txt").read_text()
    (other,) = engine.run([job("run", tmp_path, lr=0.7)])
    assert "runs with lr 0.03, which a resumed run cannot change to 0.7" in str(other.error)


def test_a_run_that_another_command_began_and_ended_meanwhile_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ocssl.engines import jobs

    def start_second(config: RunConfig, folder: Path, progress: Progress | None) -> Result:
        start(config, folder)  # the other command, while this one reads its images
        return start(config, folder, progress)

    monkeypatch.setattr(jobs, "start", start_second)
    (done,) = make_engine(quiet=True).run([job("run", tmp_path)])
    assert (done.error, done.attempts) == (None, 1)
    assert done.result == read_result(tmp_path / "run")


def test_an_unexpected_error_is_tried_again_and_its_trace_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ocssl.runs import loop

    def fail(*given: object) -> None:
        raise RuntimeError("out of\nluck")

    monkeypatch.setattr(loop.RunLoop, "_train_and_measure", fail)
    (done,) = make_engine(retries=1, quiet=True).run([job("run", tmp_path)])
    assert done.error == "RuntimeError: out of luck (the last of 2 attempts)"
    assert done.attempts == 2
    log = tmp_path / "run" / "log.txt"
    assert "Traceback" in log.read_text()
    log.unlink()
    log.mkdir()
    monkeypatch.setattr("ocssl.engines.jobs.resume", fail)
    (done,) = make_engine(retries=0, quiet=True).run([job("run", tmp_path)])
    assert done.error == "RuntimeError: out of luck", "and not that the log cannot be written"


def test_a_run_that_lacks_memory_is_tried_again_since_others_may_leave_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ocssl.runs import loop

    train, tries = loop.RunLoop._train_and_measure, []

    def crowded_at_first(self: loop.RunLoop) -> Result:
        tries.append(self)
        if len(tries) == 1:
            raise OutOfMemoryError("cpu has too little memory left")
        return train(self)

    monkeypatch.setattr(loop.RunLoop, "_train_and_measure", crowded_at_first)
    (done,) = make_engine(retries=1, quiet=True).run([job("run", tmp_path)])
    assert (done.error, done.attempts) == (None, 2)


def test_a_run_whose_worker_is_killed_too_often_fails(tmp_path: Path) -> None:
    def kill() -> None:
        wait_for((tmp_path / "run" / "config.yaml").exists)
        kill_worker(os.getpid(), "spawn_main")

    killer = threading.Thread(target=kill)
    killer.start()
    (done,) = make_engine(workers=2, retries=0).run([job("run", tmp_path, samples_per_class=60)])
    killer.join()
    assert (done.result, done.error, done.attempts) == (None, "its worker died: signal 9", 1)


def test_a_machine_that_lacks_the_folder_of_the_driver_says_so(tmp_path: Path) -> None:
    from ocssl.engines import cluster

    attempt = cluster._run_once(job("run", tmp_path), tmp_path / "only here", {})
    said = f"the folder '{tmp_path / 'only here'}' of the driver cannot be entered on .+: No such file or directory; "
    assert re.match(said, str(attempt.error))
    assert (attempt.retry, (tmp_path / "run").exists()) == (True, False)  # another machine may have it


def test_a_worker_that_dies_while_it_sends_has_died() -> None:
    from ocssl.engines import local

    ours, theirs = multiprocessing.Pipe()
    os.write(theirs.fileno(), struct.pack("!i", 1000) + b"the first bytes")
    theirs.close()
    worker = object.__new__(local._Worker)
    worker.connection, worker.process = ours, SimpleNamespace(join=lambda: None, exitcode=-9)  # type: ignore[assignment]
    attempt = worker.receive()
    assert (attempt.error, attempt.retry, ours.closed) == ("its worker died: signal 9", True, True)


def test_what_does_not_go_together_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="unknown engine 'rya'; did you mean 'ray'"):
        make_engine("rya")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="address is for engine 'ray'"):
        make_engine(address="auto")
    with pytest.raises(ConfigError, match="workers must be at least 1"):
        make_engine(workers=0)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ocssl\[scale\]'"):
        make_engine("ray")


def test_a_job_that_depends_on_an_earlier_one_is_asked_for_again_when_that_is_over(tmp_path: Path) -> None:
    over: list[str] = []

    def jobs() -> Iterator[Job | None]:
        yield job("one", tmp_path)
        while not over:
            yield None
        yield job("two", tmp_path)

    for done in make_engine(quiet=True).run(jobs()):
        over.append(done.job.name)
    assert over == ["one", "two"]


@pytest.mark.parametrize(("gpus", "workers", "is_served", "is_said"), [
    (1, 2, False, True), (1, 2, True, False), (2, 2, False, False), (0, 2, False, False),
])  # fmt: skip
def test_workers_that_would_take_turns_on_a_gpu_are_warned_of(
    gpus: int,
    workers: int,
    is_served: bool,
    is_said: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    if is_served:
        (tmp_path / "control").touch()
    assert list(make_engine(workers=workers).run([])) == []
    said = (
        "2 workers take turns on 1 GPU, since NVIDIA's multi-process service is not running; start it with: nvidia-cuda"
    )
    assert (said in caplog.text) == is_said


def test_gpus_are_dealt_out_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    from ocssl.engines import local

    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [local._gpu(slot) for slot in range(4)] == ["0", "1", "0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert [local._gpu(slot) for slot in range(3)] == ["3", "5", "3"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert local._gpu(0) is None
