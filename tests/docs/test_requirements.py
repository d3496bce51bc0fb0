"""The hashed requirements have every package that the two commands of the README install, at the pinned versions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "requirements").glob("*.txt"))


def pins(text: str) -> dict[str, str]:
    """Versions by name."""
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_requirement_has_one_version_and_a_hash(file: Path) -> None:
    entries = re.split(r"\n(?=\S)", file.read_text().strip())
    for entry in entries:
        assert re.match(r"[\w.-]+==[\w.+]+( ;.*)? \\\n", entry), entry[:80]
        assert re.findall(r"--hash=sha256:[0-9a-f]{64}", entry), entry[:80]
    assert len(pins(file.read_text())) == len(entries)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_versions_are_those_of_the_constraints(file: Path) -> None:
    pinned = pins((ROOT / "constraints.txt").read_text())
    for name, version in pins(file.read_text()).items():
        assert pinned.get(name, version) == version.removesuffix("+cpu"), name


@pytest.mark.parametrize("extra", ["plot", "dev"])
def test_every_dependency_of_the_package_is_there(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted, extras = [*project["dependencies"]], [extra]
    while extras:
        for text in project["optional-dependencies"][extras.pop()]:
            inner = re.fullmatch(r"ocssl\[(.*)\]", text)
            wanted += [] if inner else [text]
            extras += inner[1].split(",") if inner else []
    have = {name for file in (f"{extra}.txt", "torch.txt") for name in pins((ROOT / "requirements" / file).read_text())}
    names = {re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", text)[0]).lower() for text in wanted}  # type: ignore[index]
    assert names <= have
    assert "setuptools" in have, "the package is built without an environment of its own"


PIP = """#!/bin/sh
case "$*" in
  *cpu.txt) echo "ERROR: $SAYS" >&2; test -z "$SAYS" ;;
  *) echo "installed ${*##*/}" ;;
esac
"""


@pytest.mark.parametrize(
    ("says", "code", "lines"),
    [
        ("", 0, []),
        (
            "No matching distribution found for torch==2.13.0+cpu",
            0,
            ["No index has the build of requirements/cpu.txt", "installed torch.txt", "installed cuda.txt"],
        ),
        (
            "THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
            2,
            ["ERROR: THESE PACKAGES DO NOT MATCH", "requirements/cpu.txt cannot be installed"],
        ),
    ],
)
def test_torch_with_a_wrong_hash_is_not_replaced_in_silence(tmp_path: Path, says: str, code: int, lines: list[str]):
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name, content in ((".venv/bin/python", ""), ("pip", PIP)):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["make", "PIP=./pip", ".venv/.installed-torch"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")} | {"SAYS": says},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert (tmp_path / ".venv" / ".installed-torch").exists() == (code == 0)
    found = done.stdout.splitlines()[1:]
    assert len(found) == len(lines)
    assert all(line.startswith(start) for line, start in zip(found, lines, strict=True))
