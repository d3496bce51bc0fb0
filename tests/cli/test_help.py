"""Help that fits a screen and costs no import of torch, and completion."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from typer.main import get_command

from ocssl.cli import app

OURS = ("demo", "run", "sweep", "embed", "export", "show", "compare", "report", "probe", "list", "budget", "paper")
ELSEWHERE = ("learn", "data")  # tests/live has that of learn; data is a group
LINES = 40


ALL = """
import sys
from ocssl.cli import main
for command in sys.argv[1:]:
    sys.argv = ["ocssl", *command.split(), "--help"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, command
    print(end="\\f")
"""


@pytest.fixture(scope="module")
def helps() -> dict[str, list[str]]:
    """The lines of each command's help, on a screen of 80 columns."""
    environment = {**os.environ, "COLUMNS": "80", "TERMINAL_WIDTH": "80"}
    words = [sys.executable, "-c", ALL, "", *OURS]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    return dict(zip(("", *OURS), (page.split("\n")[:-1] for page in done.stdout.split("\f")), strict=False))


@pytest.mark.parametrize("command", ["", *OURS])
def test_help_fits_a_screen_and_gives_an_example(helps: dict[str, list[str]], command: str) -> None:
    lines = helps[command]
    assert len(lines) <= LINES
    assert any("xample: ocssl" in line for line in lines)


def test_every_command_is_tested_for_its_help() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert {*OURS, *ELSEWHERE} == set(commands)


def test_help_imports_neither_torch_nor_anything_else_heavy() -> None:
    program = """
import sys
sys.argv = ["ocssl", "--help"]
from ocssl.cli import main
try:
    main()
except SystemExit:
    pass
print([name for name in ("torch", "numpy", "pyarrow", "matplotlib", "pydantic", "yaml") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ocssl ru", ["run"]),
        ("ocssl run --strategy cla", ["cla-b", "cla-e", "cla-r"]),
        pytest.param("ocssl run --method sims", ["simsiam"], marks=pytest.mark.slow),
        pytest.param("ocssl run --dataset cif", ["cifar100", "cifar10"], marks=pytest.mark.slow),
        pytest.param("ocssl list me", ["methods", "memories"], marks=pytest.mark.slow),
    ],
)
def test_the_shell_completes_commands_and_names(words: str, expected: list[str]) -> None:
    environment = {
        **os.environ,
        "_OCSSL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    program = "from ocssl.cli import app; app(prog_name='ocssl')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert sorted(done.stdout.split()) == sorted(expected), done.stderr


def test_a_wrong_option_is_a_usage_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ocssl", "run", "--stratgey", "er"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "--strategy" in done.stderr
