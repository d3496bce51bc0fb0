"""YAML files and ``KEY=VALUE`` texts as plain mappings; the caller checks the names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from ocssl.errors import ConfigError, unreadable


def assignments(texts: Iterable[str]) -> dict[str, Any]:
    """Settings from ``key=value`` texts; values are YAML, and a dot reaches into a group.

    >>> assignments(["lr=3e-2", "memory=fifo", "probe.max_epochs=10"])
    {'lr': 0.03, 'memory': 'fifo', 'probe': {'max_epochs': 10}}
    """
    given: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (equals and key):
            raise ConfigError(f"'{text}' must have the form key=value")
        name, *path = key.strip().split(".")
        group = given
        for step in path:
            group = group.setdefault(name, {})
            if not isinstance(group, dict):
                raise ConfigError(f"'{key}' reaches into '{name}', which was set to a plain value before")
            name = step
        group[name] = read_yaml(value, key)
    return given


def from_file(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; an empty file is an empty mapping."""
    try:
        given = read_yaml(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(unreadable(path, error)) from error
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ConfigError(f"'{path}' must hold settings as 'name: value' lines, not {type(given).__name__}")
    return given


def read_yaml(text: str, where: str) -> Any:
    """The value of a YAML text; an error names ``where``."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"{where} is not valid YAML: {line}{error.problem}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from error


class _Loader(yaml.SafeLoader):
    """Safe YAML that reads 1e-3 as a number, as YAML 1.2 does, and refuses a repeated name."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for name, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if str(name.value) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"'{name.value}' is there twice", name.start_mark)
            seen.add(str(name.value))
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+"), list("-+.0123456789")
)
