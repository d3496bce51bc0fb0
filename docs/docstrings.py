"""Prepares docstrings for the site: doctests become an ``Examples`` section, and Sphinx roles become code."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"(?:^[ ]*>>> .*\n(?:^[ ]*\S.*\n?)*\n?)+", flags=re.M)
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`")


class Docstrings(griffe.Extension):
    """Rewrites every docstring when its object has been read."""

    def on_object(self, *, obj: griffe.Object, **unused: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = prepared(obj.docstring.value)


def prepared(text: str) -> str:
    """The docstring as the site shows it.

    >>> print(prepared("Adds :class:`One`.\\n\\n>>> 1 + 1\\n2\\n"))
    Adds `One`.
    <BLANKLINE>
    Examples:
        >>> 1 + 1
        2
    <BLANKLINE>
    """

    def section(match: re.Match[str]) -> str:
        indent = "    "
        return "Examples:\n" + "".join(f"{indent}{line}\n" if line else "\n" for line in match[0].splitlines())

    return ROLE.sub(r"`\1`", DOCTEST.sub(section, text))
