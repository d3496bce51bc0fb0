"""A learner in use by several threads, and copies of it."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from threading import Event, Lock, Thread
from time import sleep

import pytest
import torch

import ocssl
from ocssl.checks import small_learner, small_stream
from ocssl.common import locks
from ocssl.errors import ConfigError
from ocssl.execution import _wrap
from ocssl.export import load, of_learner, publish


@contextlib.contextmanager
def meanwhile(use: Callable[[], object]) -> Iterator[None]:
    """Do something again and again in another thread, from before the block begins until it ends."""
    begun, over, errors = Event(), Event(), []

    def run() -> None:
        try:
            while not over.is_set():
                use()
                begun.set()
        except Exception as error:
            errors.append(error)
            begun.set()

    thread = Thread(target=run)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not errors


def assert_same_networks(one: ocssl.Learner, other: ocssl.Learner) -> None:
    expected = one.train_state.encoder.state_dict()
    for name, tensor in other.train_state.encoder.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize("strategy", ["cla-e", "er"])
def test_training_is_the_same_while_another_thread_transforms(strategy: str) -> None:
    alone, watched = small_learner(strategy), small_learner(strategy)
    alone.partial_fit(small_stream(50)).flush()
    with meanwhile(lambda: watched.transform(small_stream(8))):
        watched.partial_fit(small_stream(50)).flush()
    assert_same_networks(alone, watched)
    counters = [counter for name, counter in watched.network.state_dict().items() if "num_batches" in name]
    assert counters
    assert all(counter == 2 * watched.budget.steps for counter in counters)  # each view passes alone


def test_what_another_thread_saves_is_a_state_between_two_minibatches(tmp_path) -> None:
    learner, states = small_learner("cla-r", passes=1), []

    def save() -> None:
        states.append(tmp_path / str(len(states)))
        learner.save(states[-1])
        sleep(0.005)  # locks are not fair

    with meanwhile(save):
        learner.partial_fit(small_stream(80))
    for state in states[1:9:2]:
        resumed = ocssl.Learner.load(state)
        assert (resumed.seen + resumed.pending) in (0, 80)
        assert resumed.budget.steps == resumed.passes * resumed.seen // resumed.stream_batch
        if resumed.pending:
            resumed.partial_fit(small_stream(1))
            assert_same_networks(learner, resumed)


def test_a_fork_while_another_thread_learns_leaves_no_learner_that_waits_for_ever(monkeypatch) -> None:
    learner, closed, over = small_learner("er"), Event(), Event()
    monkeypatch.setattr(locks, "FORKED_WAIT", 0.1)

    def hold() -> None:
        with learner.lock():
            closed.set()
            over.wait(30)

    holding = Thread(target=hold)
    holding.start()
    closed.wait(30)
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            learner.transform(small_stream(1))
        except ConfigError as error:
            os._exit(3 if "was learning when a fork copied it" in str(error) else 1)
        os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    over.set()
    holding.join()
    assert code == 3


def test_encoders_that_another_thread_takes_out_or_publishes_are_of_a_moment_between_two_minibatches(tmp_path) -> None:
    learner, found = small_learner("er"), []

    def take_out() -> None:
        publish(learner, tmp_path / "encoder")
        found.extend(bits(encoder.backbone) for encoder in (of_learner(learner), load(tmp_path / "encoder")))
        sleep(0.001)

    moments = {bits(learner.network)}
    with meanwhile(take_out):
        learner.partial_fit(small_stream(160), callback=lambda learner: moments.add(bits(learner.network)))
    assert len(found) > 4
    assert {*found} <= moments


def bits(network: torch.nn.Module) -> bytes:
    return b"".join(tensor.numpy().tobytes() for tensor in network.state_dict().values())


def repickled(learner: ocssl.Learner) -> ocssl.Learner:
    made: ocssl.Learner = pickle.loads(pickle.dumps(learner))
    return made


@pytest.mark.parametrize("duplicate", [copy.deepcopy, repickled])
def test_a_copy_that_another_thread_makes_is_of_a_moment_between_two_minibatches(duplicate) -> None:
    learner, copies = small_learner("cla-e", backbone="convnet-w32", passes=1), []
    moments = {0: bits(learner.train_state.encoder)}

    def duplicated() -> None:
        copies.append(duplicate(learner))
        sleep(0.001)

    with meanwhile(duplicated):
        learner.partial_fit(
            small_stream(120), callback=lambda it: moments.update({it.seen: bits(it.train_state.encoder)})
        )
    assert len(copies) > 4
    assert all(bits(made.train_state.encoder) == moments[made.seen] for made in copies)
    assert_same_networks(learner, next(made for made in copies if made.pending).flush())


@pytest.mark.parametrize("duplicate", [copy.deepcopy, repickled])
@pytest.mark.parametrize("strategy", ["cla-e", "adapt"])
def test_a_copy_goes_on_by_itself(strategy: str, duplicate: Callable[[ocssl.Learner], ocssl.Learner]) -> None:
    first = {"heads_first": 12} if strategy == "adapt" else {}  # the backbone begins to learn in the copy
    learner = small_learner(strategy, **first).partial_fit(small_stream(18))
    twin = duplicate(learner)
    before = learner.encode(small_stream(3))
    twin.partial_fit(small_stream(20, seed=1))
    assert torch.equal(learner.encode(small_stream(3)), before)
    assert_same_networks(twin, learner.partial_fit(small_stream(20, seed=1)))


def test_a_compiled_method_of_a_copy_is_that_of_the_copy() -> None:
    class Counter:
        count = 0

        def add(self) -> None:
            self.count += 1

    original = Counter()
    _wrap(original, "add", lambda add: lambda: add())  # a function is not copied with its object, as compiled ones are
    copied = copy.deepcopy(original)
    _wrap(copied, "add", lambda add: lambda: add())
    copied.add()
    assert (original.count, copied.count) == (0, 1)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, repickled])
def test_a_copy_runs_its_steps_by_itself(duplicate: Callable[[ocssl.Learner], ocssl.Learner]) -> None:
    learner = small_learner("er")
    learner.executor.graph = Lock()  # as a graph that was captured, it cannot be copied
    assert duplicate(learner).partial_fit(small_stream(8)).seen == 8


@pytest.mark.parametrize("duplicate", [copy.deepcopy, repickled])
def test_a_copy_with_a_backbone_of_ones_own_is_saved_as_the_original_is(duplicate, tmp_path) -> None:
    backbone = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 8))
    twin = duplicate(small_learner("er", backbone=backbone).partial_fit(small_stream(8)))
    twin.save(tmp_path)
    again = ocssl.Learner.load(tmp_path, backbone=copy.deepcopy(backbone))
    assert again.config == twin.config
    assert torch.equal(again.encode(small_stream(3)), twin.encode(small_stream(3)))


def test_a_forked_process_computes_features_once_it_has_one_thread() -> None:
    """Without that it may wait for threads that the fork did not copy."""
    learner, threads = small_learner("er"), torch.get_num_threads()
    images = torch.rand(256, 3, learner.image_size, learner.image_size)
    torch.set_num_threads(2)
    try:
        expected = learner.transform(images)
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            same = False
            try:
                torch.set_num_threads(1)
                same = abs(learner.transform(images) - expected).max() < 1e-4
            finally:
                os._exit(3 if same else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    finally:
        torch.set_num_threads(threads)
