"""Commands that are killed at any moment end, when they are started again, with the same bits and leave nothing.

Kills of runs and of learners belong to the usual tests too, in ``tests/runs/test_killed_runs.py`` and
``tests/live/test_killed_learners.py``; those here run with ``make test-attack``. ``make test-slow`` has more than a
thousand kills.
"""

from __future__ import annotations

import json
import random
import re
import signal
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from attacking import LEARN, RUN, SETTINGS, Attack

from helpers.command import Process
from ocssl.common.files import TOKEN, unseal

TIMES = ("train_seconds", "eval_seconds", "seconds_at", "prepare_seconds", "started", "finished", "code")
SMALL_PARTS = "import ocssl.export.features as features; features.embed.__kwdefaults__['part'] = 3"
SMALL_CHUNKS = "import ocssl.data.cache_writer as writer; writer.CHUNK_BYTES = 3 * 768"


def _tensors(folder: Path) -> bytes:
    """The one file of tensors of a saved learner or encoder; a second one would have been left behind."""
    (file,) = folder.glob("*.safetensors")
    return file.read_bytes()


def _learned(place: Path) -> object:
    (last,) = (place / "checkpoints").iterdir()
    facts = json.loads((last / "learner" / "learner.json").read_text())["facts"]
    rows = sqlite3.connect(place / "ledger.sqlite").execute("SELECT name, number, problem FROM arrivals").fetchall()
    state = unseal(json.loads((last / "state.json").read_text()))["place"]
    state["identities"] = {}
    return state, facts, rows, _tensors(last / "learner"), _tensors(place / "encoder")


def _ran(place: Path) -> object:
    result = json.loads((place / "result.json").read_text())
    kept = {name: value for name, value in result.items() if name not in TIMES}
    last = max((place / "checkpoints").iterdir())
    return kept, (place / "metrics.jsonl").read_bytes(), _tensors(place), _tensors(last / "learner")


def _swept(place: Path) -> object:
    files = {name: (place / name).read_bytes() for name in ("trials.jsonl", "table.md", "best.yaml", "sweep.yaml")}
    return files, [_ran(run) for run in sorted(place.glob("trials/*/*"))]


def _files(place: Path) -> object:
    found = sorted(place.rglob("*")) if place.is_dir() else [place]
    return {
        str(path.relative_to(place)): path.read_bytes() for path in found if path.is_file() and path.name != ".lock"
    }


@dataclass(frozen=True)
class Case:
    """A command that can be killed.

    Attributes:
        words: with ``PLACE`` for what it writes.
        contents: everything there that must not depend on kills.
        resumed: the words once ``begun``, relative to the place, is there; None: the same.
        conditions: of the process.
        suffix: of the name of what it writes.
        syncs: how often it brings something to disk, about.
    """

    words: str
    contents: Callable[[Path], object]
    begun: str = ""
    resumed: str | None = None
    conditions: tuple[tuple[str, object], ...] = ()
    suffix: str = ""
    syncs: int = 12


CASES = {
    "learn": Case(f"learn imgs --state PLACE --save-every 0 --stream-batch 5 {' '.join(LEARN)}", _learned, syncs=40),
    "run": Case(f"run {' '.join(RUN)} --output PLACE", _ran, "config.yaml", "run --resume PLACE -q", syncs=30),
    "sweep": Case(
        "sweep plan.yaml -q -o PLACE",
        _swept,
        "sweep.yaml",
        "sweep --resume PLACE -q",
        (("hidden", ["matplotlib"]),),
        syncs=60,
    ),
    "embed": Case(
        "embed state imgs -q -o PLACE",
        _files,
        conditions=(("modules", {"small": SMALL_PARTS}),),
        suffix=".parquet",
    ),
    "prepare": Case(
        "data prepare folder:set --split train", _files, conditions=(("modules", {"small": SMALL_CHUNKS}),)
    ),
    "export": Case("export state --to hub -o PLACE", _files, syncs=6),
}


def start(attack: Attack, case: Case, place: Path, **more: object) -> Process:
    """Begin the command, or go on with it."""
    words = case.words if case.resumed is None or not (place / case.begun).exists() else case.resumed
    conditions = dict(case.conditions)
    cache = {"cache": f"import os; os.environ['OCSSL_CACHE'] = {str(place)!r}"} if "prepare" in words else {}
    conditions["modules"] = {**cache, **conditions.get("modules", {})}  # type: ignore[dict-item]
    return attack.start(*words.replace("PLACE", str(place)).split(), **conditions, **more)


def leftovers(folder: Path) -> list[Path]:
    """Drafts, parts and whatever else only an unfinished command has."""
    names = re.compile(rf"\..*\.{TOKEN}|.*\.parts?|draft-.*|.*\.broken-\d+|.*-journal")
    return [path for path in folder.rglob("*") if names.fullmatch(path.name)]


def kill(attack: Attack, case: Case, kills: int, seed: int) -> None:
    """Kill a command so many times, at random moments and inside its writes, each time going on with what is there."""
    folder, chance = attack.folder / "killed", random.Random(seed)
    folder.mkdir()
    began = time.monotonic()
    whole = folder / f"whole{case.suffix}"
    process = start(attack, case, whole)
    assert attack.end(process) == 0, process.err
    took, expected = time.monotonic() - began, case.contents(whole)
    assert not leftovers(folder)
    done = rounds = 0
    place = folder / f"0{case.suffix}"
    while done < kills:
        if chance.random() < 0.6:
            process = start(attack, case, place, die_at_sync=chance.randint(1, case.syncs))
        else:
            process = start(attack, case, place)
            time.sleep(chance.uniform(0, 0.9 * took))
            process.kill()
        code = attack.end(process)
        if code == -signal.SIGKILL:
            done += 1
            continue
        assert code == 0, process.err  # it was faster than the kill: begin another
        assert case.contents(place) == expected
        rounds += 1
        place = folder / f"{rounds}{case.suffix}"
    process = start(attack, case, place)
    assert attack.end(process) == 0, process.err
    assert case.contents(place) == expected
    assert not leftovers(folder)


FEW = {"learn": 7, "run": 7, "sweep": 4, "embed": 7, "prepare": 7, "export": 7}
ELSEWHERE = ("learn", "run")  # tested by default in other files
MANY = 170


@pytest.mark.parametrize(
    ("name", "kills"),
    [
        *(
            pytest.param(name, kills, id=name, marks=pytest.mark.attack if name in ELSEWHERE else ())
            for name, kills in FEW.items()
        ),
        *(pytest.param(name, MANY, id=f"{name}, many times", marks=pytest.mark.slow) for name in CASES),
    ],
)
def test_kills_change_no_bit_and_leave_nothing(attack: Attack, name: str, kills: int) -> None:
    if name == "sweep":
        attack.put("plan.yaml", json.dumps({"settings": SETTINGS, "space": {"lr": [0.02, 0.05]}}))
    kill(attack, CASES[name], kills, seed=kills)
    assert (attack.folder / "state" / "encoder" / "encoder.json").exists()


def test_the_slow_tests_have_a_thousand_kills() -> None:
    assert MANY * len(CASES) >= 1000
