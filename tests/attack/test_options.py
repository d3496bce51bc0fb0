"""Nonsense for every option of every command and for every setting: one sentence, or it is taken."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from attacking import PRECIOUS
from hostile import PEAK, sampled

from helpers.cli import Ocssl, ocssl  # noqa: F401 - a fixture
from ocssl.cli import app
from ocssl.common.yaml import assignments
from ocssl.errors import ConfigError
from ocssl.runs.config import settings
from ocssl.runs.presets import resolve

SECONDS = 30
SHORT = "there is not enough memory"

BASES = {
    "run": "--resume nowhere",
    "learn": "nowhere --state s",
    "embed": "nowhere nothing -o out",
    "export": "nowhere --to onnx -o out",
    "probe": "nowhere",
    "show": "nowhere",
    "compare": "nowhere.json",
    "report": "nowhere -o out",
    "sweep": "nowhere.yaml -o out",
    "budget": "",
    "list": "strategies",
    "data info": "folder:nowhere",
    "data prepare": "folder:nowhere",
    "data preview": "folder:nowhere -o out",
    "data list": "",
    "paper list": "--results nowhere",
    "paper show": "no-such-table",
    "paper run": "no-such-table",
    "paper tune": "no-such-table",
}
"""Words with which a command finds nothing to work on, whatever an option says."""
VALUES = ("nan", "-1", "1e400", "9" * 40, "", "x", "../..", "null", "2026-13-45", "x" * 5000)


def commands(group: typer.core.TyperGroup, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


TREE = dict(commands(typer.main.get_command(app)))  # type: ignore[arg-type]
OPTIONS = {
    f"{name} {option.opts[0]} {value[:12]!r}": (name, option.opts[0], value)
    for name, command in TREE.items()
    if name in BASES
    for option in command.params
    if option.opts[0].startswith("--") and not getattr(option, "is_flag", False) and option.opts[0] != "--help"
    for value in VALUES[len(option.opts[0]) % 3 :: 3]
}


@pytest.fixture
def bounds() -> Iterator[None]:
    """Ends a test that waits for ever, and refuses memory beyond what a command may take."""

    def late(*_: object) -> None:
        raise AssertionError(f"it did not end within {SECONDS} s")

    before, most = signal.signal(signal.SIGALRM, late), resource.getrlimit(resource.RLIMIT_AS)
    have = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (have + PEAK, most[1]))
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    resource.setrlimit(resource.RLIMIT_AS, most)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("bounds")
def test_the_bound_on_memory_holds(ocssl: Ocssl, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr("ocssl.budget.plan", lambda *_, **__: bytearray(2 * PEAK))
    code, said = ocssl("budget")
    assert code == 2
    assert SHORT in said


@pytest.mark.usefixtures("bounds")
@pytest.mark.parametrize("case", sampled(OPTIONS, 20))
def test_an_option_of_nonsense_is_one_sentence(ocssl: Ocssl, tmp_path: Path, monkeypatch, case) -> None:  # noqa: F811
    name, option, value = case
    precious = tmp_path / "precious"
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")  # so that ../.. is the test's own
    precious.write_text(PRECIOUS)
    code, said = ocssl(*name.split(), *BASES[name].split(), option, value)
    assert code in (0, 2), said
    for word in ("Traceback", "fault of ocssl", SHORT):
        assert word not in said
    assert precious.read_text() == PRECIOUS


def test_every_command_has_a_row() -> None:
    assert {*TREE} - {*BASES} <= {"demo", "version"}


NONSENSE = ("null", "[]", "{a: 1}", ".nan", "-1", "1e400", "9" * 40, "x", "", "!!int x", "[[[[", "true")
SETTINGS = {
    f"{name}={value[:12]}": (name, value)
    for number, name in enumerate(sorted(settings()))
    for value in ("2026-13-45", *NONSENSE[number % 2 :: 2])
}


@pytest.mark.usefixtures("bounds")
@pytest.mark.parametrize("case", sampled(SETTINGS, 20))
def test_a_setting_of_nonsense_is_refused_in_one_sentence_or_taken(case: tuple[str, str]) -> None:
    name, value = case
    said = "taken"
    try:
        resolve({"dataset": "shapes", "strategy": "cla-e"} | assignments([f"{name}={value}"])).to_yaml()
    except ConfigError as error:
        said = str(error)
    assert len(said.splitlines()) == 1
    assert len(said) < 2000
