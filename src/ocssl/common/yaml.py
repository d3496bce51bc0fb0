"""YAML files and ``KEY=VALUE`` texts as plain mappings; the caller checks the names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from ocssl.common.console import shown
from ocssl.common.files import read_file
from ocssl.errors import ConfigError, unreadable

MAX_BYTES = 4 << 20  # of a file; parsing takes seconds per megabyte
MAX_VALUES = 50_000  # in a file, and that an alias may stand for
MAX_LEVELS = 100
MAX_BITS = 1024  # of a whole number
_KINDS = {"timestamp": "date", "int": "whole number", "float": "number", "bool": "boolean"}


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
        given = read_yaml(read_file(path, MAX_BYTES).decode(), str(path))
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
    """Safe YAML that reads 1e-3 as a number, as YAML 1.2 does, and refuses a repeated name.

    Its size is bounded: levels, and values with those that aliases repeat. A value that its type does not fit is an
    error of YAML with the line.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._level = 0
        self._values: Counter[yaml.Node | None] = Counter()

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        is_alias = isinstance(event, yaml.AliasEvent)
        if self._level == MAX_LEVELS:
            raise yaml.composer.ComposerError(None, None, "it is nested too deeply", event.start_mark)
        self._level += 1
        node = super().compose_node(parent, index)
        self._level -= 1
        if is_alias and not self._values[node]:
            raise yaml.composer.ComposerError(None, None, f"'{event.anchor}' contains itself", event.start_mark)
        self._values[node] = self._values[node] or 1 + sum(map(self._values.__getitem__, _below(node)))
        if max(self._values[node], len(self._values)) > MAX_VALUES:
            raise yaml.composer.ComposerError(None, None, f"it has more than {MAX_VALUES:,} values", event.start_mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            found = super().construct_object(node, deep)
            if isinstance(found, int) and found.bit_length() > MAX_BITS:  # Python could not print it
                raise ValueError
            return found
        except (ValueError, KeyError, AttributeError, TypeError, OverflowError) as error:
            kind = node.tag.rpartition(":")[2]
            raise yaml.constructor.ConstructorError(
                None, None, f"{shown(node.value)} is not a {_KINDS.get(kind, kind)}", node.start_mark
            ) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for name, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if str(name.value) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"'{name.value}' is there twice", name.start_mark)
            seen.add(str(name.value))
        return super().construct_mapping(node, deep)


def _below(node: yaml.Node | None) -> Iterable[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else ()


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+"), list("-+.0123456789")
)
