"""Edited states and encoders are refused by the fact that does not fit; a learner learns in one thread at a time."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from attacking import LEARN, SETTINGS, Attack

from ocssl import Learner
from ocssl.errors import CheckpointError, ConfigError
from ocssl.runs.state import RunState

attack_only = pytest.mark.attack
NAN, HUGE, GONE = float("nan"), 10**30, object()


def rows(*table: tuple[object, ...], every: int = 10) -> list[object]:
    return [
        pytest.param(*row, id=str(number), marks=() if number % every == 0 else attack_only)
        for number, row in enumerate(table)
    ]


def put(content: dict, keys: str, value: object) -> None:
    *path, last = keys.split(".")
    for key in path:
        content = content[key]
    if value is GONE:
        del content[last]
    else:
        content[last] = value


COUNTS = (NAN, 1.5, None, "x", -1, HUGE, True, [], {})

EDITS = rows(
    *(("state/encoder/encoder.json", "facts.mean", value) for value in (1.0, {}, [1, 2], [], [NAN] * 3, "abc", None)),
    *(("state/encoder/encoder.json", "facts.std", value) for value in (1.0, {}, [1, 2], [], ["x"] * 3)),
    *(("state/encoder/encoder.json", "facts.image_size", value) for value in (0, -1, 1.5, "x", None, HUGE)),
    *(("state/encoder/encoder.json", "facts.sources", value) for value in (3, [], {"a": "b"}, {"a": None}, {"a": NAN})),
    *(("state/encoder/encoder.json", "facts.seen", value) for value in COUNTS if value is not None),
    *(("state/encoder/encoder.json", "facts.backbone", value) for value in (3, [], "no such", {})),
    *(("state/encoder/encoder.json", "facts", value) for value in (3, [], None, "x")),
    *(("state/encoder/encoder.json", "version", value) for value in ("x", None, [], 99)),
    *(("state/encoder/encoder.json", "tensors", value) for value in (3, [], {"file": 3}, {"file": "../../x"})),
)


@pytest.mark.parametrize(("name", "keys", "value"), EDITS)
def test_an_edited_encoder_is_refused(attack: Attack, name: str, keys: str, value: object) -> None:
    attack.edit(name, lambda content: put(content, keys, value))
    attack.refuse("export", "state", "--to", "hub", "-o", "hub")


STATES = rows(
    *(("state.json", f"place.{key}", GONE) for key in ("noted", "positions", "identities")),
    *(("state.json", "place.noted", value) for value in COUNTS),
    *(("state.json", "place.positions", value) for value in ([], True, None, {"a": 1.5}, {"a": None}, {"a": -1})),
    *(("state.json", "place.identities", value) for value in ([], True, {"a": 1})),
    *(("state.json", "place", value) for value in ([], None, 3, {"other": 1})),
    *(("state.json", "metrics_bytes", value) for value in COUNTS),
    *(("learner/learner.json", "facts.seen", value) for value in COUNTS),
    *(("learner/learner.json", "facts.budget.spent", value) for value in COUNTS),
    *(("learner/learner.json", "facts.budget.steps", value) for value in COUNTS),
    *(("learner/learner.json", "facts.budget", value) for value in ([], None, 3)),
    *(("learner/learner.json", "facts.config", value) for value in ([], None, 3, {})),
    *(("learner/learner.json", "facts.plugins", value) for value in (3, {}, [1])),
)


@pytest.mark.parametrize(("name", "keys", "value"), STATES)
def test_an_edited_state_is_refused(attack: Attack, name: str, keys: str, value: object) -> None:
    [checkpoint] = (attack.folder / "state" / "checkpoints").iterdir()
    attack.edit(str(checkpoint / name), lambda content: put(content, keys, value))
    attack.refuse("learn", "imgs", "--state", "state", *LEARN)


RUNS = rows(
    *(("finished", value) for value in COUNTS),
    *(("cbp_before", value) for value in COUNTS),
    *(("started", value) for value in (3, None, [])),
    *(("measured", value) for value in (3, None, [], {"1": 3}, {"1": {"samples": None, "linear": None, "knn": None}})),
    *(
        ("measured", {"1": {"samples": 1, "linear": {"correct": bad, "total": [1]}, "knn": None}})
        for bad in (None, "x", 3, [None], [-1], {})
    ),
    *(("train_seconds", value) for value in (NAN, -1, "x", None)),
    *(("seconds_at", value) for value in (3, ["x"], None)),
    *(("metrics_bytes", value) for value in COUNTS),
    every=12,
)


@pytest.mark.parametrize(("key", "value"), RUNS)
def test_an_edited_checkpoint_of_a_run_is_refused(attack: Attack, key: str, value: object) -> None:
    if key in ("finished", "cbp_before") and value == HUGE:
        value = -HUGE
    for checkpoint in (attack.folder / "open" / "checkpoints").iterdir():
        attack.edit(str(checkpoint / "state.json"), lambda content: put(content, key, value))
    attack.refuse("run", "--resume", "open", "-q")


@pytest.mark.parametrize("value", [None, "x", -1, NAN, True])
def test_a_run_state_names_the_fact_that_does_not_fit(value: object) -> None:
    with pytest.raises(CheckpointError, match="finished"):
        RunState.from_dict(asdict(RunState(started="now")) | {"finished": value})


DEEP = "[" * 100_000
TEXTS = rows(
    *(
        (name, command, text)
        for name, command in (
            ("open/metrics.jsonl", "show open"),
            ("open/config.yaml", "show open"),
            ("open/config.yaml", "run --resume open -q"),
            ("swept/sweep.yaml", "sweep --resume swept -q"),
            ("swept/trials.jsonl", "sweep --resume swept -q"),
            ("open/checkpoints/*/state.json", "run --resume open -q"),
            ("state/encoder/encoder.json", "embed state imgs -o o.parquet"),
            ("state/checkpoints/*/state.json", "learn imgs --state state"),
            ("state/checkpoints/*/learner/learner.json", "learn imgs --state state"),
        )
        for text in (f"{DEEP}\n", "\xff\xfe\n", "[1]\n", "{}\n", "3\n", "null\n", '{"kind": "probe", "moment": 3}\n')
    ),
    every=7,
)


@pytest.mark.parametrize(("name", "command", "text"), TEXTS)
def test_a_file_of_other_text_is_refused(attack: Attack, name: str, command: str, text: str) -> None:
    for path in attack.folder.glob(name):
        path.write_bytes(text.encode("latin-1"))
    attack.refuse(*command.split(), *(LEARN if "learn" in command.split() else ()))


def test_a_second_thread_that_learns_is_refused(tmp_path: Path) -> None:
    """Before, two threads counted and learned some images twice."""
    learner = Learner(backbone="convnet-w4", image_size=8, hidden_dim=8, output_dim=8, batch=12, device="cpu")
    images = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), np.uint8)
    refused: list[Exception] = []

    def again(call: Callable[[], object]) -> None:
        try:
            call()
        except ConfigError as error:
            refused.append(error)

    def meanwhile(learner: Learner) -> None:
        for call in (lambda: learner.partial_fit(images), learner.flush, lambda: learner.fit(images)):
            thread = threading.Thread(target=again, args=(call,))
            thread.start()
            thread.join()
        again(lambda: learner.partial_fit(images))

    learner.partial_fit(images, callback=meanwhile)
    assert learner.seen + learner.pending == 24
    assert refused
    assert all("one call at a time" in str(error) for error in refused)
    learner.partial_fit(images).save(tmp_path / "saved")
    assert Learner.load(tmp_path / "saved").seen == learner.seen


def test_a_learner_that_a_fork_copied_does_not_learn(tmp_path: Path) -> None:
    learner = Learner(backbone="convnet-w4", image_size=8, hidden_dim=8, output_dim=8, batch=12, device="cpu")
    pid = os.fork()
    if pid == 0:
        try:
            learner.partial_fit(np.zeros((24, 8, 8, 3), np.uint8))
            os._exit(1)
        except ConfigError as error:
            (tmp_path / "said").write_text(str(error))
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert "copied by a fork" in (tmp_path / "said").read_text()


def test_a_sweep_with_failed_trials_says_how_many_and_exits_with_1(attack: Attack) -> None:
    """A learning rate of 1e30 diverges."""
    plan = {"settings": SETTINGS, "space": {"lr": [0.05, 1e30]}}
    attack.put("plan.yaml", json.dumps(plan))
    code, err = attack.call("sweep", "plan.yaml", "--output", "p", "-q")
    assert code == 1, err
    assert err.splitlines()[-1] == "1 of 2 configurations failed; the table says why"
