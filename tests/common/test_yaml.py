"""Mappings from YAML files and from texts of a command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ocssl.common.yaml import assignments, from_file
from ocssl.errors import ConfigError


def test_numbers_in_scientific_notation_are_numbers() -> None:
    assert assignments(["a=1e-3", "b=5E-4", "c=.9e0", "d=e3"]) == {"a": 1e-3, "b": 5e-4, "c": 0.9, "d": "e3"}


@pytest.mark.parametrize("text", ["lr", "=3", ""])
def test_a_text_without_name_or_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"'{text}' must have the form key=value"):
        assignments([text])


def test_a_dot_reaches_into_a_group_but_not_into_a_plain_value() -> None:
    assert assignments(["probe.lr=1", "probe.batch=2", "probe.lr=3"]) == {"probe": {"lr": 3, "batch": 2}}
    with pytest.raises(ConfigError, match=r"'probe\.lr' reaches into 'probe', which was set to a plain value before"):
        assignments(["probe=3", "probe.lr=1"])


def test_an_empty_file_has_no_settings(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert from_file(tmp_path / "empty.yaml") == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"- lr", "must hold settings"),
        (b"lr: [", "is not valid YAML: line 1: "),
        (b"lr: 0.1\nlr: 0.2", "is not valid YAML: line 2: 'lr' is there twice"),
        (b"lr: \x00", "is not valid YAML: "),
        (b"\xff", "text"),
        (None, "No such file"),
    ],
)
def test_a_file_that_holds_no_settings_is_refused_by_name(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "settings.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=words) as refusal:
        from_file(file)
    assert str(file) in str(refusal.value)
